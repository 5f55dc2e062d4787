"""BM25 over titles and abstracts (Robertson and Zaragoza 2009), by bm25s (Lù 2024) or rank_bm25."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_matrix, csr_matrix, vstack

from datasets.errors import InputError
from datasets.ragged import Ragged, offsets_of
from datasets.schema import TRAIN
from datasets.store import Corpus, Split
from retrieval.base import Retriever
from retrieval.key_terms import KEY_TERMS, KeyTerms
from retrieval.okapi import RANK_BM25_METHODS, Okapi, documents
from retrieval.postings import METHODS, Postings, index_counts
from retrieval.query_text import QUERY_FIELDS, check_fields
from retrieval.ranking import Ranking, nothing
from retrieval.terms import Terms, tokenizer

BACKENDS = ("numpy", "numba", "rank_bm25")

PAPERS_AT_ONCE = 1 << 16
"""Papers whose words are counted at a time."""


class BM25(Retriever):
    """Papers without a term of the query are not ranked.

    method: `lucene`, `robertson`, `atire`, `bm25l`, or `okapi`, the formula of Gu et al. 2022.
    stemmer: a language of PyStemmer; stopwords: a language of bm25s; None for neither.
    query: of `context`, `title` and `abstract` of the citing paper, and `key_terms`, the few words of the
    latter two that tell most (retrieval.key_terms); a field that is named twice counts twice.
    count_terms: a term that occurs twice in the query counts twice.
    contexts: how many training contexts that cite a paper, at most, are indexed with its title and abstract.
    Other splits never enter. What a training query finds is no measure then: its own context is there too.
    backend: `numpy`; `numba`, a little faster; or `rank_bm25`, hundreds of times slower.
    threads: that search at the same time.
    """

    name = "bm25"

    def __init__(
        self,
        method: str = "lucene",
        k1: float = 1.2,
        b: float = 0.75,
        stemmer: str | None = "english",
        stopwords: str | None = "en",
        query: Sequence[str] = ("context", "title"),
        count_terms: bool = True,
        contexts: int = 0,
        backend: str = "numpy",
        threads: int = 1,
    ) -> None:
        """Raises InputError for a value that is not one of those above."""
        super().__init__()
        _check("method", method, tuple(METHODS))
        _check("backend", backend, BACKENDS)
        _check_weights(k1, b)
        for key, number, least in (("contexts", contexts, 0), ("threads", threads, 1)):
            if type(number) is not int or number < least:
                raise InputError(f"retriever.{key}: {number!r} is no whole number from {least} on")
        if backend == "rank_bm25":
            _check_rank_bm25(method, k1)
        self.query = check_fields(query, (*QUERY_FIELDS, KEY_TERMS))
        self.count_terms, self.threads = count_terms, threads
        self._key_terms: KeyTerms | None = None
        self._tokenizer = tokenizer(stemmer, stopwords)
        self._method, self._k1, self._b, self._backend = method, k1, b, backend
        self._contexts = contexts
        if contexts:
            self.name = "bm25-contexts"
        self._words = {"stemmer": stemmer, "stopwords": stopwords}
        self._terms_of: list[str] = []

    def weigh(self, k1: float, b: float) -> None:
        """Take other parameters, for what is indexed from now on; InputError for values out of range."""
        _check_weights(k1, b)
        if self._backend == "rank_bm25":
            _check_rank_bm25(self._method, k1)
        self._k1, self._b = k1, b

    def settings(self) -> dict[str, Any]:
        return {
            "library": "rank_bm25" if self._backend == "rank_bm25" else "bm25s",
            "method": self._method,
            "k1": self._k1,
            "b": self._b,
            **self._words,
            "contexts": self._contexts,
        }

    def asking(self) -> dict[str, Any]:
        return {"query": list(self.query), "count_terms": self.count_terms}

    @property
    def index_bytes(self) -> int:
        return self._engine.nbytes + self._terms.nbytes

    def _index(self, corpus: Corpus) -> None:
        """Raises InputError if no candidate has a term, or if contexts lack a training split to be of."""
        self._rows, self._key_terms = np.flatnonzero(corpus.is_candidate).astype(np.int32), None
        if self._terms_of is not corpus.words:  # else it is another pool of the same papers
            self._terms, self._terms_of = Terms.of(corpus.words, self._tokenizer), corpus.words
            self._tokenizer.reset_vocab()  # its dictionaries would outlive what they were for
        cited = self._cited(corpus) if self._contexts else None
        counts = [
            self._paper_counts(corpus, self._rows[start : start + PAPERS_AT_ONCE], cited)
            for start in range(0, len(self._rows), PAPERS_AT_ONCE)
        ]
        if not any(part.nnz for part in counts):
            raise InputError(f"corpus {corpus.name}: no candidate has a word that BM25 could index")
        options = (self._method, self._k1, self._b)
        if self._backend == "rank_bm25":
            self._engine: Okapi | Postings = Okapi(documents(vstack(counts, format="csr")), *options)
        else:
            self._engine = Postings(index_counts(counts, *options), self._backend == "numba")

    def _cited(self, corpus: Corpus) -> Ragged:
        if TRAIN not in corpus.splits:
            raise InputError(
                f"retriever.contexts: corpus {corpus.name} has no split {TRAIN!r} to take them of; set 0"
            )
        return cited_in(corpus.splits[TRAIN], len(corpus.paper_ids), self._contexts)

    def _paper_counts(
        self, corpus: Corpus, papers: npt.NDArray[np.int32], cited: Ragged | None
    ) -> csc_matrix:
        """Terms of papers [n, T]."""
        rows = np.arange(len(papers))
        columns = (corpus.title_tokens, corpus.abstract_tokens)
        counts = sum(self._terms.counts(rows, words.take(papers), len(papers)) for words in columns)
        if cited is None:
            return counts
        contexts = cited.take(papers)
        words = corpus.context_tokens.take(contexts.values)
        of_paper = np.repeat(rows, contexts.lengths)
        return counts + self._terms.counts(of_paper, words, len(papers))

    def _search(
        self, contexts: npt.NDArray[np.int64], k: int, allowed: npt.NDArray[np.bool_] | None
    ) -> Ranking:
        queries = self._queries(contexts)
        if not self.count_terms:
            queries.data[:] = 1
        mask = None if allowed is None else allowed[self._rows].astype(np.float32)
        papers, scores = nothing(len(contexts), k)

        def search(query: int) -> None:
            part = slice(queries.indptr[query], queries.indptr[query + 1])
            if part.start == part.stop:
                return
            values = self._engine.scores(queries.indices[part], queries.data[part])
            if mask is not None:
                values *= mask
            best = largest(values, k)
            papers[query, : len(best)], scores[query, : len(best)] = self._rows[best], values[best]

        if self.threads == 1:
            for query in range(len(contexts)):
                search(query)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(search, range(len(contexts))))
        return Ranking(papers, scores)

    def _queries(self, contexts: npt.NDArray[np.int64]) -> csr_matrix:
        """The terms of queries, float32 [Q, T]."""
        queries = self._terms.query_counts(self.corpus, contexts, self.query)
        if KEY_TERMS not in self.query:
            return queries
        if self._key_terms is None:
            self._key_terms = KeyTerms(self._terms, self.corpus, self._rows)
        return queries + self._key_terms.counts(contexts) * np.float32(self.query.count(KEY_TERMS))

    def _save(self, folder: Path) -> None:
        self._terms.save(folder)
        self._engine.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._rows, self._key_terms = np.flatnonzero(corpus.is_candidate).astype(np.int32), None
        if self._backend == "rank_bm25":
            self._engine = Okapi.load(folder, self._method, self._k1, self._b)
        else:
            self._engine = Postings.load(folder, self._backend == "numba")
        self._terms, self._terms_of = Terms.load(folder), []


def cited_in(split: Split, papers: int, most: int) -> Ragged:
    """The contexts of a split that cite each of the corpus's papers [P], at most `most`, evenly taken."""
    cited = split.positives.values
    order = np.argsort(cited, kind="stable")
    contexts = np.repeat(split.contexts, split.positives.lengths)[order]
    all_of = np.bincount(cited, minlength=papers)
    offsets = offsets_of(all_of)
    place = np.arange(len(contexts)) - np.repeat(offsets[:-1], all_of)
    # Of m contexts those where place * most / m passes a whole number, which are `most`; all if m is fewer.
    m = np.maximum(np.repeat(all_of, all_of), most)
    kept = (place + 1) * most // m > place * most // m
    return Ragged(contexts[kept].astype(np.int32), offsets_of(np.minimum(all_of, most)))


def largest(scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
    """Places of the k largest scores above 0 of [P], or all if there are fewer; of equals the first."""
    there = np.empty(0, np.int64)
    # Every 16th score tells what the k largest are above, nearly always: then few are left to be sorted out.
    sample = scores[::16]
    above = len(sample) - k // 8 - 32
    if above > 0 and (floor := np.partition(sample, above)[above]) > 0:
        there = np.flatnonzero(scores >= floor)
    if len(there) < k:
        there = np.flatnonzero(scores > 0)
    if len(there) <= k:
        return there
    values = scores[there]
    last = np.partition(values, len(there) - k)[len(there) - k]
    more = there[values > last]
    return np.concatenate([more, there[values == last][: k - len(more)]])


def _check(key: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"retriever.{key}: {value!r} is not one of {', '.join(known)}")


def _check_weights(k1: float, b: float) -> None:
    for key, value, most in (("k1", k1, math.inf), ("b", b, 1.0)):
        if not isinstance(value, int | float) or not 0 <= value <= most or math.isinf(value):
            raise InputError(f"retriever.{key}: {value!r} is no number from 0 to {most}")


def _check_rank_bm25(method: str, k1: float) -> None:
    if method not in RANK_BM25_METHODS:
        known = ", ".join(RANK_BM25_METHODS)
        raise InputError(f"retriever.method: backend=rank_bm25 has no {method!r}; it has {known}")
    if k1 == 0:
        raise InputError("retriever.k1: backend=rank_bm25 divides by 0 with a k1 of 0")
