"""What is read: source formats, the prepared store, the demo corpus.

This package shares its name with Hugging Face `datasets` on purpose of the layout; keep it free of heavy imports.
"""
