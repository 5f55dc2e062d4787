"""Stages 2 and 3: the learned ranker, and cross-encoders, which read a query and a candidate together."""
