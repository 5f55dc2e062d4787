"""The commands of a library: what they print, and what the user has who names no library."""
