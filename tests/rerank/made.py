"""Linear models by their weights alone."""

from __future__ import annotations

from collections.abc import Mapping

from citerec.rerank.ranker.linear import LinearModel


def linear(weights: Mapping[str, float]) -> LinearModel:
    """A linear model of features whose typical deviation is 1."""
    return LinearModel(weights, dict.fromkeys(weights, 1.0))
