"""Confidence intervals and significance tests, clustered by citing paper.

The contexts of one citing paper share a topic and often cite the same papers, so they are not independent.
Intervals (cluster bootstrap, Field and Welsh 2007) and tests of differences (Fisher's randomisation test,
recommended for runs by Smucker, Allan and Carterette 2007) therefore draw citing papers with all of their
queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
DRAWS = 10_000
"""Resamples per interval, sign assignments per test."""

_CELLS = 1 << 22
"""Maximum draws x citing papers held in memory."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """Two runs over the same queries: their means, the mean of a - b, its interval and its p-value."""

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
    """Return the ends [M], [M] of the 95 % percentile intervals of column means.

    values: [Q, M], NaN if a query does not belong to a column. papers: [Q], each query's citing paper.
    All columns share the same resamples. NaN for columns with queries of fewer than two papers, whose
    variance is unknown.
    """
    papers = np.unique(papers, return_inverse=True)[1]
    valid = ~np.isnan(values)
    sums = _sum_by_paper(np.where(valid, values, 0.0), papers)
    counts = _sum_by_paper(valid.astype(np.float64), papers)
    means = np.empty((draws, values.shape[1]))
    for chunk, rng in _chunks(draws, len(sums), seed):
        size = chunk.stop - chunk.start
        drawn = rng.integers(len(sums), size=(size, len(sums))) + len(sums) * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)
        with np.errstate(invalid="ignore"):  # resamples without queries of a column become NaN, ignored below
            means[chunk] = (times @ sums) / (times @ counts)
    low, high = np.nanquantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    enough = np.count_nonzero(counts, axis=0) > 1
    return np.where(enough, low, np.nan), np.where(enough, high, np.nan)


def randomisation_test(
    differences: Floats, papers: npt.NDArray[np.integer], draws: int = DRAWS, seed: int = 0
) -> float:
    """Return the two-sided p of the mean difference [Q] when the runs of each citing paper swap at random.

    p = (hits + 1) / (draws + 1), where a hit is a mean at least as far from zero as the observed one.
    """
    sums = _sum_by_paper(differences[:, None], np.unique(papers, return_inverse=True)[1])[:, 0]
    # The tolerance absorbs rounding, which depends on the order of summation.
    observed = abs(sums.sum()) - 1e-9 * np.abs(sums).sum()
    hits = 0
    for chunk, rng in _chunks(draws, len(sums), seed):
        signs = rng.integers(2, size=(chunk.stop - chunk.start, len(sums))) * 2.0 - 1.0
        hits += int(np.count_nonzero(np.abs(signs @ sums) >= observed))
    return (hits + 1) / (draws + 1)


def paired_difference(
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


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number of tests, in the same order (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def format_p(p: float, tests: int = 1) -> str:
    """Format a p-value; the smallest that DRAWS draws can give, times `tests`, is an upper bound.

    >>> format_p(0.0312), format_p(1 / 10_001), format_p(3 / 10_001, tests=3)
    ('0.0312', '≤ 0.0001', '≤ 0.0003')
    """
    return f"{'≤ ' if p <= 1.0001 * tests / (DRAWS + 1) else ''}{p:.4f}"


def _sum_by_paper(values: Floats, papers: npt.NDArray[np.integer]) -> Floats:
    """Sum rows [Q, M] by the paper numbers `papers` [Q] -> [C, M]."""
    sums = np.zeros((int(papers.max()) + 1, values.shape[1]))
    np.add.at(sums, papers, values)
    return sums


def _chunks(draws: int, papers: int, seed: int) -> Iterator[tuple[slice, np.random.Generator]]:
    """Yield slices of the draws that fit into memory, with the generator to draw from."""
    rng = np.random.default_rng(seed)
    step = max(1, _CELLS // papers)
    for start in range(0, draws, step):
        yield slice(start, min(start + step, draws)), rng
