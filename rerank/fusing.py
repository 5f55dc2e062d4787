"""The reranker's scores fused with what the prefetcher said of the same candidates.

As retrieval.tuning, but that both parts have ranked the same papers: a weighted sum of normalised scores, or
of reciprocal ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datasets.columns import Ragged
from retrieval.base import Ranking
from retrieval.tuning import best_weights, normalised, recalls, reciprocal_ranks, simplex

METHODS = ("none", "score", "rank")
"""The reranker's score alone, as the paper; sums of z-scores; sums of 1 / (60 + rank)."""


def fused_scores(
    candidates: Ranking, scores: NDArray[np.float32], method: str, weight: float
) -> NDArray[np.floating]:
    """What the candidates [Q, K] are ranked by in the end, [Q, K], -inf where there is none.

    scores: the reranker's [Q, K]; weight: of the reranker, from 0 (the prefetcher alone) to 1 (it alone).
    """
    if method == "none" or weight == 1:  # no sum: rounding would make some scores equal
        return scores
    if weight == 0:
        places = -np.arange(candidates.k, dtype=np.float64)
        return np.where(candidates.papers >= 0, places, -np.inf)
    prefetched, rescored = (part.astype(np.float64) for part in _gains(candidates, scores, method))
    return np.where(candidates.papers >= 0, weight * rescored + (1 - weight) * prefetched, -np.inf)


def tuned_weight(
    candidates: Ranking,
    scores: NDArray[np.float32],
    wanted: Ragged,
    method: str,
    cutoffs: Sequence[int] = (10,),
) -> float:
    """The weight of the reranker, in steps of 0.05, of the highest mean of recall at the cutoffs.

    wanted: the papers to be found [Q].
    """
    grid = simplex(2)
    values = recalls([candidates, candidates], _gains(candidates, scores, method), wanted, grid, cutoffs)
    return float(best_weights(values, grid)[1])


def _gains(candidates: Ranking, scores: NDArray[np.float32], method: str) -> list[NDArray[np.float32]]:
    """Of the prefetcher and of the reranker [Q, K], in the order of the candidates."""
    if method == "score":
        return [normalised(candidates), normalised(Ranking(candidates.papers, scores))]
    places = reciprocal_ranks(candidates)
    order = np.argsort(-scores, axis=1, kind="stable")
    by_score = np.empty_like(places)
    np.put_along_axis(by_score, order, places, axis=1)
    return [places, by_score]
