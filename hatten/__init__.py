"""Stage 1: the hierarchical attention encoder (HAtten) that prefetches candidates, and what it is trained with."""
