"""Published benchmarks of global citation recommendation: queries are papers, and so are candidates."""
