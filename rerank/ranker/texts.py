"""Texts as rows of weighted terms, and kernels that compare queries with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, concat_ranges, sums_of_ranges
from citerec.retrieval.arrays import Counts, Floats

K1, B, B_SHORT = 1.2, 0.75, 0.3
"""BM25 parameters; B_SHORT is for titles and contexts, which differ little in length."""
NEAR = 6.0
"""Distance in words at which a word of a context has half the weight of one next to the mark."""
BEFORE = 1.5
"""As NEAR, for words just before the mark."""
TOP = 3
"""Number of best citing contexts or papers that means are taken over."""


@dataclass(frozen=True)
class WeightedTexts:
    """Texts, or queries, as rows of weighted terms.

    Row i is offsets[i]:offsets[i + 1] of both columns.
    """

    offsets: NDArray[np.int64]
    terms: NDArray[np.int32]
    weights: Floats

    @classmethod
    def from_counts(cls, counts: Counts, rarity: Floats, b: float = B, average: float = 0.0) -> WeightedTexts:
        """Weight terms by their share of a BM25 score (Robertson and Zaragoza 2009): by their counts, or sums
        of nearness, in texts [n, T] and their rarity (idf) [T].

        average: average length of a text; 0 means that of these texts.
        """
        lengths = counts.lengths()
        average = average or max(float(lengths.sum()) / max(int(np.count_nonzero(lengths)), 1), 1e-9)
        norm = (K1 * (1 - b + b * lengths / average)).astype(np.float32)
        weights = np.repeat(norm, np.diff(counts.indptr))  # in place from here: there may be 10^8
        weights += counts.data
        np.divide(counts.data, weights, out=weights)
        weights *= rarity[counts.indices]
        return cls(counts.indptr.astype(np.int64), counts.indices, weights)


def idf(frequency: NDArray[np.integer], texts: int) -> Floats:
    """Inverse document frequency [T] of terms in `frequency` [T] of the texts; never negative."""
    return np.log(1 + np.maximum(texts - frequency + 0.5, 0.5) / (frequency + 0.5)).astype(np.float32)


def nearness(distance: NDArray[np.integer], reach: float = NEAR) -> Floats:
    """Return 1 / (1 + |d| / reach) for words at distance d from the mark."""
    return (reach / (reach + np.abs(distance))).astype(np.float32)


def nearness_before(distance: NDArray[np.integer]) -> Floats:
    """Return 1 / (1 + |d| / BEFORE) for words before the mark (d < 0), 0 for others."""
    return np.where(distance < 0, nearness(distance, BEFORE), np.float32(0))


def dot_products(
    queries: WeightedTexts, texts: WeightedTexts, scratch: Floats, rows: NDArray[np.integer]
) -> Floats:
    """Dot products [Q, K] of queries and the texts `rows` [Q, K]; 0 for negative rows.

    scratch: zeros [T], and zeros again afterwards.
    """
    products = (_products(queries, q, texts, scratch, row) for q, row in enumerate(rows))
    return np.array([*products], np.float32).reshape(rows.shape)


def _products(
    queries: WeightedTexts, query: int, texts: WeightedTexts, scratch: Floats, rows: NDArray[np.integer]
) -> Floats:
    """Dot products [n] of a query and the texts `rows` [n]; 0 for negative rows."""
    asked = slice(queries.offsets[query], queries.offsets[query + 1])
    np.add.at(scratch, queries.terms[asked], queries.weights[asked])
    at, offsets = concat_ranges(texts.offsets[rows], texts.offsets[np.where(rows < 0, rows, rows + 1)])
    products = sums_of_ranges(scratch[texts.terms[at]] * texts.weights[at], offsets)
    scratch[queries.terms[asked]] = 0
    return np.asarray(products)


def best_products(
    queries: WeightedTexts,
    texts: WeightedTexts,
    scratch: Floats,
    papers: NDArray[np.integer],
    citing: Ragged,
    source: NDArray[np.int32],
    excluded: NDArray[np.integer],
) -> tuple[Floats, NDArray[np.int32]]:
    """Highest dot products [Q, K, TOP] of queries with the texts that cite papers [Q, K], -inf for none; and
    the rows of these texts, -1 for none. Of equal ones the earlier come first.

    citing: rows of the texts that cite each paper; source: their citing papers; excluded: the one to skip,
    [Q]. scratch: as for `dot_products`.
    """
    out = np.full((*papers.shape, TOP), np.float32(-np.inf), np.float32)
    best = np.full(out.shape, -1, np.int32)
    for q, row in enumerate(papers):
        at, offsets = concat_ranges(citing.offsets[row], citing.offsets[np.where(row < 0, row, row + 1)])
        place, rows = np.repeat(np.arange(len(row)), np.diff(offsets)), citing.values[at]
        if excluded[q] >= 0:
            kept = source[rows] != excluded[q]
            place, rows = place[kept], rows[kept]
        products = _products(queries, q, texts, scratch, rows)
        order = np.lexsort((-products, place))
        place, rows, products = place[order], rows[order], products[order]
        rank = np.arange(len(place)) - np.searchsorted(place, place)
        first = rank < TOP
        out[q, place[first], rank[first]] = products[first]
        best[q, place[first], rank[first]] = rows[first]
    return out, best
