"""Stage 1: the hierarchical attention encoder (HAtten) that prefetches candidates, and other encoders."""
