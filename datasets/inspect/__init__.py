"""Statistics and quality checks of a corpus: `python -m datasets.inspect` (docs/inspect.md)."""
