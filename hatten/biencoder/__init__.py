"""Transformers fine-tuned as bi-encoders."""
