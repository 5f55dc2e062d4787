"""Choosing weights of parts on the validation split.

What several rankings of the same queries have found, side by side.
Fusing rankings: convex combination of normalised scores, and reciprocal rank fusion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from datasets.columns import Ragged
from datasets.corpus import Corpus
from datasets.errors import InputError
from retrieval.base import Ranking, ordered

_QUERIES = 32
"""Pooled at a time: what is worked on fits into the processor's caches then."""


@dataclass(frozen=True)
class Pool:
    """The papers of all parts, each once, in the order of their rows.

    papers: int32 [Q, n], -1 where there is none. gains: float32 [Q, parts, n], what each part gives a paper,
    0 if it has not found it. found: bool [Q, parts, n].
    """

    papers: NDArray[np.int32]
    gains: NDArray[np.float32]
    found: NDArray[np.bool_]

    def sums(self, weights: NDArray[np.floating]) -> NDArray[np.float32]:
        """Weighted sums of the gains [Q, n]; -inf where no part of a weight above 0 has found a paper.

        weights: [Q or 1, parts].
        """
        weights = weights.astype(np.float64)
        total = weights[:, :1] * self.gains[:, 0]  # float64, so that the order of the parts does not show
        for part in range(1, self.gains.shape[1]):
            total += weights[:, part, None] * self.gains[:, part]
        sums = total.astype(np.float32)
        if (weights > 0).all():
            sums[self.papers < 0] = -np.inf
        else:
            sums[~(self.found & (weights > 0)[:, :, None]).any(axis=1)] = -np.inf
        return sums


def pools(rankings: Sequence[Ranking], gains: Sequence[NDArray[np.float32]]) -> Iterator[tuple[slice, Pool]]:
    """Pools of some queries after the other, and which queries they are.

    rankings: [Q, n] of each part, n its own; a paper stands in a row once. gains: [Q, n] of each part.
    """
    for start in range(0, len(rankings[0]), _QUERIES):
        rows = slice(start, start + _QUERIES)
        yield rows, _pool([ranking.papers[rows] for ranking in rankings], [part[rows] for part in gains])


def _pool(papers: list[NDArray[np.int32]], gains: list[NDArray[np.float32]]) -> Pool:
    part = np.repeat(np.arange(len(papers)), [found.shape[1] for found in papers])
    joined, values = np.concatenate(papers, axis=1), np.concatenate(gains, axis=1)
    queries, n = joined.shape
    # One integer a place, (paper, place): numpy sorts integers far faster than it argsorts. -1 comes last.
    keys = joined.astype(np.uint32).astype(np.uint64) << np.uint64(32) | np.arange(n, dtype=np.uint64)
    keys.sort(axis=1)
    ascending = (keys >> np.uint64(32)).astype(np.uint32).view(np.int32)
    place = keys.astype(np.uint32).astype(np.int64)
    first = np.ones((queries, n), np.bool_)
    first[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    to = np.maximum.accumulate(np.where(first, np.arange(n), 0), axis=1)
    flat = (np.arange(queries)[:, None] * len(papers) + part[place]) * n + to
    pool = Pool(
        np.where(first, ascending, -1),
        np.zeros((queries, len(papers), n), np.float32),
        np.zeros((queries, len(papers), n), np.bool_),
    )
    pool.gains.ravel()[flat] = np.take_along_axis(values, place, axis=1)
    pool.found.ravel()[flat] = ascending >= 0
    return pool


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
