"""Asking a library: which papers a passage should cite, and why."""
