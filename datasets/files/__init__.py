"""File formats of data sets, read and written: source files, BEIR, JSON lines."""
