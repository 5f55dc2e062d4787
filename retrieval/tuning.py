"""Choosing weights of parts on the validation split."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.ragged import Ragged
from datasets.store import Corpus
from retrieval.pool import pools
from retrieval.ranking import Ranking

VALIDATION = "val"


def recall_cutoff(measure: str, option: str) -> int:
    """The k of `recall@k`; InputError that names the option for any other text."""
    kind, _, k = measure.partition("@")
    if kind != "recall" or not k.isdecimal() or int(k) < 1:
        raise InputError(f"{option}={measure}: choose recall@K, as recall@10")
    return int(k)


def sampled(corpus: Corpus, split: str, queries: int, seed: int) -> tuple[NDArray[np.int64], Ragged]:
    """Contexts [Q] of a split, a sample where there are more than `queries`, and the papers that they cite.

    Raises InputError if there is no such split, or nothing in it.
    """
    there = corpus.split(split)
    if len(there) == 0:
        raise InputError(f"corpus {corpus.name}: the split {split!r} has no queries to tune with")
    rows = np.sort(np.random.default_rng(seed).permutation(len(there))[:queries])
    return there.contexts[rows], there.positives.take(rows)


def simplex(parts: int) -> NDArray[np.float64]:
    """Weights to try [W, parts], each from 0 to 1, that sum to 1: in steps of 0.05, coarser for many parts.

    >>> simplex(3).shape
    (66, 3)
    """
    steps = {1: 1, 2: 20, 3: 10}.get(parts, 5)
    counts = [row for row in product(range(steps + 1), repeat=parts - 1) if sum(row) <= steps]
    return np.array([[*row, steps - sum(row)] for row in counts]) / steps


def recalls(
    rankings: Sequence[Ranking],
    gains: Sequence[NDArray[np.float32]],
    wanted: Ragged,
    grid: NDArray[np.float64],
    cutoffs: Sequence[int],
) -> NDArray[np.float64]:
    """Of each query, under each weights of the grid [W, parts], the mean of recall at the cutoffs [W, Q].

    rankings, gains: of each part, [Q, n]; wanted: the papers to be found [Q].
    """
    values = np.zeros((len(grid), len(wanted)))
    for rows, pool in pools(rankings, gains):
        count = len(pool.papers)
        cited = wanted.take(np.arange(rows.start, rows.start + count))
        query, target = np.repeat(np.arange(count), cited.lengths), cited.values[:, None]
        same = pool.papers[query] == target
        at, there = same.argmax(axis=1), same.any(axis=1)
        before = pool.papers[query] < target
        for row, weights in zip(values, grid, strict=True):
            sums = pool.sums(weights[None])[query]
            own = np.take_along_axis(sums, at[:, None], axis=1)
            ranks = 1 + np.count_nonzero((sums > own) | ((sums == own) & before), axis=1)
            found = there & np.isfinite(own[:, 0])
            hits = sum((found & (ranks <= k)).astype(np.float64) for k in cutoffs) / len(cutoffs)
            row[rows] = np.bincount(query, hits, count) / np.maximum(cited.lengths, 1)
    return values


def best_weights(values: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights [parts] of the highest mean value [W, Q]; of equals the most even, then the first."""
    means = values.mean(axis=1).round(9)
    equal = np.flatnonzero(means == means.max())
    return grid[equal[np.argmin((grid[equal] ** 2).sum(axis=1).round(9))]]
