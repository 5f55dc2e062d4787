"""What is read: source formats, the prepared store, the demo corpus.

It has the name of Hugging Face's `datasets`, which cannot be imported beside it.
Keep it free of heavy imports.
"""
