"""What there is in a corpus, and what is wrong with it: `python -m datasets.inspect` (docs/inspect.md)."""
