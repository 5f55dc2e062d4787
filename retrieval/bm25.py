"""BM25 over titles and abstracts (Robertson and Zaragoza 2009), in the variants of Kamphuis et al. 2020."""

from __future__ import annotations

import copy
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, csr_matrix, vstack

from citerec.datasets.columns import Ragged, concat_ranges, load_ragged, offsets_of, save_arrays, save_ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.errors import InputError
from citerec.datasets.records import TRAIN
from citerec.datasets.settings import check_count
from citerec.retrieval.arrays import Floats, Mask, Rows, load_arrays
from citerec.retrieval.base import Ranking, Retriever, empty_rankings, small_change
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import QUERY_FIELDS, check_fields
from citerec.retrieval.terms import KEY_TERMS, PAPERS_PER_BATCH, KeyTerms, Terms, tokenizer

Saturation = Callable[[Floats, Floats, float, float], Floats]
"""(term frequency, b * text length / average length, k1, b) to the term frequency component."""


def _robertson(tf: Floats, length: Floats, k1: float, b: float) -> Any:
    return tf / (k1 * ((1 - b) + length) + tf)


def _atire(tf: Floats, length: Floats, k1: float, b: float) -> Any:
    return (tf * (k1 + 1)) / (tf + k1 * (1 - b + length))


def _bm25l(tf: Floats, length: Floats, k1: float, b: float) -> Any:
    """Minus the score of a text without the term, a constant that changes no ranking."""
    normalised, delta = tf / (1 - b + length), 0.5
    absent = np.float32(((k1 + 1) * delta) / (k1 + delta))
    return ((k1 + 1) * (normalised + delta)) / (k1 + normalised + delta) - absent


# Inverse document frequency of a term in n of N texts.
IDF: dict[str, Callable[[int, int], float]] = {
    "lucene": lambda n, N: math.log(1 + (N - n + 0.5) / (n + 0.5)),
    "robertson": lambda n, N: math.log(max((N - n + 0.5) / (n + 0.5), 1)),
    "atire": lambda n, N: math.log(N / n),
    "bm25l": lambda n, N: math.log((N + 1) / (n + 0.5)),
}
METHODS: dict[str, tuple[Saturation, str]] = {
    "lucene": (_robertson, "lucene"),
    "okapi": (_atire, "lucene"),
    "robertson": (_robertson, "robertson"),
    "atire": (_atire, "atire"),
    "bm25l": (_bm25l, "bm25l"),
}
"""The variants (Kamphuis et al. 2020, table 1); `okapi` is the formula of Gu et al. 2022: lucene * (k1 + 1).

bm25+ would rank like atire: it adds the same constant to papers with and without the term."""


@dataclass(frozen=True)
class Formula:
    """A variant and its parameters."""

    method: str
    k1: float
    b: float

    def idf(self, document_frequency: NDArray[np.integer], texts: int) -> Floats:
        """Inverse document frequencies of terms [T]; 0 for terms in no text."""
        idf = IDF[METHODS[self.method][1]]
        unique, inverse = np.unique(document_frequency, return_inverse=True)
        return np.array([idf(n, texts) if n else 0 for n in unique.tolist()], np.float32)[inverse]

    def tf_weights(self, counts: csc_matrix, lengths: Floats, average: float) -> Floats:
        """The term frequency component of each count, before IDF; lengths: of the texts."""
        length = self.b * lengths[counts.indices] / average
        return METHODS[self.method][0](counts.data, length, self.k1, self.b)


ADDS_PER_LOOKUP = 16
"""Scores that can be added in the time of one lookup."""


class Postings:
    """Precomputed contributions of each term to the score of each paper, as in bm25s (Lù 2024).

    compiled: add scores in a loop compiled by Numba (compiling takes half a second) instead of SciPy.
    """

    PARTS = ("data", "indices", "indptr")

    def __init__(self, matrix: csc_matrix, compiled: bool, average: float, changed: int = 0) -> None:
        """matrix: float32 [papers, T]. average: length of a text, computed `changed` changed texts ago."""
        self._matrix, self._compiled, self._average, self.changed = matrix, compiled, average, changed
        if compiled:
            self.scores(np.zeros(1, np.int32), np.zeros(1, np.float32))

    @classmethod
    def from_counts(cls, counts: list[csc_matrix], formula: Formula, compiled: bool) -> Postings:
        """Build from batches of term counts [texts, T]; empties the list to save memory."""
        lengths = [np.asarray(part.sum(axis=1)).ravel() for part in counts]
        average = float(np.concatenate(lengths).mean(dtype=np.float64))
        total = sum(map(len, lengths))
        frequency = np.array([np.diff(part.indptr) for part in counts]).sum(axis=0, dtype=np.int64)
        idf, indptr = formula.idf(frequency, total), offsets_of(frequency)
        data, indices = np.empty(indptr[-1], np.float32), np.empty(indptr[-1], np.int32)
        next_free, texts = indptr[:-1].copy(), 0
        for length in lengths:
            part = counts.pop(0)
            per_term = np.diff(part.indptr)
            positions = np.repeat(next_free - part.indptr[:-1], per_term) + np.arange(part.nnz)
            data[positions] = formula.tf_weights(part, length, average) * np.repeat(idf, per_term)
            indices[positions] = part.indices + np.int32(texts)
            next_free += per_term
            texts += len(length)
        return cls(csc_matrix((data, indices, indptr), shape=(total, len(frequency))), compiled, average)

    def with_texts(self, kept: Rows, counts: csc_matrix, changed: int, formula: Formula) -> Postings:
        """Texts `kept`, ascending, followed by new ones [n, T']. The IDF of known terms stays the same."""
        data, indices, indptr = (getattr(self._matrix, part) for part in self.PARTS)
        texts, terms = self._matrix.shape[0], counts.shape[1]
        old, new = np.pad(np.diff(indptr), (0, terms + 1 - len(indptr))), np.diff(counts.indptr)
        idf = formula.idf(np.where(old, old, new), texts)
        if len(kept) < texts:
            new_row = np.full(texts, -1, np.int32)
            new_row[kept] = np.arange(len(kept), dtype=np.int32)
            indices = new_row[indices]
            stay = indices >= 0
            data, indices, indptr = data[stay], indices[stay], offsets_of(stay)[indptr]
            old = np.pad(np.diff(indptr), (0, terms + 1 - len(indptr)))
        merged = offsets_of(old + new)
        is_new = np.ones(merged[-1], np.bool_)
        is_new[concat_ranges(merged[:-1], merged[:-1] + old)[0]] = False
        length = np.asarray(counts.sum(axis=1)).ravel()
        parts = np.empty(len(is_new), np.float32), np.empty(len(is_new), np.int32)
        parts[0][~is_new], parts[1][~is_new] = data, indices
        parts[0][is_new] = formula.tf_weights(counts, length, self._average) * np.repeat(idf, new)
        parts[1][is_new] = counts.indices + len(kept)
        matrix = csc_matrix((*parts, merged), shape=(len(kept) + len(length), terms))
        return Postings(matrix, self._compiled, self._average, changed)

    @property
    def nbytes(self) -> int:
        return sum(int(getattr(self._matrix, part).nbytes) for part in self.PARTS)

    def scores(
        self, terms: NDArray[np.int32], weights: Floats, papers: NDArray[np.integer] | None = None
    ) -> Floats:
        """Scores of all papers [P], or of some [K]; terms [n]: distinct; weights [n]: their query counts."""
        matrix = self._matrix
        if papers is not None:
            postings = int((matrix.indptr[terms + 1] - matrix.indptr[terms]).sum())
            if not self._compiled or postings < ADDS_PER_LOOKUP * len(terms) * len(papers):
                return self.scores(terms, weights)[papers]
            scores = np.zeros(len(papers), np.float32)
            _look_up(matrix.data, matrix.indices, matrix.indptr, terms, weights, papers, scores)
            return scores
        if not self._compiled:
            return np.asarray(matrix[:, terms] @ weights)
        scores = np.zeros(matrix.shape[0], np.float32)
        _add(matrix.data, matrix.indices, matrix.indptr, terms, weights, scores)
        return scores

    def save(self, folder: Path) -> None:
        save_arrays(folder, **{f"{part}.csc.index": getattr(self._matrix, part) for part in self.PARTS})
        save_arrays(folder, texts=np.array([self._average, self.changed]))

    @classmethod
    def load(cls, folder: Path, papers: int, compiled: bool) -> Postings:
        """Memory-map postings written by `save`."""
        data, indices, indptr = load_arrays(folder, *(f"{part}.csc.index" for part in cls.PARTS))
        matrix = csc_matrix((data, indices, indptr), shape=(papers, len(indptr) - 1))
        average, changed = load_arrays(folder, "texts")[0].tolist()
        return cls(matrix, compiled, average, int(changed))


@njit(nogil=True, cache=True)
def _add(data: Any, indices: Any, indptr: Any, terms: Any, weights: Any, scores: Any) -> None:
    for term, weight in zip(terms, weights):  # noqa: B905 (Numba has no `strict`)
        for i in range(indptr[term], indptr[term + 1]):
            scores[indices[i]] += weight * data[i]


@njit(nogil=True, cache=True)
def _look_up(
    data: Any, indices: Any, indptr: Any, terms: Any, weights: Any, papers: Any, scores: Any
) -> None:
    for term, weight in zip(terms, weights):  # noqa: B905
        start, end = indptr[term], indptr[term + 1]
        for k in range(len(papers)):
            i = start + np.searchsorted(indices[start:end], papers[k])
            if i < end and indices[i] == papers[k]:
                scores[k] += weight * data[i]


RANK_BM25_METHODS = tuple(method for method in METHODS if method != "bm25l")
"""Methods of backend=rank_bm25. Its BM25L counts term frequencies twice, unlike that of the others."""


class RankBM25:
    """rank_bm25's BM25Okapi, which scores every paper in Python: slow, a reference for the formulas.

    IDFs are those of the other back ends: rank_bm25's own is that of `robertson`, with a floor for terms in
    more than half of all texts.
    """

    def __init__(self, documents: Ragged, formula: Formula) -> None:
        """documents: rows of terms."""
        self._documents = documents
        import rank_bm25  # of the extra `train`

        self._index = rank_bm25.BM25Okapi((row.tolist() for row in documents), k1=formula.k1, b=formula.b)
        saturation, idf = METHODS[formula.method]
        # rank_bm25 always multiplies by k1 + 1, two of the variants do not.
        scale = 1.0 if saturation is _atire else 1 / (formula.k1 + 1)
        frequency = Counter(term for counts in self._index.doc_freqs for term in counts)
        total = len(documents)
        self._index.idf = {term: scale * IDF[idf](n, total) for term, n in frequency.items()}

    @classmethod
    def from_counts(cls, counts: list[csc_matrix], formula: Formula) -> RankBM25:
        """Build from batches of term counts [texts, T]."""
        matrix = vstack(counts, format="csr")
        repeats = matrix.data.astype(np.int64)
        return cls(Ragged(np.repeat(matrix.indices, repeats), offsets_of(repeats)[matrix.indptr]), formula)

    @property
    def nbytes(self) -> int:
        """Size of the frequency tables, without the integers that they share."""
        return sum(map(sys.getsizeof, self._index.doc_freqs))

    def scores(
        self, terms: NDArray[np.int32], weights: Floats, papers: NDArray[np.integer] | None = None
    ) -> Floats:
        """Like `Postings.scores`."""
        query = np.repeat(terms, weights.astype(np.int64)).tolist()
        with np.errstate(invalid="ignore"):  # rank_bm25 computes 0 / 0 for an empty text if b = 1
            scores = np.nan_to_num(self._index.get_scores(query), nan=0.0).astype(np.float32)
        return scores if papers is None else scores[papers]

    def save(self, folder: Path) -> None:
        """Write the documents, to rebuild the index from: rank_bm25 has no file format."""
        save_ragged(folder, "documents", self._documents)


BACKENDS = ("numpy", "numba", "rank_bm25")


class BM25(Retriever):
    """Ranks the papers that share a term with the query.

    method: `lucene`, `robertson`, `atire`, `bm25l`, or `okapi`, the formula of Gu et al. 2022.
    stemmer: a language of PyStemmer; stopwords: a language of bm25s; None for neither.
    query: any of `context`, `title` and `abstract` of the citing paper, and `key_terms` (retrieval.terms);
    repeated fields and terms count repeatedly.
    contexts: maximum number of training contexts to index with the title and abstract of the paper they cite.
    Other splits are never indexed. (A training query then finds its own context.)
    backend: `numpy`; `numba`, slightly faster; or `rank_bm25`, hundreds of times slower.
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
        for key, value, known in (("method", method, tuple(METHODS)), ("backend", backend, BACKENDS)):
            if value not in known:
                raise InputError(f"retriever.{key}: {value!r} is not one of {', '.join(known)}")
        check_count("retriever.contexts", contexts, 0)
        check_count("retriever.threads", threads)
        if backend == "rank_bm25" and method not in RANK_BM25_METHODS:
            variants = ", ".join(RANK_BM25_METHODS)
            raise InputError(f"retriever.method: backend=rank_bm25 has no {method!r}; choose {variants}")
        self._backend, self._contexts, self.threads = backend, contexts, threads
        self._formula = Formula(method, k1, b)
        self.set_parameters()
        self.query = check_fields(query, (*QUERY_FIELDS, KEY_TERMS))
        self._tokenisation = {"stemmer": stemmer, "stopwords": stopwords}
        tokenizer(**self._tokenisation)  # raises InputError for unknown values
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
        return {"library": library, **asdict(self._formula), **self._tokenisation, "contexts": self._contexts}

    def query_settings(self) -> dict[str, Any]:
        return {"query": list(self.query)}

    @property
    def index_bytes(self) -> int:
        return self._engine.nbytes + self._terms.nbytes

    @property
    def reads_contexts(self) -> bool:
        return self._contexts > 0

    def with_query_fields(self, query: Sequence[str]) -> BM25:
        """The same index with other query fields."""
        other = copy.copy(self)
        other.query, other._key_terms = check_fields(query, (*QUERY_FIELDS, KEY_TERMS)), None
        return other

    def supports(self, corpus: Corpus) -> bool:
        return not self._contexts or len(corpus.splits.get(TRAIN, ())) > 0

    def _prepare(self, corpus: Corpus) -> None:
        self._rows = np.flatnonzero(corpus.is_candidate).astype(np.int32)
        self._key_terms: KeyTerms | None = None

    def _index(self, corpus: Corpus) -> None:
        """Raises InputError if no candidate has a term, or contexts are to be indexed but cannot."""
        self._prepare(corpus)
        self._terms = Terms.from_words(corpus.words, **self._tokenisation)
        contexts = self._indexed_contexts(corpus)
        counts = [
            self._paper_counts(corpus, self._rows[start : start + PAPERS_PER_BATCH], contexts)
            for start in range(0, len(self._rows), PAPERS_PER_BATCH)
        ]
        if not any(part.nnz for part in counts):
            raise InputError(f"corpus {corpus.name}: no candidate has a word that BM25 can index")
        if self._backend == "rank_bm25":
            self._engine: RankBM25 | Postings = RankBM25.from_counts(counts, self._formula)
        else:
            self._engine = Postings.from_counts(counts, self._formula, self._backend == "numba")

    def _reindex(self, old: Corpus, corpus: Corpus, kept: Rows, folder: Path) -> None:
        """Keep the weights of unchanged papers if few papers have changed."""
        if self._backend != "rank_bm25" and old.is_candidate.all() and corpus.is_candidate.all():
            self._load(folder, old)
            assert isinstance(self._engine, Postings)
            changed = small_change(old, corpus, kept, self._engine.changed)
            if changed is not None:
                self._prepare(corpus)
                self._terms = self._terms.with_words(corpus.words[len(old.words) :], more_terms=True)
                contexts = self._indexed_contexts(corpus)
                counts = self._paper_counts(corpus, self._rows[len(kept) :], contexts)
                self._engine = self._engine.with_texts(kept, counts, changed, self._formula)
                return
        super()._reindex(old, corpus, kept, folder)

    def _indexed_contexts(self, corpus: Corpus) -> Ragged | None:
        """The contexts to index with each paper [P], if any."""
        if not self._contexts:
            return None
        if TRAIN not in corpus.splits:
            raise InputError(
                f"retriever.contexts: corpus {corpus.name} has no split {TRAIN!r}; set retriever.contexts=0"
            )
        return citing_contexts(corpus.splits[TRAIN], len(corpus.paper_ids), self._contexts)

    def _paper_counts(self, corpus: Corpus, papers: NDArray[np.int32], contexts: Ragged | None) -> csc_matrix:
        """Term counts of papers [n, T], with the contexts [P] that are indexed with them."""
        rows = np.arange(len(papers))
        columns = (corpus.title_tokens, corpus.abstract_tokens)
        counts = sum(self._terms.counts(rows, words.take(papers), len(papers)) for words in columns)
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
        return np.where(papers == queries.citing[:, None], np.float32(-np.inf), scores)

    def _score_each(
        self,
        queries: Queries,
        keep: Callable[[int, Floats], None],
        rows: NDArray[np.integer] | None = None,
    ) -> None:
        """Call keep(query, scores) for each query with a term: of all candidates [n], or of rows [Q, K]."""
        terms = self._query_terms(queries)

        def score(query: int) -> None:
            part = slice(terms.indptr[query], terms.indptr[query + 1])
            if part.start < part.stop:
                papers = None if rows is None else rows[query]
                keep(query, self._engine.scores(terms.indices[part], terms.data[part], papers))

        if self.threads == 1:
            for query in range(len(queries)):
                score(query)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(score, range(len(queries))))

    def _query_terms(self, queries: Queries) -> csr_matrix:
        """Term counts of queries, float32 [Q, T]."""
        terms = self._terms
        if queries.new_words:
            terms = terms.with_words(queries.new_words)
        counts = terms.query_counts(queries, self.query)
        if KEY_TERMS not in self.query:
            return counts
        if self._key_terms is None:
            self._key_terms = KeyTerms(self._terms, self.corpus, self._rows)
        return counts + self._key_terms.counts(queries, terms) * np.float32(self.query.count(KEY_TERMS))

    def _save(self, folder: Path) -> None:
        self._terms.save(folder)
        self._engine.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._prepare(corpus)
        self._terms = Terms.load(folder, **self._tokenisation)
        if self._backend == "rank_bm25":
            self._engine = RankBM25(load_ragged(folder, "documents"), self._formula)
        else:
            self._engine = Postings.load(folder, len(self._rows), self._backend == "numba")


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
