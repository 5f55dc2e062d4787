"""BM25 over titles and abstracts (Robertson and Zaragoza 2009), by bm25s (Lù 2024) or rank_bm25.

The text that a citation context is searched with: the context, title and abstract of the citing paper.
The words of a corpus as terms of lexical search: stemmed, without stop words, counted in texts.
The key terms of papers that ask: the few words of title and abstract that tell most about them.
The index of bm25s (Lù 2024): what each term adds to the score of each paper, worked out beforehand.
BM25 by rank_bm25, which scores every paper in Python: slow, and a second opinion on the formulas.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import numpy.typing as npt
import rank_bm25
import Stemmer
from bm25s.scoring import _select_idf_scorer, _select_tfc_scorer
from bm25s.tokenization import Tokenizer
from numba import njit
from scipy.sparse import csc_matrix, csr_matrix, vstack

from datasets.columns import Ragged, offsets_of
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.records import MARKER_WORDS, OTHER_MARKER, TARGET_MARKER, TRAIN
from retrieval.base import Ranking, Retriever, nothing
from retrieval.settings import QUERY_FIELDS, check_fields


def without_markers(text: str) -> str:
    """A context without its marks for citations."""
    return text.replace(TARGET_MARKER, " ").replace(OTHER_MARKER, " ")


def query_texts(corpus: Corpus, contexts: npt.NDArray[np.int64], fields: Sequence[str]) -> Iterator[str]:
    """The fields' texts of each context, one after the other; a field that is named twice stands twice.

    contexts: [Q], rows of the corpus's contexts; fields: of QUERY_FIELDS.
    """
    citing = corpus.citing[contexts].tolist()
    for row, paper in zip(contexts.tolist(), citing, strict=True):
        parts = {
            "context": without_markers(corpus.context_texts[row]) if "context" in fields else "",
            "title": corpus.titles[paper] if "title" in fields else "",
            "abstract": corpus.abstracts[paper] if "abstract" in fields else "",
        }
        yield " ".join(parts[field] for field in fields)


def tokenizer(stemmer: str | None, stopwords: str | None) -> Tokenizer:
    """bm25s's tokeniser: runs of two letters, digits or more, less stop words, stemmed.

    stemmer: a language of PyStemmer; stopwords: a language of bm25s; None for neither.
    Raises InputError for one that they do not know.
    """
    if stemmer is not None and stemmer not in Stemmer.algorithms():
        known = ", ".join(Stemmer.algorithms())
        raise InputError(f"retriever.stemmer: {stemmer!r} is not one of {known}")
    try:
        return Tokenizer(stopwords=stopwords, stemmer=None if stemmer is None else Stemmer.Stemmer(stemmer))
    except ValueError as error:
        raise InputError(f"retriever.stopwords: {error}") from None


class Terms:
    """The terms that stand for each word of a corpus.

    of_word: rows [V] of terms, as `corpus.words`; empty for stop words, signs and citation markers, several
    where a word has parts. size: number of terms T.
    The tokens of a store are looked up here, so that no text is read and no word stemmed twice.
    """

    def __init__(self, of_word: Ragged) -> None:
        self.of_word = of_word
        self.size = int(of_word.values.max(initial=-1)) + 1

    @classmethod
    def of(cls, words: Sequence[str], tokenizer: Tokenizer) -> Terms:
        tokenizer.reset_vocab()
        rows = list(tokenizer.streaming_tokenize(map(_without_markers, words), allow_empty=False))
        return cls(Ragged.from_rows(rows))

    def counts(self, rows: npt.NDArray[np.integer], words: Ragged, texts: int) -> csc_matrix:
        """How often each term stands in each text: float32 [texts, T].

        words: rows of token ids; rows: the text that each row is of, ascending.
        """
        terms = self.of_word.take(words.values)
        text = np.repeat(rows, np.diff(terms.offsets[words.offsets]))
        ones = np.ones(len(text), np.float32)
        # Texts ascend, so that equal places of a column lie side by side and nothing is sorted.
        return csc_matrix((ones, (text, terms.values)), shape=(texts, self.size))

    def query_counts(
        self, corpus: Corpus, contexts: npt.NDArray[np.int64], fields: Sequence[str]
    ) -> csr_matrix:
        """The terms of queries, float32 [Q, T]; fields as for retrieval.bm25.query_texts."""
        citing = corpus.citing[contexts]
        rows, summed = np.arange(len(contexts)), csc_matrix((len(contexts), self.size), dtype=np.float32)
        for field, words, taken in (
            ("context", corpus.context_tokens, contexts),
            ("title", corpus.title_tokens, citing),
            ("abstract", corpus.abstract_tokens, citing),
        ):
            if field in fields:
                counts = self.counts(rows, words.take(taken), len(contexts))
                summed = summed + counts * np.float32(fields.count(field))
        return summed.tocsr()

    @property
    def nbytes(self) -> int:
        return self.of_word.values.nbytes + self.of_word.offsets.nbytes

    def save(self, folder: Path) -> None:
        np.save(folder / "terms.values.npy", self.of_word.values)
        np.save(folder / "terms.offsets.npy", self.of_word.offsets)

    @classmethod
    def load(cls, folder: Path) -> Terms:
        """What `save` wrote, mapped."""
        values, offsets = (
            np.asarray(np.load(folder / f"terms.{part}.npy", mmap_mode="r", allow_pickle=False))
            for part in ("values", "offsets")
        )
        return cls(Ragged(values, offsets))


def _without_markers(word: str) -> str:
    for marker in MARKER_WORDS:
        word = word.replace(marker, " ")
    return word


KEY_TERMS = "key_terms"
"""Their name among the fields of a query."""

OF_TITLE, OF_ABSTRACT = 3, 5

KEY_TERMS_PAPERS_AT_ONCE = 1 << 16


class KeyTerms:
    """Finds the key terms of the papers that a corpus's contexts stand in.

    papers: the rows whose titles and abstracts are counted. A term that none of them has is no key term.
    """

    def __init__(self, terms: Terms, corpus: Corpus, papers: npt.NDArray[np.int32]) -> None:
        self._terms, self._corpus = terms, corpus
        columns = ((corpus.title_tokens, OF_TITLE), (corpus.abstract_tokens, OF_ABSTRACT))
        self._fields = [(words, self._shares(words, papers), most) for words, most in columns]

    def counts(self, contexts: npt.NDArray[np.int64]) -> csr_matrix:
        """Of each context [Q] its key terms, each once: float32 [Q, T]."""
        citing = self._corpus.citing[contexts]
        found: list[npt.NDArray[np.integer]] = [np.empty(0, np.int32)] * len(contexts)
        for words, shares, most in self._fields:
            times = self._terms.counts(np.arange(len(contexts)), words.take(citing), len(contexts)).tocsr()
            times.sum_duplicates()
            for query in range(len(contexts)):
                part = slice(times.indptr[query], times.indptr[query + 1])
                terms, often = times.indices[part], times.data[part]
                known = shares[terms] > 0
                terms, often = terms[known], often[known]
                order = np.lexsort((terms, -bo1(often, shares[terms])))
                found[query] = np.union1d(found[query], terms[order[:most]])
        rows = Ragged.from_rows([terms.tolist() for terms in found])
        ones = np.ones(len(rows.values), np.float32)
        return csr_matrix((ones, rows.values, rows.offsets), shape=(len(contexts), self._terms.size))

    def _shares(self, words: Ragged, papers: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        """How often each term [T] stands in a field of the papers, divided by their number."""
        total = np.zeros(self._terms.size, np.int64)
        for start in range(0, len(papers), KEY_TERMS_PAPERS_AT_ONCE):
            block = words.take(papers[start : start + KEY_TERMS_PAPERS_AT_ONCE])
            total += np.bincount(self._terms.of_word.take(block.values).values, minlength=len(total))
        return total / max(len(papers), 1)


def bo1(times: npt.NDArray[np.floating], shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The weights of terms [n] by how often they stand in a text and, on average, in a paper."""
    return np.asarray(times * np.log2((1 + shares) / shares) + np.log2(1 + shares))


# bm25s has one name for how often a term stands in a text, one for how rare it is.
METHODS = {
    "lucene": ("lucene", "lucene"),
    "okapi": ("atire", "lucene"),
    "robertson": ("robertson", "robertson"),
    "atire": ("atire", "atire"),
    "bm25l": ("bm25l", "bm25l"),
}
"""The variants (Kamphuis et al. 2020, table 1); `okapi` is the formula of Gu et al. 2022: lucene * (k1 + 1).

bm25+ would rank as atire does: bm25s gives its extra share to papers with and without the term alike."""


def index_counts(counts: list[csc_matrix], method: str, k1: float, b: float) -> bm25s.BM25:
    """The index of texts, of which the counts [texts, T] are given in parts; they are used up.

    bm25s goes through lists of numbers text by text; this is the same arithmetic on whole arrays (the tests
    hold it against bm25s), which takes a fraction of the time and of the memory.
    """
    of_counts, of_rarity = METHODS[method]
    index = bm25s.BM25(k1=k1, b=b, method=of_counts, idf_method=of_rarity)
    lengths = [np.asarray(part.sum(axis=1)).ravel() for part in counts]
    average = float(np.concatenate(lengths).mean(dtype=np.float64))
    total = sum(map(len, lengths))
    texts_with = np.array([np.diff(part.indptr) for part in counts]).sum(axis=0, dtype=np.int64)
    idf = _select_idf_scorer(of_rarity)
    rarity = np.array([idf(n, N=total) if n else 0 for n in texts_with.tolist()], np.float32)

    tfc = _select_tfc_scorer(of_counts)
    options = {"l_avg": average, "k1": k1, "b": b, "delta": index.delta}
    # What a text without the term would get as well tells nothing: bm25s adds it back, here 0 is no match.
    extra = of_counts in index.methods_requiring_nonoccurrence
    absent = np.float32(tfc(tf_array=0.0, l_d=average, **options) if extra else 0)
    indptr = offsets_of(texts_with)
    data, indices = np.empty(indptr[-1], np.float32), np.empty(indptr[-1], np.int32)
    next_place, texts = indptr[:-1].copy(), 0
    for length in lengths:
        part = counts.pop(0)
        of_term = np.diff(part.indptr)
        places = np.repeat(next_place - part.indptr[:-1], of_term) + np.arange(part.nnz)
        share = tfc(tf_array=part.data, l_d=length[part.indices], **options) - absent
        data[places] = share * np.repeat(rarity, of_term)
        indices[places] = part.indices + np.int32(texts)
        next_place += of_term
        texts += len(length)
    index.scores = {"data": data, "indices": indices, "indptr": indptr, "num_docs": total}
    index.vocab_dict = {}  # the corpus has the words
    index.nonoccurrence_array = absent * rarity if extra else None
    return index


class Postings:
    """Scores all papers for a query by the terms of a bm25s index.

    compiled: by a loop that Numba compiles (for half a second), else by SciPy. Either takes a term that
    occurs twice once with twice its weight, where bm25s itself goes over its papers twice.
    """

    def __init__(self, index: bm25s.BM25, compiled: bool) -> None:
        self._index = index
        self._matrix = csc_matrix(
            tuple(index.scores[part] for part in ("data", "indices", "indptr")),
            shape=(index.scores["num_docs"], len(index.scores["indptr"]) - 1),
        )
        self._compiled = compiled
        if compiled:
            self.scores(np.zeros(1, np.int32), np.zeros(1, np.float32))

    @property
    def nbytes(self) -> int:
        return int(self._matrix.data.nbytes + self._matrix.indices.nbytes + self._matrix.indptr.nbytes)

    def scores(
        self, terms: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Of every paper [P]; terms [n], each once, weights [n]."""
        matrix = self._matrix
        if not self._compiled:
            return np.asarray(matrix[:, terms] @ weights)
        scores = np.zeros(matrix.shape[0], np.float32)
        _add(matrix.data, matrix.indices, matrix.indptr, terms, weights, scores)
        return scores

    def save(self, folder: Path) -> None:
        self._index.save(folder)

    @classmethod
    def load(cls, folder: Path, compiled: bool) -> Postings:
        """What `save` wrote, mapped."""
        return cls(bm25s.BM25.load(folder, mmap=True, allow_pickle=False, load_vocab=False), compiled)


@njit(nogil=True)
def _add(
    data: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int32],
    terms: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    scores: npt.NDArray[np.float32],
) -> None:
    for term, weight in zip(terms, weights):  # noqa: B905 (Numba has no `strict`)
        for place in range(indptr[term], indptr[term + 1]):
            scores[indices[place]] += weight * data[place]


RANK_BM25_METHODS = tuple(method for method, (of_counts, _) in METHODS.items() if of_counts != "bm25l")
"""rank_bm25's BM25L counts a term's frequency twice, so that it is no variant of the others' bm25l."""


class Okapi(rank_bm25.BM25Okapi):
    """rank_bm25's BM25Okapi with the rarity of a term as in the other back ends.

    Its own is that of `robertson`, with a floor where a term stands in more than half of all texts.
    documents: rows of terms.
    """

    def __init__(self, documents: Ragged, method: str, k1: float, b: float) -> None:
        self._documents, self._method = documents, method
        super().__init__((row.tolist() for row in documents), k1=k1, b=b)

    def _calc_idf(self, nd: dict[int, int]) -> None:
        of_counts, of_rarity = METHODS[self._method]
        idf = _select_idf_scorer(of_rarity)
        # Its scores always have the factor k1 + 1, which two of the variants do without.
        scale = 1.0 if of_counts == "atire" else 1 / (self.k1 + 1)
        self.idf = {term: scale * idf(texts, N=self.corpus_size) for term, texts in nd.items()}

    @property
    def nbytes(self) -> int:
        """Of the tables of frequencies; what they hold is shared between them."""
        return sum(map(sys.getsizeof, self.doc_freqs))

    def scores(
        self, terms: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Of every text [P]; terms [n], each once, weights [n]: how often they stand in the query."""
        query = np.repeat(terms, weights.astype(np.int64)).tolist()
        with np.errstate(invalid="ignore"):
            scores = self.get_scores(query)
        # It takes 0 / 0 for an empty text where b is 1.
        return np.nan_to_num(scores, nan=0.0).astype(np.float32)

    def save(self, folder: Path) -> None:
        np.save(folder / "documents.values.npy", self._documents.values)
        np.save(folder / "documents.offsets.npy", self._documents.offsets)

    @classmethod
    def load(cls, folder: Path, method: str, k1: float, b: float) -> Okapi:
        """Made anew of the documents that `save` wrote: rank_bm25 has no files of its own."""
        values, offsets = (
            np.load(folder / f"documents.{part}.npy", allow_pickle=False) for part in ("values", "offsets")
        )
        return cls(Ragged(values, offsets), method, k1, b)


def documents(counts: csr_matrix) -> Ragged:
    """Whole counts [texts, T] -> the terms of each text, each as often as it stands there."""
    often = counts.data.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(often)])[counts.indptr]
    return Ragged(np.repeat(counts.indices, often), offsets)


BACKENDS = ("numpy", "numba", "rank_bm25")

PAPERS_AT_ONCE = 1 << 16
"""Papers whose words are counted at a time."""


class BM25(Retriever):
    """Papers without a term of the query are not ranked.

    method: `lucene`, `robertson`, `atire`, `bm25l`, or `okapi`, the formula of Gu et al. 2022.
    stemmer: a language of PyStemmer; stopwords: a language of bm25s; None for neither.
    query: of `context`, `title` and `abstract` of the citing paper, and `key_terms`, the few words of the
    latter two that tell most (retrieval.bm25); a field that is named twice counts twice.
    count_terms: a term that occurs twice in the query counts twice.
    contexts: how many training contexts that cite a paper, at most, are indexed with its title and abstract.
    Other splits never enter. What a training query finds is no measure then: its own context is there too.
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

    def set_parameters(self, **values: float) -> None:
        """Raises InputError for values out of range."""
        k1, b = values.get("k1", self._k1), values.get("b", self._b)
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

    def query_settings(self) -> dict[str, Any]:
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
