"""The static embedding model."""
