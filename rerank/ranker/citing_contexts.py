"""Finds the training contexts that cite a paper and are most similar to a query."""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.datasets.records import TRAIN
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.rerank.ranker.texts import B_SHORT, CitingTexts, TermRows, WeightedTexts, best_products, idf
from citerec.retrieval.queries import Queries


class CitingContexts:
    """Ranks the contexts of a split that cite a paper, at most `MAX_CITING` per paper (`CorpusStatistics`).

    Similarity is BM25, with the words of both contexts weighted by their nearness to the mark.
    """

    def __init__(
        self, corpus: Corpus, statistics: CorpusStatistics | None = None, of_split: str = TRAIN
    ) -> None:
        """statistics: of a ranker over the corpus, whose weights of words are then used."""
        split = corpus.splits.get(of_split)
        self.statistics = copy(statistics) if statistics else CorpusStatistics(corpus)
        if statistics is None or of_split != TRAIN:
            queries = self.statistics.read_citations(corpus, split)
            counts = self.statistics.near_counts(queries.words("context"))
            frequency = np.bincount(counts.indices, minlength=counts.shape[1])
            rarity = statistics.rarity if statistics else idf(frequency, counts.shape[0])
            self.near = WeightedTexts.from_counts(counts, rarity, B_SHORT)
        else:
            self.near = statistics.near
        self.contexts = np.empty(0, np.int64) if split is None else split.contexts
        """rows among the corpus's contexts"""

    def most_similar(
        self, queries: Queries, rows: NDArray[np.integer], papers: NDArray[np.integer], count: int
    ) -> NDArray[np.int64]:
        """Return contexts that cite a paper, most similar first: rows [N, count] of the corpus; -1 for none.

        rows [N] of queries, papers [N]. Contexts of the query's own citing paper are excluded. count: at most
        TOP (rerank.ranker.texts).
        """
        if not len(self.contexts):
            return np.full((len(rows), count), -1, np.int64)
        distinct, position = np.unique(rows, return_inverse=True)
        statistics, cited, texts = self.statistics, self.statistics.citing, self.near
        of_queries = statistics.with_query_words(queries)
        words = of_queries.near_counts(queries[distinct].words("context")).take(position)
        terms = TermRows(words.indptr, words.indices, words.data)
        citing = CitingTexts(cited.offsets, cited.values, statistics.source)
        own, scratch = queries.citing[rows], np.zeros(statistics.terms.size, np.float32)
        _, best = best_products(terms, texts.rows, scratch, papers[:, None], citing, own)
        nearest = best[:, 0, :count]
        return np.where(nearest < 0, -1, self.contexts[nearest])
