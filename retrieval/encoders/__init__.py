"""Article encoders: pretrained transformers as retrievers."""
