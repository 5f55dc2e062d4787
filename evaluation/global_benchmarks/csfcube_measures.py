"""What CSFCube's evaluation script computes (Mysore et al. 2021): its own DCG, precision and averaging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evaluation.global_benchmarks.csfcube_format import RELEVANT, SPLITS

CUT = 20
"""The rank of precision, recall and F1."""
MEANS = {"av_precision": "mean_av_precision", "reciprocal_rank": "mean_reciprocal_rank"}
"""The script's names for means, where they differ from those of single queries."""


def query_measures(grades: Sequence[int]) -> dict[str, float]:
    """Measures of one query by the script's names; grades [n] 0 to 3 in ranked order, n at least 20.

    `r_precision` is the precision at the rank of the last relevant candidate. Without a relevant candidate
    all but ndcg are 0.
    """
    gains = np.asarray(grades, np.float64)
    n, relevant = len(gains), gains >= RELEVANT
    if n < CUT:
        raise ValueError(f"{n} candidates, where precision at {CUT} is asked for")
    ranks = np.flatnonzero(relevant) + 1
    precisions = np.arange(1, len(ranks) + 1) / ranks
    found = np.count_nonzero(relevant[:CUT])
    precision, recall = found / CUT, found / max(len(ranks), 1)
    return {
        "recall": recall,
        "precision": precision,
        "f1": 2 * precision * recall / (precision + recall) if found else 0.0,
        "r_precision": float(precisions[-1]) if len(ranks) else 0.0,
        "av_precision": float(precisions.mean()) if len(ranks) else 0.0,
        "reciprocal_rank": 1 / float(ranks[0]) if len(ranks) else 0.0,
        "ndcg": ndcg(gains, n),
        "ndcg@20": ndcg(gains, 20),
        "ndcg%20": ndcg(gains, int(0.20 * n)),
    }


def ndcg(gains: NDArray[np.float64], k: int) -> float:
    """DCG of the first k, over that of the best order of the same candidates; 0 where that is 0."""
    best = dcg(np.sort(gains)[::-1], k)
    return dcg(gains, k) / best if best else 0.0


def dcg(gains: NDArray[np.float64], k: int) -> float:
    """The first gain and, from the second on, gain / log2(rank): ranks 1 and 2 have the same weight.

    >>> dcg(np.array([3.0, 2.0, 0.0, 1.0]), 4)
    5.5
    """
    return float((gains[:k] / np.maximum(np.log2(np.arange(1, len(gains[:k]) + 1)), 1)).sum())


def split_means(
    values: Mapping[str, Mapping[str, float]], folds: Mapping[str, Sequence[str]], split: str
) -> dict[str, float]:
    """Means over the queries of each fold of a split, and then over the folds, in percent.

    values: {query: measures}; folds: {fold: queries}.
    """
    names = next(iter(values.values()))
    means = {
        name: np.mean([np.mean([values[query][name] for query in folds[fold]]) for fold in SPLITS[split]])
        for name in names
    }
    return {MEANS.get(name, name): 100 * float(mean) for name, mean in means.items()}
