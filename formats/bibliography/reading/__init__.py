"""Readers of bibliographies: a file for each family of formats."""
