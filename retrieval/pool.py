"""What several rankings of the same queries have found, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.ranking import Ranking

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
