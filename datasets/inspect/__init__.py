"""What a corpus holds, and what is wrong with it: `python -m datasets.inspect` (docs/inspect.md)."""
