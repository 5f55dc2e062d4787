"""Stage 2: the learned ranker over features of candidates."""
