"""Texts as rows of weighted terms, and kernels that compare queries with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from citerec.base.packages import compiled
from citerec.retrieval.arrays import Floats

K1, B, B_SHORT = 1.2, 0.75, 0.3
"""BM25 parameters; B_SHORT is for titles and contexts, which differ little in length."""
NEAR = 6.0
"""Distance in words at which a word of a context has half the weight of one next to the mark."""
BEFORE = 1.5
"""As NEAR, for words just before the mark."""
TOP = 3
"""Number of best citing contexts or papers that means are taken over."""


class TermRows(NamedTuple):
    """Rows of weighted terms, for the kernels below: row i is offsets[i]:offsets[i + 1] of both columns."""

    offsets: NDArray[np.integer]
    terms: NDArray[np.int32]
    weights: Floats


class CitingTexts(NamedTuple):
    """The texts that cite each paper, rows[offsets[p]:offsets[p + 1]], and the citing paper of each text."""

    offsets: NDArray[np.integer]
    rows: NDArray[np.int32]
    source: NDArray[np.int32]


@dataclass(frozen=True)
class WeightedTexts:
    """Texts as rows of terms, weighted by their share of a BM25 score (Robertson and Zaragoza 2009).

    Row i is offsets[i]:offsets[i + 1] of both columns.
    """

    offsets: NDArray[np.int64]
    terms: NDArray[np.int32]
    weights: Floats
    average: Floats
    """[1]: average length of a text"""

    @classmethod
    def from_counts(
        cls, counts: csr_matrix, rarity: Floats, b: float = B, average: float = 0.0
    ) -> WeightedTexts:
        """Weight terms by their counts, or sums of nearness, in texts [n, T] and their rarity (idf) [T].

        average: average length of a text; 0 means that of these texts.
        """
        counts.sum_duplicates()
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        average = average or max(float(lengths.sum()) / max(int(np.count_nonzero(lengths)), 1), 1e-9)
        norm = (K1 * (1 - b + b * lengths / average)).astype(np.float32)
        weights = np.repeat(norm, np.diff(counts.indptr))  # in place from here: there may be 10^8
        weights += counts.data
        np.divide(counts.data, weights, out=weights)
        weights *= rarity[counts.indices]
        offsets, mean = counts.indptr.astype(np.int64), np.array([average], np.float32)
        return cls(offsets, counts.indices, weights, mean)

    @property
    def rows(self) -> TermRows:
        return TermRows(self.offsets, self.terms, self.weights)


def idf(frequency: NDArray[np.integer], texts: int) -> Floats:
    """Inverse document frequency [T] of terms in `frequency` [T] of the texts; never negative."""
    return np.log(1 + np.maximum(texts - frequency + 0.5, 0.5) / (frequency + 0.5)).astype(np.float32)


def nearness(distance: NDArray[np.integer], reach: float = NEAR) -> Floats:
    """Return 1 / (1 + |d| / reach) for words at distance d from the mark."""
    return (reach / (reach + np.abs(distance))).astype(np.float32)


def nearness_before(distance: NDArray[np.integer]) -> Floats:
    """Return 1 / (1 + |d| / BEFORE) for words before the mark (d < 0), 0 for others."""
    return np.where(distance < 0, nearness(distance, BEFORE), np.float32(0))


@compiled(nogil=True)
def _dot_product(texts: Any, row: Any, query: Any) -> Any:
    """Dot product of a text and the weights of a query's terms [T]."""
    total = np.float32(0)
    for i in range(texts.offsets[row], texts.offsets[row + 1]):
        total += query[texts.terms[i]] * texts.weights[i]
    return total


@compiled(nogil=True)
def dot_products(queries: Any, texts: Any, scratch: Any, rows: Any) -> Any:
    """Dot products [Q, K] of queries and the texts `rows` [Q, K], both TermRows; 0 for negative rows.

    scratch: zeros [T], and zeros again afterwards.
    """
    out = np.zeros(rows.shape, np.float32)
    for q in range(rows.shape[0]):
        for i in range(queries.offsets[q], queries.offsets[q + 1]):
            scratch[queries.terms[i]] += queries.weights[i]
        for k in range(rows.shape[1]):
            row = rows[q, k]
            if row >= 0:
                out[q, k] = _dot_product(texts, row, scratch)
        for i in range(queries.offsets[q], queries.offsets[q + 1]):
            scratch[queries.terms[i]] = 0
    return out


@compiled(nogil=True)
def _insert(best: Any, rows: Any, value: Any, row: Any) -> None:
    """Insert a value into the descending best [TOP], and its row into `rows`."""
    i = best.shape[0] - 1
    if not value > best[i]:
        return
    while i > 0 and value > best[i - 1]:
        best[i], rows[i] = best[i - 1], rows[i - 1]
        i -= 1
    best[i], rows[i] = value, row


@compiled(nogil=True)
def best_products(queries: Any, texts: Any, scratch: Any, papers: Any, citing: Any, excluded: Any) -> Any:
    """Highest dot products [Q, K, TOP] of queries with the texts that cite papers [Q, K], -inf for none; and
    the rows of these texts, -1 for none.

    queries, texts: TermRows. citing: CitingTexts of each paper. excluded: citing paper to skip, [Q].
    """
    out = np.full((papers.shape[0], papers.shape[1], TOP), np.float32(-np.inf), np.float32)
    places = np.full(out.shape, -1, np.int32)
    for q in range(papers.shape[0]):
        for i in range(queries.offsets[q], queries.offsets[q + 1]):
            scratch[queries.terms[i]] += queries.weights[i]
        for k in range(papers.shape[1]):
            paper = papers[q, k]
            if paper < 0:
                continue
            for j in range(citing.offsets[paper], citing.offsets[paper + 1]):
                row = citing.rows[j]
                if excluded[q] >= 0 and citing.source[row] == excluded[q]:
                    continue
                product = _dot_product(texts, row, scratch)
                _insert(out[q, k], places[q, k], product, row)
        for i in range(queries.offsets[q], queries.offsets[q + 1]):
            scratch[queries.terms[i]] = 0
    return out, places
