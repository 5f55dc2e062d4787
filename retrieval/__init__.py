"""Rankers: the Retriever interface, lexical and dense search."""
