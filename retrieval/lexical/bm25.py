"""BM25 over titles and abstracts (Robertson and Zaragoza 2009), in the variants of Kamphuis et al. 2020."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.settings import check_count
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import TRAIN
from citerec.datasets.word_statistics import BM25_TERM
from citerec.retrieval.arrays import Counts, Floats, Mask, Rows
from citerec.retrieval.base import Ranking, Retriever, empty_rankings
from citerec.retrieval.lexical.bm25_formula import METHODS, Formula, Postings, RankBM25
from citerec.retrieval.lexical.terms import PAPERS_PER_BATCH, Terms, Tokenizer
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import check_fields

BACKENDS = ("numpy", "rank_bm25")


class BM25(Retriever):
    """Ranks the papers that share a term with the query.

    method: `lucene`, or `okapi`, the formula of Gu et al. 2022.
    stemmer: a language of PyStemmer; stopwords: one of terms.STOP_WORDS; None for neither.
    query: any of `context`, and `title` and `abstract` of the citing paper; repeated fields and terms count
    repeatedly.
    contexts: maximum number of training contexts to index with the title and abstract of the paper they cite.
    Other splits are never indexed. (A training query then finds its own context.)
    backend: `numpy`; or `rank_bm25`, hundreds of times slower.
    threads: number of search threads.
    """

    name = "bm25"
    per_pool = True
    tunable = ("k1", "b")

    def __init__(
        self,
        method: str = "lucene",
        k1: float = 1.2,
        b: float = 0.75,
        stemmer: str | None = "english",
        stopwords: str | None = "en",
        query: Sequence[str] = ("context", "title"),
        contexts: int = 0,
        backend: str = "numpy",
        threads: int = 1,
    ) -> None:
        """Raises InputError for an invalid value."""
        super().__init__()
        for key, value, choices in (("method", method, METHODS), ("backend", backend, BACKENDS)):
            if value not in choices:
                raise InputError(f"retriever.{key}: {value!r} is not one of {', '.join(choices)}")
        check_count("retriever.contexts", contexts, 0)
        check_count("retriever.threads", threads)
        self._backend, self._contexts, self.threads = backend, contexts, threads
        self.reads_contexts = contexts > 0
        self._formula = Formula(method, k1, b)
        self.set_parameters()
        self.query = check_fields(query)
        self.tokenisation = {"stemmer": stemmer, "stopwords": stopwords}
        Tokenizer(**self.tokenisation)  # raises InputError for unknown values
        if contexts:
            self.name = "bm25-contexts"

    def set_parameters(self, **values: Any) -> None:
        """Raises InputError for values that are out of range."""
        self._formula = replace(self._formula, **values)
        for key, most in (("k1", math.inf), ("b", 1.0)):
            value = getattr(self._formula, key)
            if not isinstance(value, int | float) or not 0 <= value <= most or math.isinf(value):
                raise InputError(f"retriever.{key}: {value!r} is not a number from 0 to {most}")
        if self._backend == "rank_bm25" and self._formula.k1 == 0:
            raise InputError("retriever.k1: backend=rank_bm25 divides by 0 with a k1 of 0")

    def settings(self) -> dict[str, Any]:
        library = "rank_bm25" if self._backend == "rank_bm25" else "bm25s"
        return {"library": library, **asdict(self._formula), **self.tokenisation, "contexts": self._contexts}

    def query_settings(self) -> dict[str, Any]:
        return {"query": list(self.query)}

    @property
    def index_bytes(self) -> int:
        return self._engine.nbytes + self._terms.nbytes

    def with_query_fields(self, query: Sequence[str]) -> BM25:
        """Return this index with other query fields."""
        other = copy.copy(self)
        other.query = check_fields(query)
        return other

    def supports(self, corpus: Corpus) -> bool:
        return not self._contexts or len(corpus.splits.get(TRAIN, ())) > 0

    def _prepare(self, corpus: Corpus) -> None:
        self._rows = np.flatnonzero(corpus.is_candidate).astype(np.int32)

    def _index(self, corpus: Corpus) -> None:
        """Raises InputError if no candidate has a term, or contexts are to be indexed but cannot."""
        self._terms = Terms.from_words(corpus.words, **self.tokenisation)
        counts = self._counts(corpus)
        if corpus.whole is None and not any(len(part.data) for part in counts):
            raise InputError(f"corpus {corpus.name}: no candidate has a word that BM25 can index")
        if self._backend == "rank_bm25":
            self._engine: RankBM25 | Postings = RankBM25(counts, self._formula)
        else:
            self._engine = Postings.from_counts(counts, self._formula, self._whole(corpus))

    def _whole(self, corpus: Corpus) -> tuple[NDArray[np.int64], int, float] | None:
        """Document frequencies [T], papers and average length of the collection that the papers are from."""
        if corpus.whole is None:
            return None
        whole = corpus.whole
        return whole.count(BM25_TERM, self._terms.names), whole.papers, whole.averages[BM25_TERM]

    def _counts(self, corpus: Corpus) -> list[Counts]:
        """Term counts of all candidates, in batches."""
        contexts = None
        if self._contexts:
            contexts = citing_contexts(corpus.split(TRAIN), len(corpus.paper_ids), self._contexts)
        return [
            self._paper_counts(corpus, self._rows[start : start + PAPERS_PER_BATCH], contexts)
            for start in range(0, len(self._rows), PAPERS_PER_BATCH)
        ]

    def _paper_counts(self, corpus: Corpus, papers: NDArray[np.int32], contexts: Ragged | None) -> Counts:
        """Term counts of papers [n, T], with the contexts [P] that are indexed with them."""
        rows = np.arange(len(papers))
        columns = (corpus.title_tokens, corpus.abstract_tokens)
        title, abstract = (self._terms.counts(rows, words.take(papers), len(papers)) for words in columns)
        counts = title + abstract
        if contexts is None:
            return counts
        citing = contexts.take(papers)
        words = corpus.context_tokens.take(citing.values)
        return counts + self._terms.counts(np.repeat(rows, citing.lengths), words, len(papers))

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        mask = None if allowed is None else allowed[self._rows].astype(np.float32)
        papers, scores = empty_rankings(len(queries), k)

        def keep(query: int, values: Floats) -> None:
            if mask is not None:
                values *= mask
            best = top_scores(values, k)
            papers[query, : len(best)], scores[query, : len(best)] = self._rows[best], values[best]

        self._score_each(queries, keep)
        return Ranking(papers, scores)

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        queries = Queries.from_contexts(self.corpus, queries)
        rows = np.searchsorted(self._rows, papers).clip(max=len(self._rows) - 1)
        indexed, scores = self._rows[rows] == papers, np.full(papers.shape, -np.inf, np.float32)

        def keep(query: int, values: Floats) -> None:
            scores[query] = np.where(indexed[query] & (values > 0), values, -np.inf)

        self._score_each(queries, keep, rows)
        return np.where(queries.is_own(papers), np.float32(-np.inf), scores)

    def _score_each(
        self, queries: Queries, keep: Callable[[int, Floats], None], rows: NDArray[np.integer] | None = None
    ) -> None:
        """Call keep(query, scores) for each query with a term: of all candidates [n], or of rows [Q, K]."""
        terms = self._terms.with_words(queries.new_words) if queries.new_words else self._terms
        counts = terms.query_counts(queries, self.query)

        def score(query: int) -> None:
            part = slice(counts.indptr[query], counts.indptr[query + 1])
            if part.start < part.stop:
                papers = None if rows is None else rows[query]
                keep(query, self._engine.scores(counts.indices[part], counts.data[part], papers))

        if self.threads == 1:
            for query in range(len(queries)):
                score(query)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(score, range(len(queries))))

    def _save(self, folder: Path) -> None:
        self._terms.save(folder)
        if isinstance(self._engine, Postings):
            self._engine.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._terms = Terms.load(folder, **self.tokenisation)
        if self._backend == "rank_bm25":  # which has no file format
            self._engine = RankBM25(self._counts(corpus), self._formula)
        else:
            self._engine = Postings.load(folder, len(self._rows))


def citing_contexts(split: Split, papers: int, most: int) -> Ragged:
    """The contexts of a split that cite each of the corpus's papers [P], at most `most`, evenly spaced."""
    cited = split.positives.values
    order = np.argsort(cited, kind="stable")
    contexts = np.repeat(split.contexts, split.positives.lengths)[order]
    counts = np.bincount(cited, minlength=papers)
    offsets = offsets_of(counts)
    rank = np.arange(len(contexts)) - np.repeat(offsets[:-1], counts)
    # Of m contexts, keep the `most` at which rank * most / m passes a whole number; all if m is smaller.
    m = np.maximum(np.repeat(counts, counts), most)
    kept = (rank + 1) * most // m > rank * most // m
    return Ragged(contexts[kept].astype(np.int32), offsets_of(np.minimum(counts, most)))


def top_scores(scores: Floats, k: int) -> Rows:
    """Indices of the k largest positive scores of [P], or of all if fewer; ties go to the first."""
    top = np.empty(0, np.int64)
    # Every 16th score nearly always gives a lower bound of the k largest, which leaves few to partition.
    sample = scores[::16]
    above = len(sample) - k // 8 - 32
    if above > 0 and (floor := np.partition(sample, above)[above]) > 0:
        top = np.flatnonzero(scores >= floor)
    if len(top) < k:
        top = np.flatnonzero(scores > 0)
    if len(top) <= k:
        return top
    values = scores[top]
    last = np.partition(values, len(top) - k)[len(top) - k]
    larger = top[values > last]
    return np.concatenate([larger, top[values == last][: k - len(larger)]])
