"""The built-in model, and how it is made."""
