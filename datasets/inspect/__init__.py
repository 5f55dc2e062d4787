"""Statistics and quality checks of a corpus: `citerec data inspect` (docs/research/inspect.md)."""
