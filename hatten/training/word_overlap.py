"""Word overlap of queries and papers, by which positives are mined (Gu et al. 2022, section 4.3)."""

from __future__ import annotations

import re

import numpy as np
import Stemmer
from numpy.typing import NDArray
from scipy import sparse

from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.retrieval.queries import Queries

WORD = re.compile(r"\w+")
ROW_CHUNK = 1 << 16


class WordSets:
    """Sets of word stems of papers and queries as rows of sparse matrices.

    As in the authors' code: the corpus's words without NLTK's English stop words, split at everything but
    letters, digits and _. Theirs are lemmas.
    """

    def __init__(self, corpus: Corpus) -> None:
        from bm25s.stopwords import STOPWORDS_EN_PLUS  # NLTK's

        stem, stop = Stemmer.Stemmer("english").stemWord, frozenset(STOPWORDS_EN_PLUS)
        ids: dict[str, int] = {}
        parts = (() if word in stop else map(stem, WORD.findall(word)) for word in corpus.words)
        self._stems = Ragged.from_rows([[ids.setdefault(part, len(ids)) for part in word] for word in parts])
        self.corpus, self._size = corpus, len(ids)
        self._papers: sparse.csr_array = self._rows(corpus.title_tokens, corpus.abstract_tokens)
        self._sizes = np.diff(self._papers.indptr)

    def queries(self, contexts: NDArray[np.integer]) -> sparse.csr_array:
        """(citing title, citing abstract, context) of contexts -> [Q, stems]"""
        queries = Queries.from_contexts(self.corpus, contexts)
        return self._rows(*(queries.words(field) for field in ("title", "abstract", "context")))

    def jaccard(self, sets: sparse.csr_array, papers: NDArray[np.integer]) -> NDArray[np.float64]:
        """sets [Q, stems], papers [Q, k] rows of the corpus (-1: none) -> [Q, k], 0 for missing papers"""
        rows = np.repeat(np.arange(len(papers)), papers.shape[1])
        flat = np.maximum(papers.ravel(), 0)
        shared = sets[rows].multiply(self._papers[flat]).sum(axis=1)
        union = np.diff(sets.indptr)[rows] + self._sizes[flat] - shared
        index = np.where(papers.ravel() >= 0, shared / np.maximum(union, 1), 0.0)
        return np.asarray(index.reshape(papers.shape))

    def _rows(self, *columns: Ragged) -> sparse.csr_array:
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
        columns_found = np.concatenate([np.empty(0, np.int32), *found])
        ends = offsets_of(np.concatenate([np.empty(0, np.int64), *sizes]))
        ones = np.ones(len(columns_found), np.float32)
        return sparse.csr_array((ones, columns_found, ends), shape=(len(columns[0]), self._size))
