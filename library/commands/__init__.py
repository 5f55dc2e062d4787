"""The commands of a library, and what they print."""
