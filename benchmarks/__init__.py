"""Scripts that print a ratio against a named peer or a measured ceiling: `python -m benchmarks.NAME`."""
