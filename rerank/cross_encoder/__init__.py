"""Stage 3: the cross-encoder, a transformer that reads query and candidate together."""
