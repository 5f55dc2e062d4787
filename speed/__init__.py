"""Benchmarks that print ratios against a named peer or a measured ceiling: `python -m citerec.speed.NAME`."""
