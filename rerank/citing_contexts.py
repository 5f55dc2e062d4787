"""How a paper was cited before: the training contexts that cite it and are most like a query."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import vstack

from datasets.corpus import Corpus
from datasets.records import TRAIN
from rerank.evidence import B_SHORT, Evidence, Texts
from retrieval.queries import Queries

BLOCK = 1 << 17
"""Contexts whose words are read at a time."""


class CitingContexts:
    """Chooses among the training contexts that cite a paper, at most `CITING` of them (rerank.evidence).

    Two contexts are as alike as BM25 says, words counting by their nearness to the mark in both.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.evidence = Evidence(corpus)
        queries = self.evidence.read_citations(corpus, corpus.splits.get(TRAIN))
        self.contexts = queries.contexts
        """rows of the corpus's contexts"""
        parts = [queries[slice(start, start + BLOCK)] for start in range(0, max(len(queries), 1), BLOCK)]
        counts = vstack([self.evidence.near_counts(part.words("context")) for part in parts], "csr")
        having = np.bincount(counts.indices, minlength=counts.shape[1])
        rarity = np.log(1 + (counts.shape[0] - having + 0.5) / (having + 0.5)).astype(np.float32)
        self.near = Texts.of(counts, rarity, B_SHORT)
        self._scratch = np.zeros(counts.shape[1], np.float32)

    def most_like(
        self, queries: Queries, places: NDArray[np.integer], papers: NDArray[np.integer], count: int
    ) -> NDArray[np.int64]:
        """For pairs of queries, by their places [N], and papers [N]: rows [N, count] of the corpus's
        contexts that cite the paper, the most alike first; -1 where there are fewer. None is of the query's
        own citing paper."""
        if not len(self.contexts):
            return np.full((len(places), count), -1, np.int64)
        asked, place = np.unique(places, return_inverse=True)
        chosen, evidence = queries[asked], self.evidence
        new = queries.new_words
        terms = evidence.terms.with_words(new) if new else None
        counts = evidence.near_counts(chosen.words("context"), terms=terms)
        found = _most_like(
            *(counts.indptr, counts.indices, counts.data, place),
            *(self.near.offsets, self.near.terms, self.near.weights, self._scratch),
            *(papers, evidence.citing.offsets, evidence.citing.values),
            *(evidence.source, chosen.citing[place], count),
        )
        return np.where(found < 0, -1, self.contexts[found])


@njit(nogil=True, cache=True)
def _most_like(
    queries: Any,
    terms: Any,
    weights: Any,
    place: Any,
    offsets: Any,
    of: Any,
    values: Any,
    scratch: Any,
    papers: Any,
    ends: Any,
    rows: Any,
    source: Any,
    own: Any,
    count: int,
) -> Any:
    """Rows [N, count] of the texts of papers [N] with the highest products, -1 behind them.

    place: [N], the query of each pair; the others as of rerank.evidence.best_products.
    """
    found = np.full((len(papers), count), -1, np.int64)
    best = np.empty(count, np.float32)
    for n in range(len(papers)):
        start, end = queries[place[n]], queries[place[n] + 1]
        for i in range(start, end):
            scratch[terms[i]] += weights[i]
        best[:] = -np.inf
        for j in range(ends[papers[n]], ends[papers[n] + 1]):
            row = rows[j]
            if own[n] >= 0 and source[row] == own[n]:
                continue
            total = np.float32(0)
            for i in range(offsets[row], offsets[row + 1]):
                total += scratch[of[i]] * values[i]
            at = count
            while at > 0 and total > best[at - 1]:
                at -= 1
            for i in range(count - 1, at, -1):
                best[i], found[n, i] = best[i - 1], found[n, i - 1]
            if at < count:
                best[at], found[n, at] = total, row
        for i in range(start, end):
            scratch[terms[i]] = 0
    return found
