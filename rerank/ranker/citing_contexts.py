"""Finds the contexts that cite a paper and are most similar to a query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics, citing_split
from citerec.rerank.ranker.texts import B_SHORT, WeightedTexts, best_products, idf
from citerec.retrieval.arrays import Counts, Floats
from citerec.retrieval.queries import Queries

BEST = 3
"""Contexts by which a paper is ranked: one or two alone tell little."""


class CitingContexts:
    """Ranks the contexts that cite a paper, at most `MAX_CITING` per paper (`CorpusStatistics`).

    Similarity is BM25, with the words of both contexts weighted by their nearness to the mark.
    """

    def __init__(self, corpus: Corpus, statistics: CorpusStatistics | None = None) -> None:
        """statistics: of a ranker over the corpus, whose weights of words are then used."""
        split = citing_split(corpus)
        self.statistics = statistics or CorpusStatistics(corpus)
        if statistics is None:
            queries = self.statistics.read_citations(corpus, split)
            counts = self.statistics.near_counts(queries.words("context"))
            frequency = np.bincount(counts.indices, minlength=counts.shape[1])
            self.near = WeightedTexts.from_counts(counts, idf(frequency, counts.shape[0]), B_SHORT)
        else:
            self.near = statistics.near
        self.contexts = np.empty(0, np.int64) if split is None else split.contexts
        """rows among the corpus's contexts"""

    def shares(self, queries: Queries, papers: NDArray[np.integer]) -> Floats:
        """Return how similar the BEST contexts that cite papers [Q, K] are to each query's: the mean of their
        scores, as a share of what the query's words score in themselves; -inf for fewer contexts."""
        counts, products, _ = self._best(queries, papers)
        own = WeightedTexts.from_counts(counts, self.statistics.rarity, b=0.0)
        whole = np.bincount(counts.texts, own.weights * counts.data, len(queries))
        return products[..., :BEST].mean(axis=2) / np.maximum(whole, 1e-9)[:, None].astype(np.float32)

    def most_similar(self, queries: Queries, papers: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the most similar context that cites papers [Q, K]: rows of the corpus, -1 for none."""
        if not len(self.contexts):
            return np.full(papers.shape, -1, np.int64)
        nearest = self._best(queries, papers)[2][..., 0]
        return np.where(nearest < 0, -1, self.contexts[nearest])

    def _best(
        self, queries: Queries, papers: NDArray[np.integer]
    ) -> tuple[Counts, Floats, NDArray[np.int32]]:
        """Return the words of queries, and `best_products` without those of the query's own citing paper."""
        statistics = self.statistics
        citing = statistics.citing, statistics.source
        counts = statistics.with_query_words(queries).near_counts(queries.words("context"))
        terms = WeightedTexts(counts.indptr, counts.indices, counts.data)
        scratch = np.zeros(counts.shape[1], np.float32)
        return counts, *best_products(terms, self.near, scratch, papers, *citing, queries.citing)
