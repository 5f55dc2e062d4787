"""How a paper was cited before: the training contexts that cite it and are most like a query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.records import TRAIN
from rerank.evidence import B_SHORT, Evidence, WeightedTexts, best_products, idf
from retrieval.queries import Queries


class CitingContexts:
    """Chooses among the training contexts that cite a paper, at most `CITING` of them (rerank.evidence).

    Two contexts are as alike as BM25 says, words counting by their nearness to the mark in both.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.evidence = Evidence(corpus)
        queries = self.evidence.read_citations(corpus, corpus.splits.get(TRAIN))
        self.contexts = queries.contexts
        """rows of the corpus's contexts"""
        counts = self.evidence.near_counts(queries.words("context"))
        having = np.bincount(counts.indices, minlength=counts.shape[1])
        self.near = WeightedTexts.of(counts, idf(having, counts.shape[0]), B_SHORT)
        self._scratch = np.zeros(counts.shape[1], np.float32)

    def most_like(
        self, queries: Queries, places: NDArray[np.integer], papers: NDArray[np.integer], count: int
    ) -> NDArray[np.int64]:
        """For pairs of queries, by their places [N], and papers [N]: rows [N, count] of the corpus's
        contexts that cite the paper, the most alike first; -1 where there are fewer. None is of the query's
        own citing paper. count: at most BEST (rerank.evidence)."""
        if not len(self.contexts):
            return np.full((len(places), count), -1, np.int64)
        asked, place = np.unique(places, return_inverse=True)
        evidence, cited, texts = self.evidence, self.evidence.citing, self.near
        words = evidence.reading(queries).near_counts(queries[asked].words("context"))[place]
        _, rows = best_products(
            *(words.indptr, words.indices, words.data, texts.offsets, texts.terms, texts.weights),
            *(self._scratch, papers[:, None], cited.offsets, cited.values, evidence.source),
            queries.citing[places],
        )
        found = rows[:, 0, :count]
        return np.where(found < 0, -1, self.contexts[found])
