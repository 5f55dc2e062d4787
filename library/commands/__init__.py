"""The commands of a library."""
