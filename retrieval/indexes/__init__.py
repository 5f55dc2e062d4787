"""Indexes of vectors, on CPUs and GPUs."""
