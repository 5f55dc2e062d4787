"""Word overlap of queries and papers, by which positives are mined (Gu et al. 2022, section 4.3)."""

from __future__ import annotations

import re

import numpy as np
import Stemmer
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, offsets_of, sums_of_ranges
from citerec.datasets.corpus import Corpus
from citerec.retrieval.lexical.terms import ENGLISH
from citerec.retrieval.queries import Queries

WORD = re.compile(r"\w+")
ROW_CHUNK = 1 << 16


class WordSets:
    """Sets of word stems of papers and queries.

    As in the authors' code: the corpus's words without NLTK's English stop words, split at everything but
    letters, digits and _. Theirs are lemmas.
    """

    def __init__(self, corpus: Corpus) -> None:
        stem = Stemmer.Stemmer("english").stemWord
        ids: dict[str, int] = {}
        parts = (() if word in ENGLISH else map(stem, WORD.findall(word)) for word in corpus.words)
        self._stems = Ragged.from_rows([[ids.setdefault(part, len(ids)) for part in word] for word in parts])
        self.corpus, self._size = corpus, len(ids)
        self._papers = self._sets(corpus.title_tokens, corpus.abstract_tokens)

    def queries(self, contexts: NDArray[np.integer]) -> Ragged:
        """The sets of (citing title, citing abstract, context) of contexts [Q]."""
        queries = Queries.from_contexts(self.corpus, contexts)
        return self._sets(*(queries.words(field) for field in ("title", "abstract", "context")))

    def jaccard(self, sets: Ragged, papers: NDArray[np.integer]) -> NDArray[np.float64]:
        """Sets of queries [Q] and rows of papers [Q, k] (-1: none) -> [Q, k], 0 for missing papers."""
        shared, asked = np.zeros(papers.shape, np.int64), np.zeros(self._size, np.bool_)
        for query, (stems, row) in enumerate(zip(sets, np.maximum(papers, 0), strict=True)):
            asked[stems] = True
            there = self._papers.take(row)
            shared[query] = sums_of_ranges(asked[there.values].astype(np.int64), there.offsets)
            asked[stems] = False
        union = sets.lengths[:, None] + self._papers.lengths[np.maximum(papers, 0)] - shared
        return np.where(papers >= 0, shared / np.maximum(union, 1), 0.0)

    def _sets(self, *columns: Ragged) -> Ragged:
        """Return the set of stems of each row over all columns, computed in chunks to bound memory."""
        found, sizes = [], []
        for start in range(0, len(columns[0]), ROW_CHUNK):
            part = np.arange(start, min(start + ROW_CHUNK, len(columns[0])))
            words = [column.take(part) for column in columns]
            row = np.concatenate([np.repeat(np.arange(len(part)), column.lengths) for column in words])
            stems = self._stems.take(np.concatenate([column.values for column in words]))
            keys = np.unique(np.repeat(row, stems.lengths) * self._size + stems.values)
            found.append((keys % max(self._size, 1)).astype(np.int32))
            sizes.append(np.bincount(keys // max(self._size, 1), minlength=len(part)))
        stems_of_rows = np.concatenate([np.empty(0, np.int32), *found])
        return Ragged(stems_of_rows, offsets_of(np.concatenate([np.empty(0, np.int64), *sizes])))
