"""Benchmarks whose queries are contexts."""
