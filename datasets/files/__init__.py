"""File formats of data sets, read and written: source files, JSON lines."""
