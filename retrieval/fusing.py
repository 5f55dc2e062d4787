"""Fusing rankings: convex combination of normalised scores, and reciprocal rank fusion.

Bruch et al. 2023, "An Analysis of Fusion Functions for Hybrid Retrieval"; Cormack et al. 2009, "Reciprocal
Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retrieval.pool import pools
from retrieval.ranking import Ranking, ordered

NORMALISATIONS = ("zscore", "minmax", "none")


def normalised(ranking: Ranking, how: str = "zscore") -> NDArray[np.float32]:
    """How far each score is above the lowest of its query [Q, n], in a unit that all parts have in common.

    how: the unit. `zscore`: the standard deviation of the query's scores, `minmax`: their range, `none`: no
    unit. What a ranking lacks counts as much as its last paper, 0. (The mean that z-scores take off is the
    same for all papers of a query, so it changes no ranking.)
    Where all scores are equal, each of the papers counts 1.
    """
    there = ranking.papers >= 0
    scores = np.where(there, ranking.scores, 0).astype(np.float64)
    lowest = np.where(there, scores, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    above = np.where(there, scores - np.where(np.isfinite(lowest), lowest, 0), 0)
    range_ = above.max(axis=1, initial=0, keepdims=True)
    if how == "zscore":
        papers = np.maximum(there.sum(axis=1, keepdims=True), 1)
        mean = above.sum(axis=1, keepdims=True) / papers
        unit = np.sqrt((np.where(there, above - mean, 0) ** 2).sum(axis=1, keepdims=True) / papers)
    elif how in ("minmax", "none"):
        unit = range_ if how == "minmax" else np.ones_like(range_)
    else:
        raise ValueError(f"{how}: choose one of {', '.join(NORMALISATIONS)}")
    return np.where(range_ == 0, there, above / np.where(range_ == 0, 1, unit)).astype(np.float32)


def reciprocal_ranks(ranking: Ranking, constant: float = 60) -> NDArray[np.float32]:
    """1 / (constant + rank) of each place [Q, n], ranks from 1 on; 0 where there is no paper."""
    gains = (1 / (constant + np.arange(1, ranking.k + 1))).astype(np.float32)
    return np.where(ranking.papers >= 0, gains, np.float32(0))


def convex(
    rankings: Sequence[Ranking], weights: NDArray[np.floating], k: int, normalise: str = "zscore"
) -> Ranking:
    """The k papers of the highest weighted sums of normalised scores.

    rankings: of the same queries [Q, n], each of a depth of its own. weights: [Q or 1, parts], not negative.
    What is found by parts of weight 0 alone is left out.
    """
    return fused(rankings, [normalised(ranking, normalise) for ranking in rankings], weights, k)


def reciprocal_rank(
    rankings: Sequence[Ranking], k: int, constant: float = 60, weights: NDArray[np.floating] | None = None
) -> Ranking:
    """The k papers of the highest sums of 1 / (constant + rank) (Cormack et al. 2009, with a constant of 60).

    rankings and weights (by default 1 each): as for `convex`.
    """
    weights = np.ones((1, len(rankings))) if weights is None else weights
    return fused(rankings, [reciprocal_ranks(ranking, constant) for ranking in rankings], weights, k)


def fused(
    rankings: Sequence[Ranking], gains: Sequence[NDArray[np.float32]], weights: NDArray[np.floating], k: int
) -> Ranking:
    """The k papers of the highest weighted sums of gains [Q, n], weights [Q or 1, parts]."""
    weights = np.broadcast_to(weights, (len(rankings[0]), len(rankings)))
    batches = [Ranking(np.empty((0, k), np.int32), np.empty((0, k), np.float32))]
    for rows, pool in pools(rankings, gains):
        sums = pool.sums(weights[rows])
        batches.append(ordered(pool.papers, sums, k, np.isneginf(sums)))
    return Ranking.concat(batches)
