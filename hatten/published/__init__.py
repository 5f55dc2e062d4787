"""What the authors of HAtten published: checkpoints and word vectors."""
