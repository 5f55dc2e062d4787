"""Benchmarks whose queries are papers."""
