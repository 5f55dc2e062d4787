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
import rank_bm25
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, csr_matrix, vstack

from datasets.columns import Ragged, load_ragged, offsets_of, ranges, save_arrays, save_ragged
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.records import TRAIN
from datasets.settings import check_count
from retrieval.arrays import Floats, Mask, Rows, load_arrays
from retrieval.base import Ranking, Retriever, empty_rankings, small_change
from retrieval.queries import Queries
from retrieval.settings import QUERY_FIELDS, check_fields
from retrieval.terms import KEY_TERMS, PAPERS_AT_ONCE, KeyTerms, Terms, tokenizer

Saturation = Callable[[Floats, Floats, float, float], Floats]
"""How often a term stands in a text, given the text's length as a share of the average."""


def _robertson(times: Floats, length: Floats, k1: float, b: float) -> Any:
    return times / (k1 * ((1 - b) + length) + times)


def _atire(times: Floats, length: Floats, k1: float, b: float) -> Any:
    return (times * (k1 + 1)) / (times + k1 * (1 - b + length))


def _bm25l(times: Floats, length: Floats, k1: float, b: float) -> Any:
    """Less what a text without the term gets: adding the same to every text would change no ranking."""
    often, delta = times / (1 - b + length), 0.5
    absent = np.float32(((k1 + 1) * delta) / (k1 + delta))
    return ((k1 + 1) * (often + delta)) / (k1 + often + delta) - absent


# How rare a term is that stands in n of N texts.
RARITY: dict[str, Callable[[int, int], float]] = {
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

bm25+ would rank as atire does: its extra share goes to papers with and without the term alike."""


@dataclass(frozen=True)
class Formula:
    """A variant with its constants."""

    method: str
    k1: float
    b: float

    def rarity(self, texts_with: NDArray[np.integer], texts: int) -> Floats:
        """Of terms [T] that stand in so many of all texts; 0 for those in none."""
        rarity = RARITY[METHODS[self.method][1]]
        few, which = np.unique(texts_with, return_inverse=True)
        return np.array([rarity(n, texts) if n else 0 for n in few.tolist()], np.float32)[which]

    def shares(self, counts: csc_matrix, lengths: Floats, average: float) -> Floats:
        """What each count adds to a score, but for the rarity of its term; lengths: of the texts."""
        length = self.b * lengths[counts.indices] / average
        return METHODS[self.method][0](counts.data, length, self.k1, self.b)


ADDED = 16
"""Scores that are added up in the time that one is looked up."""


class Postings:
    """What each term adds to the score of each paper, worked out beforehand as bm25s does (Lù 2024).

    compiled: scores are added by a loop that Numba compiles (for half a second), else by SciPy.
    """

    PARTS = ("data", "indices", "indptr")

    def __init__(self, matrix: csc_matrix, compiled: bool, average: float, changed: int = 0) -> None:
        """matrix: float32 [papers, T]; average: length of a text; changed: texts since that was taken."""
        self._matrix, self._compiled, self._average, self.changed = matrix, compiled, average, changed
        if compiled:
            self.scores(np.zeros(1, np.int32), np.zeros(1, np.float32))

    @classmethod
    def of(cls, counts: list[csc_matrix], formula: Formula, compiled: bool) -> Postings:
        """Of texts, whose counts [texts, T] are given in parts; they are used up, to save memory."""
        lengths = [np.asarray(part.sum(axis=1)).ravel() for part in counts]
        average = float(np.concatenate(lengths).mean(dtype=np.float64))
        total = sum(map(len, lengths))
        texts_with = np.array([np.diff(part.indptr) for part in counts]).sum(axis=0, dtype=np.int64)
        rarity, indptr = formula.rarity(texts_with, total), offsets_of(texts_with)
        data, indices = np.empty(indptr[-1], np.float32), np.empty(indptr[-1], np.int32)
        next_place, texts = indptr[:-1].copy(), 0
        for length in lengths:
            part = counts.pop(0)
            of_term = np.diff(part.indptr)
            places = np.repeat(next_place - part.indptr[:-1], of_term) + np.arange(part.nnz)
            data[places] = formula.shares(part, length, average) * np.repeat(rarity, of_term)
            indices[places] = part.indices + np.int32(texts)
            next_place += of_term
            texts += len(length)
        return cls(csc_matrix((data, indices, indptr), shape=(total, len(texts_with))), compiled, average)

    def with_texts(self, kept: Rows, counts: csc_matrix, changed: int, formula: Formula) -> Postings:
        """Texts `kept`, ascending, then further ones [n, T']. How rare known terms are stays as it was."""
        data, indices, indptr = (getattr(self._matrix, part) for part in self.PARTS)
        texts, terms = self._matrix.shape[0], counts.shape[1]
        of_old, of_new = np.pad(np.diff(indptr), (0, terms + 1 - len(indptr))), np.diff(counts.indptr)
        rarity = formula.rarity(np.where(of_old, of_old, of_new), texts)
        if len(kept) < texts:
            place = np.full(texts, -1, np.int32)
            place[kept] = np.arange(len(kept), dtype=np.int32)
            indices = place[indices]
            stay = indices >= 0
            data, indices, indptr = data[stay], indices[stay], offsets_of(stay)[indptr]
            of_old = np.pad(np.diff(indptr), (0, terms + 1 - len(indptr)))
        merged = offsets_of(of_old + of_new)
        new = np.ones(merged[-1], np.bool_)
        new[ranges(merged[:-1], merged[:-1] + of_old)[0]] = False
        length = np.asarray(counts.sum(axis=1)).ravel()
        parts = np.empty(len(new), np.float32), np.empty(len(new), np.int32)
        parts[0][~new], parts[1][~new] = data, indices
        parts[0][new] = formula.shares(counts, length, self._average) * np.repeat(rarity, of_new)
        parts[1][new] = counts.indices + len(kept)
        matrix = csc_matrix((*parts, merged), shape=(len(kept) + len(length), terms))
        return Postings(matrix, self._compiled, self._average, changed)

    @property
    def nbytes(self) -> int:
        return sum(int(getattr(self._matrix, part).nbytes) for part in self.PARTS)

    def scores(
        self, terms: NDArray[np.int32], weights: Floats, places: NDArray[np.integer] | None = None
    ) -> Floats:
        """Of every paper [P], or of some [K]; terms [n], each once, weights [n]: how often they stand in the
        query."""
        matrix = self._matrix
        if places is not None:
            there = int((matrix.indptr[terms + 1] - matrix.indptr[terms]).sum())
            if not self._compiled or there < ADDED * len(terms) * len(places):
                return self.scores(terms, weights)[places]
            scores = np.zeros(len(places), np.float32)
            _look_up(matrix.data, matrix.indices, matrix.indptr, terms, weights, places, scores)
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
        """What `save` wrote, mapped."""
        data, indices, indptr = load_arrays(folder, *(f"{part}.csc.index" for part in cls.PARTS))
        matrix = csc_matrix((data, indices, indptr), shape=(papers, len(indptr) - 1))
        average, changed = load_arrays(folder, "texts")[0].tolist()
        return cls(matrix, compiled, average, int(changed))


@njit(nogil=True, cache=True)
def _add(data: Any, indices: Any, indptr: Any, terms: Any, weights: Any, scores: Any) -> None:
    for term, weight in zip(terms, weights):  # noqa: B905 (Numba has no `strict`)
        for place in range(indptr[term], indptr[term + 1]):
            scores[indices[place]] += weight * data[place]


@njit(nogil=True, cache=True)
def _look_up(
    data: Any, indices: Any, indptr: Any, terms: Any, weights: Any, places: Any, scores: Any
) -> None:
    for term, weight in zip(terms, weights):  # noqa: B905
        start, end = indptr[term], indptr[term + 1]
        for k in range(len(places)):
            at = start + np.searchsorted(indices[start:end], places[k])
            if at < end and indices[at] == places[k]:
                scores[k] += weight * data[at]


RANK_BM25_METHODS = tuple(method for method in METHODS if method != "bm25l")
"""rank_bm25's BM25L counts a term's frequency twice, so that it is no variant of the others' bm25l."""


class RankBM25:
    """rank_bm25's BM25Okapi, which scores every paper in Python: slow, and a second opinion on the formulas.

    Terms are as rare as in the other back ends: its own rarity is that of `robertson`, with a floor where a
    term stands in more than half of all texts.
    """

    def __init__(self, documents: Ragged, formula: Formula) -> None:
        """documents: rows of terms."""
        self._documents = documents
        self._index = rank_bm25.BM25Okapi((row.tolist() for row in documents), k1=formula.k1, b=formula.b)
        saturation, rarity = METHODS[formula.method]
        # Its scores always have the factor k1 + 1, which two of the variants do without.
        scale = 1.0 if saturation is _atire else 1 / (formula.k1 + 1)
        texts_with = Counter(term for times in self._index.doc_freqs for term in times)
        total = len(documents)
        self._index.idf = {term: scale * RARITY[rarity](n, total) for term, n in texts_with.items()}

    @classmethod
    def of(cls, counts: list[csc_matrix], formula: Formula) -> RankBM25:
        """Of texts, whose counts [texts, T] are given in parts."""
        whole = vstack(counts, format="csr")
        often = whole.data.astype(np.int64)
        return cls(Ragged(np.repeat(whole.indices, often), offsets_of(often)[whole.indptr]), formula)

    @property
    def nbytes(self) -> int:
        """Of the tables of frequencies; what they hold is shared between them."""
        return sum(map(sys.getsizeof, self._index.doc_freqs))

    def scores(
        self, terms: NDArray[np.int32], weights: Floats, places: NDArray[np.integer] | None = None
    ) -> Floats:
        """As Postings.scores."""
        query = np.repeat(terms, weights.astype(np.int64)).tolist()
        with np.errstate(invalid="ignore"):  # it takes 0 / 0 for an empty text where b is 1
            scores = np.nan_to_num(self._index.get_scores(query), nan=0.0).astype(np.float32)
        return scores if places is None else scores[places]

    def save(self, folder: Path) -> None:
        """Write the documents, from which it is rebuilt: rank_bm25 has no files of its own."""
        save_ragged(folder, "documents", self._documents)


BACKENDS = ("numpy", "numba", "rank_bm25")


class BM25(Retriever):
    """Ranks the papers that share a term with the query.

    method: `lucene`, `robertson`, `atire`, `bm25l`, or `okapi`, the formula of Gu et al. 2022.
    stemmer: a language of PyStemmer; stopwords: a language of bm25s; None for neither.
    query: of `context`, `title` and `abstract` of the citing paper, and `key_terms` (retrieval.terms); a
    field that is named twice counts twice, and so does a term.
    contexts: how many training contexts that cite a paper, at most, are indexed with its title and abstract.
    Other splits never enter. (A training query then finds its own context.)
    backend: `numpy`; `numba`, a little faster; or `rank_bm25`, hundreds of times slower.
    threads: that search at the same time.
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
        """Raises InputError for a value that is not one of those above."""
        super().__init__()
        for key, value, known in (("method", method, tuple(METHODS)), ("backend", backend, BACKENDS)):
            if value not in known:
                raise InputError(f"retriever.{key}: {value!r} is not one of {', '.join(known)}")
        check_count("retriever.contexts", contexts, 0)
        check_count("retriever.threads", threads)
        if backend == "rank_bm25" and method not in RANK_BM25_METHODS:
            variants = ", ".join(RANK_BM25_METHODS)
            raise InputError(f"retriever.method: backend=rank_bm25 has no {method!r}; it has {variants}")
        self._backend, self._contexts, self.threads = backend, contexts, threads
        self._formula = Formula(method, k1, b)
        self.set_parameters()
        self.query = check_fields(query, (*QUERY_FIELDS, KEY_TERMS))
        self._words = {"stemmer": stemmer, "stopwords": stopwords}
        tokenizer(**self._words)  # raises for others than it knows
        if contexts:
            self.name = "bm25-contexts"

    def set_parameters(self, **values: Any) -> None:
        """Raises InputError for values out of range."""
        self._formula = replace(self._formula, **values)
        for key, most in (("k1", math.inf), ("b", 1.0)):
            value = getattr(self._formula, key)
            if not isinstance(value, int | float) or not 0 <= value <= most or math.isinf(value):
                raise InputError(f"retriever.{key}: {value!r} is not a number from 0 to {most}")
        if self._backend == "rank_bm25" and self._formula.k1 == 0:
            raise InputError("retriever.k1: backend=rank_bm25 divides by 0 with a k1 of 0")

    def settings(self) -> dict[str, Any]:
        library = "rank_bm25" if self._backend == "rank_bm25" else "bm25s"
        return {"library": library, **asdict(self._formula), **self._words, "contexts": self._contexts}

    def query_settings(self) -> dict[str, Any]:
        return {"query": list(self.query)}

    @property
    def index_bytes(self) -> int:
        return self._engine.nbytes + self._terms.nbytes

    @property
    def reads_contexts(self) -> bool:
        return self._contexts > 0

    def asked_by(self, query: Sequence[str]) -> BM25:
        """The same index, asked by other fields of queries."""
        other = copy.copy(self)
        other.query, other._key_terms = check_fields(query, (*QUERY_FIELDS, KEY_TERMS)), None
        return other

    def fits(self, corpus: Corpus) -> bool:
        return not self._contexts or len(corpus.splits.get(TRAIN, ())) > 0

    def _open(self, corpus: Corpus) -> None:
        self._rows = np.flatnonzero(corpus.is_candidate).astype(np.int32)
        self._key_terms: KeyTerms | None = None

    def _index(self, corpus: Corpus) -> None:
        """Raises InputError if no candidate has a term, or if contexts lack a training split to be of."""
        self._open(corpus)
        self._terms = Terms.of(corpus.words, **self._words)
        cited = self._cited(corpus)
        counts = [
            self._paper_counts(corpus, self._rows[start : start + PAPERS_AT_ONCE], cited)
            for start in range(0, len(self._rows), PAPERS_AT_ONCE)
        ]
        if not any(part.nnz for part in counts):
            raise InputError(f"corpus {corpus.name}: no candidate has a word that BM25 could index")
        if self._backend == "rank_bm25":
            self._engine: RankBM25 | Postings = RankBM25.of(counts, self._formula)
        else:
            self._engine = Postings.of(counts, self._formula, self._backend == "numba")

    def _reindex(self, old: Corpus, corpus: Corpus, kept: Rows, folder: Path) -> None:
        """Where few papers have changed, the others keep their weights."""
        if self._backend != "rank_bm25" and old.is_candidate.all() and corpus.is_candidate.all():
            self._load(folder, old)
            assert isinstance(self._engine, Postings)
            changed = small_change(old, corpus, kept, self._engine.changed)
            if changed is not None:
                self._open(corpus)
                self._terms = self._terms.with_words(corpus.words[len(old.words) :], more_terms=True)
                counts = self._paper_counts(corpus, self._rows[len(kept) :], self._cited(corpus))
                self._engine = self._engine.with_texts(kept, counts, changed, self._formula)
                return
        super()._reindex(old, corpus, kept, folder)

    def _cited(self, corpus: Corpus) -> Ragged | None:
        """The contexts that are indexed with each paper [P], if any are."""
        if not self._contexts:
            return None
        if TRAIN not in corpus.splits:
            raise InputError(
                f"retriever.contexts: corpus {corpus.name} has no split {TRAIN!r} to take them of; set 0"
            )
        return citing_contexts(corpus.splits[TRAIN], len(corpus.paper_ids), self._contexts)

    def _paper_counts(self, corpus: Corpus, papers: NDArray[np.int32], cited: Ragged | None) -> csc_matrix:
        """Terms of papers [n, T]."""
        rows = np.arange(len(papers))
        columns = (corpus.title_tokens, corpus.abstract_tokens)
        counts = sum(self._terms.counts(rows, words.take(papers), len(papers)) for words in columns)
        if cited is None:
            return counts
        contexts = cited.take(papers)
        words = corpus.context_tokens.take(contexts.values)
        return counts + self._terms.counts(np.repeat(rows, contexts.lengths), words, len(papers))

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        mask = None if allowed is None else allowed[self._rows].astype(np.float32)
        papers, scores = empty_rankings(len(queries), k)

        def keep(query: int, values: Floats) -> None:
            if mask is not None:
                values *= mask
            best = top_scores(values, k)
            papers[query, : len(best)], scores[query, : len(best)] = self._rows[best], values[best]

        self._each(queries, keep)
        return Ranking(papers, scores)

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        asked = Queries.of(self.corpus, queries)
        place = np.searchsorted(self._rows, papers).clip(max=len(self._rows) - 1)
        there, scores = self._rows[place] == papers, np.full(papers.shape, -np.inf, np.float32)

        def keep(query: int, found: Floats) -> None:
            scores[query] = np.where(there[query] & (found > 0), found, -np.inf)

        self._each(asked, keep, place)
        return np.where(papers == asked.citing[:, None], np.float32(-np.inf), scores)

    def _each(
        self,
        queries: Queries,
        keep: Callable[[int, Floats], None],
        places: NDArray[np.integer] | None = None,
    ) -> None:
        """Call keep(query, scores) for each query with a term: of all candidates [n], or at places [Q, K]."""
        terms = self._query_terms(queries)

        def work(query: int) -> None:
            part = slice(terms.indptr[query], terms.indptr[query + 1])
            if part.start < part.stop:
                own = None if places is None else places[query]
                keep(query, self._engine.scores(terms.indices[part], terms.data[part], own))

        if self.threads == 1:
            for query in range(len(queries)):
                work(query)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(work, range(len(queries))))

    def _query_terms(self, queries: Queries) -> csr_matrix:
        """The terms of queries, float32 [Q, T]."""
        terms = self._terms
        if queries.new_words:
            terms = terms.with_words(queries.new_words)
        found = terms.query_counts(queries, self.query)
        if KEY_TERMS not in self.query:
            return found
        if self._key_terms is None:
            self._key_terms = KeyTerms(self._terms, self.corpus, self._rows)
        return found + self._key_terms.counts(queries, terms) * np.float32(self.query.count(KEY_TERMS))

    def _save(self, folder: Path) -> None:
        self._terms.save(folder)
        self._engine.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._open(corpus)
        self._terms = Terms.load(folder, **self._words)
        if self._backend == "rank_bm25":
            self._engine = RankBM25(load_ragged(folder, "documents"), self._formula)
        else:
            self._engine = Postings.load(folder, len(self._rows), self._backend == "numba")


def citing_contexts(split: Split, papers: int, most: int) -> Ragged:
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


def top_scores(scores: Floats, k: int) -> Rows:
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
