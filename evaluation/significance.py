"""How sure a mean or a difference of two runs is, by citing paper.

The contexts of one citing paper are about one topic and often cite the same papers: they are not independent.
What is drawn is therefore the citing paper with all of its queries, for intervals (the cluster bootstrap,
Field and Welsh 2007) and for differences (Fisher's randomisation test, which Smucker, Allan and Carterette
2007 recommend for runs).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
DRAWS = 10_000
"""Resamples of an interval, sign flips of a test."""

_CELLS = 1 << 22
"""Draws times citing papers that are held at a time."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """Two runs over the same queries: their means, mean(a - b), its interval, and p that it is chance."""

    a: float
    b: float
    difference: float
    low: float
    high: float
    p: float
    queries: int
    papers: int


def intervals(
    values: Floats, papers: npt.NDArray[np.integer], draws: int = DRAWS, seed: int = 0
) -> tuple[Floats, Floats]:
    """Ends [M] and [M] of the 95 % percentile intervals of the means of columns.

    values: [Q, M]; NaN where a query does not belong to a column. papers: [Q], each query's citing paper.
    All columns share the same resamples. NaN for a column whose queries stand in fewer than two papers: one
    paper says nothing about others.
    """
    papers = np.unique(papers, return_inverse=True)[1]
    there = ~np.isnan(values)
    sums, counts = _sums(np.where(there, values, 0.0), papers), _sums(there.astype(np.float64), papers)
    means = np.empty((draws, values.shape[1]))
    for chunk, rng in _chunks(draws, len(sums), seed):
        size = chunk.stop - chunk.start
        drawn = rng.integers(len(sums), size=(size, len(sums))) + len(sums) * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a resample may have no query of a column: it does not count
            means[chunk] = (times @ sums) / (times @ counts)
    low, high = np.nanquantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    known = np.count_nonzero(counts, axis=0) > 1
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def randomisation_test(
    differences: Floats, papers: npt.NDArray[np.integer], draws: int = DRAWS, seed: int = 0
) -> float:
    """Two-sided p of the mean difference [Q] when the two runs of each citing paper change places at random.

    (hits + 1) / (draws + 1), where a hit is a mean at least as far from zero as the one that was observed.
    """
    sums = _sums(differences[:, None], np.unique(papers, return_inverse=True)[1])[:, 0]
    # Sums in another order differ in the last bits.
    observed = abs(sums.sum()) - 1e-9 * np.abs(sums).sum()
    hits = 0
    for chunk, rng in _chunks(draws, len(sums), seed):
        signs = rng.integers(2, size=(chunk.stop - chunk.start, len(sums))) * 2.0 - 1.0
        hits += int(np.count_nonzero(np.abs(signs @ sums) >= observed))
    return (hits + 1) / (draws + 1)


def paired(
    a: Floats, b: Floats, papers: npt.NDArray[np.integer], draws: int = DRAWS, seed: int = 0
) -> Difference:
    """Compare the values [Q] of two runs for the same queries."""
    low, high = intervals((a - b)[:, None], papers, draws, seed)
    return Difference(
        a=float(a.mean()),
        b=float(b.mean()),
        difference=float((a - b).mean()),
        low=float(low[0]),
        high=float(high[0]),
        p=randomisation_test(a - b, papers, draws, seed),
        queries=len(a),
        papers=len(np.unique(papers)),
    )


def _sums(values: Floats, papers: npt.NDArray[np.integer]) -> Floats:
    """Sums of rows [Q, M] that have the same number in `papers` [Q] -> [C, M]."""
    sums = np.zeros((int(papers.max()) + 1, values.shape[1]))
    np.add.at(sums, papers, values)
    return sums


def _chunks(draws: int, papers: int, seed: int) -> Iterator[tuple[slice, np.random.Generator]]:
    """Slices of the draws that fit into memory, and the generator to draw them from."""
    rng = np.random.default_rng(seed)
    step = max(1, _CELLS // papers)
    for start in range(0, draws, step):
        yield slice(start, min(start + step, draws)), rng
