"""Stage 1: the hierarchical attention encoder (HAtten) that prefetches candidates, and other encoders.

training/ has what all of them share: batches, mining, losses, rounds.
"""
