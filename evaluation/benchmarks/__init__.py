"""Benchmarks that bring their own queries and candidates, and samples of collections."""
