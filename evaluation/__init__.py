"""Evaluation: runs and qrels, measures, protocols, benchmarks and reports."""
