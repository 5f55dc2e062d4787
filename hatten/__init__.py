"""Stage 1: HAtten, the hierarchical attention encoder that prefetches candidates, and its training."""
