"""Benchmarks with their own queries and candidates, given or sampled."""
