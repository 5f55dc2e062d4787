"""NNSelect: averaged word vectors."""
