"""Corpus data behind the ranker's features: texts and names of papers, and the contexts that cite them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from citerec.datasets.columns import Ragged, offsets_of, save_arrays
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import TRAIN
from citerec.datasets.word_statistics import BEGINNING, PAIR, TERM, hash_names, hash_pairs
from citerec.rerank.ranker.author_names import author_names
from citerec.rerank.ranker.paper_names import Names, SortedNames, abstract_names, initials, title_names
from citerec.rerank.ranker.texts import B_SHORT, NEAR, B, WeightedTexts, idf, nearness
from citerec.retrieval.arrays import Floats, load_arrays
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.lexical.bm25 import citing_contexts
from citerec.retrieval.lexical.terms import BEGINNINGS, EUROPEAN, PAPERS_PER_BATCH, Terms
from citerec.retrieval.queries import Queries, QueryField, target_marker_id

TERM_OPTIONS, BEGINNING_OPTIONS = ("english", EUROPEAN), (BEGINNINGS, EUROPEAN)
"""Stemmer and stop words of terms, and of the beginnings of words, which words of other languages share."""
BESIDE = 1.5
"""As `rerank.ranker.texts.NEAR`, for words just before the mark."""
NEARNESS = {"near": (0, NEAR), "left": (-1, NEAR), "right": (1, NEAR), "beside": (-1, BESIDE)}
"""Parts of contexts, weighted by nearness to the mark: side of the mark, and distance of half weight."""
MAX_CITING = 100
"""Maximum training contexts to read per cited paper, evenly sampled."""


def keep_fields(queries: Queries, *names: str) -> Queries:
    """Return the queries with all other fields emptied."""
    rows = np.zeros(len(queries), np.int64)
    empty = QueryField([""], Ragged(np.empty(0, np.int32), np.zeros(2, np.int64)), rows)
    fields = {name: field if name in names else empty for name, field in queries.fields.items()}
    return replace(queries, fields=fields)


def _blocks(words: Ragged) -> Iterator[Ragged]:
    """Yield blocks of PAPERS_PER_BATCH texts; one empty block without texts."""
    for start in range(0, max(len(words), 1), PAPERS_PER_BATCH):
        yield words.take(np.arange(start, min(start + PAPERS_PER_BATCH, len(words))))


def _in_blocks(read: Callable[..., csr_matrix]) -> Callable[..., csr_matrix]:
    """Apply a method to texts in blocks, because there may be millions."""

    @wraps(read)
    def in_blocks(statistics: CorpusStatistics, words: Ragged, *args: Any, **kwargs: Any) -> csr_matrix:
        return vstack([read(statistics, block, *args, **kwargs) for block in _blocks(words)], "csr")

    return in_blocks


class CorpusStatistics:
    """Precomputed data of a corpus for features: P papers, n training contexts of m citing papers.

    title, abstract: texts of papers. title_beginnings: titles as the beginnings of their words. title_pairs:
    pairs of adjacent terms in titles.
    title_names, initials, abstract_names, first_authors, other_authors: names of papers.
    contexts, near, left, right, beside, pairs: texts of training contexts: whole; weighted by nearness to the
    mark; before it; after it; just before it; pairs of adjacent terms, by nearness.
    citing: training contexts that cite each paper; source [n]: their citing papers, rows of the corpus.
    cited_by: citing papers of each paper, as rows of `papers` [m], which are rows of the corpus.
    context_vectors [n, D], paper_vectors [m, D]: of contexts, and of titles and abstracts of citing papers.
    """

    RAGGED = ("citing", "cited_by")
    TEXTS = (
        "title",
        "abstract",
        "title_beginnings",
        "title_pairs",
        "contexts",
        "near",
        "left",
        "right",
        "beside",
        "pairs",
    )
    NAMES = ("title_names", "initials", "abstract_names", "first_authors", "other_authors")
    SORTED = ("first_authors", "initials")
    """Names that have an order, by which they are looked up (SortedNames)."""
    ORDERS = ("first_authors_order", "initials_order")
    VECTORS = ("context_vectors", "paper_vectors")
    ARRAYS = (
        *("rarity", "beginning_rarity", "pair_keys", "pair_rarity", "source", "papers"),
        *(*VECTORS, *ORDERS),
    )
    title: WeightedTexts
    near: WeightedTexts
    title_names: Names
    initials: Names
    abstract_names: Names
    first_authors: Names
    other_authors: Names

    def __init__(self, corpus: Corpus, terms: Terms | None = None, beginnings: Terms | None = None) -> None:
        self.corpus, self.terms = corpus, terms or Terms.from_words(corpus.words, *TERM_OPTIONS)
        self.beginnings = beginnings or Terms.from_words(corpus.words, *BEGINNING_OPTIONS)
        self.mark = target_marker_id(corpus)
        self.title_lengths = np.log1p(corpus.title_tokens.lengths)

    @classmethod
    def build(cls, corpus: Corpus, dense: DenseRetriever | None) -> CorpusStatistics:
        """Read a corpus; dense: an indexed retriever for the vectors, which are empty without it."""
        statistics = cls(corpus)
        statistics._read_papers(corpus)
        return statistics.with_contexts_of(corpus, dense)

    def with_contexts_of(self, corpus: Corpus, dense: DenseRetriever | None) -> CorpusStatistics:
        """Return the statistics of a corpus with the same papers and other training contexts."""
        statistics = copy.copy(self)
        statistics.corpus = corpus
        statistics._read_contexts(corpus, dense)
        for array in statistics._arrays().values():
            array.setflags(write=False)  # like mapped arrays, so that loops are compiled once for both
        return statistics

    def with_query_words(self, queries: Queries) -> CorpusStatistics:
        """Return a copy that knows the terms of new words in the queries."""
        statistics = copy.copy(self)
        if new := queries.new_words:
            statistics.terms = self.terms.with_words(new)
        return statistics

    @staticmethod
    def names_of(corpus: Corpus) -> dict[str, tuple[Callable[[str], list[str]], Sequence[str]]]:
        return {
            "title_names": (title_names, corpus.titles),
            "initials": (initials, corpus.titles),
            "abstract_names": (abstract_names, corpus.abstracts),
        }

    @cached_property
    def title_weights(self) -> Floats:
        """Sum of the term weights of each title, [P]."""
        row = np.repeat(np.arange(len(self.title.offsets) - 1), np.diff(self.title.offsets))
        sums = np.bincount(row, self.title.weights, len(self.title.offsets) - 1)
        return sums.astype(np.float32)

    @property
    def has_contexts(self) -> bool:
        """True if the corpus has training contexts."""
        return len(self.source) > 0

    def _read_papers(self, corpus: Corpus) -> None:
        title, abstract = (self.counts(words) for words in (corpus.title_tokens, corpus.abstract_tokens))
        papers = len(corpus.paper_ids)
        frequency = np.zeros(self.terms.size, np.int64)
        for start in range(0, papers, PAPERS_PER_BATCH):
            part = slice(start, start + PAPERS_PER_BATCH)
            frequency += np.bincount((title[part] + abstract[part]).indices, minlength=len(frequency))
        if corpus.whole is not None:
            frequency = corpus.whole.count(TERM, self.terms.names)
        self.rarity = idf(frequency, corpus.total_papers)
        self.title = WeightedTexts.from_counts(title, self.rarity, B_SHORT, self._average("title"))
        self.abstract = WeightedTexts.from_counts(abstract, self.rarity, B, self._average("abstract"))
        del title, abstract
        self.title_beginnings, self.beginning_rarity = self._beginnings(corpus.title_tokens)
        for name, (find, texts) in self.names_of(corpus).items():
            setattr(self, name, Names.from_texts(corpus, find, texts, name))
        for name, found in author_names(corpus, np.arange(papers)).items():
            setattr(self, name, found)
        self._sort_names()

    def _sort_names(self) -> None:
        for name, order in zip(self.SORTED, self.ORDERS, strict=True):
            setattr(self, order, np.argsort(getattr(self, name).hashes, kind="stable"))

    def sorted_names(self, name: str) -> SortedNames:
        """Return names (SORTED) that are looked up by their hash."""
        return SortedNames(getattr(self, name), getattr(self, self.ORDERS[self.SORTED.index(name)]))

    def _beginnings(self, words: Ragged) -> tuple[WeightedTexts, Floats]:
        counts = self.counts(words, self.beginnings)
        frequency = np.bincount(counts.indices, minlength=self.beginnings.size)
        if self.corpus.whole is not None:
            frequency = self.corpus.whole.count(BEGINNING, self.beginnings.names)
        rarity = idf(frequency, self.corpus.total_papers)
        return WeightedTexts.from_counts(counts, rarity, B_SHORT, self._average("title_beginnings")), rarity

    def _average(self, text: str) -> float:
        """Return the average length of a text of papers in the whole collection; 0: that of the corpus."""
        return 0.0 if self.corpus.whole is None else self.corpus.whole.averages[text]

    def read_citations(self, corpus: Corpus, split: Split | None) -> Queries:
        """Read the citation links; returns the training contexts as queries."""
        papers = len(corpus.paper_ids)
        if split is None:
            split = Split(TRAIN, np.empty(0, np.int64), Ragged.from_rows([]))
        queries = Queries.from_contexts(corpus, split.contexts)
        self.source = queries.citing
        self.citing = citing_contexts(
            Split(TRAIN, np.arange(len(split)), split.positives), papers, MAX_CITING
        )
        self.papers, place = np.unique(self.source, return_inverse=True)
        citing = np.repeat(place, split.positives.lengths)
        cited = np.unique(split.positives.values.astype(np.int64) * max(len(self.papers), 1) + citing)
        cited, citing = np.divmod(cited, max(len(self.papers), 1))
        self.cited_by = Ragged(citing.astype(np.int32), offsets_of(np.bincount(cited, minlength=papers)))
        return queries

    def _read_contexts(self, corpus: Corpus, dense: DenseRetriever | None) -> None:
        queries = self.read_citations(corpus, corpus.splits.get(TRAIN))
        words, titles = queries.words("context"), corpus.title_tokens
        self.contexts = WeightedTexts.from_counts(self.counts(words), self.rarity)
        for name, (side, reach) in NEARNESS.items():
            setattr(
                self,
                name,
                WeightedTexts.from_counts(self.near_counts(words, side, reach), self.rarity, B_SHORT),
            )
        self.find_pairs(words)
        self.title_pairs = WeightedTexts.from_counts(
            self.pair_counts(titles, marked=False), self.pair_rarity, B_SHORT, self._average("title_pairs")
        )
        self.pairs = WeightedTexts.from_counts(self.pair_counts(words), self.pair_rarity, B_SHORT)
        dim = 0 if dense is None else dense.encode_queries(queries[:0]).shape[1]
        self.context_vectors = self.paper_vectors = np.empty((0, dim), np.float32)
        if dense is not None and len(queries):
            self.context_vectors = dense.encode_queries(keep_fields(queries, "context"))
            _, one = np.unique(self.source, return_index=True)
            self.paper_vectors = dense.encode_queries(keep_fields(queries[one], "title", "abstract"))

    def find_pairs(self, contexts: Ragged | None = None) -> None:
        """Find the pairs of adjacent terms that titles and contexts have at least twice, and their rarity."""
        corpus, texts = self.corpus, [self.corpus.title_tokens, *([] if contexts is None else [contexts])]
        found = [self.adjacent_pairs(block)[0] for of in texts for block in _blocks(of)]
        keys, times = np.unique(np.concatenate(found), return_counts=True)
        if corpus.whole is not None:
            times = corpus.whole.count_hashes(PAIR, self.hash_pairs(keys))
        self.pair_keys = keys[times > 1]
        self.pair_rarity = np.log(1 + corpus.total_papers / times[times > 1]).astype(np.float32)

    @_in_blocks
    def counts(self, words: Ragged, terms: Terms | None = None) -> csr_matrix:
        """Count the terms of texts, [n, T]; terms: others than the stems."""
        counts = (terms or self.terms).counts(np.arange(len(words)), words, len(words)).tocsr()
        counts.sum_duplicates()
        return counts

    @_in_blocks
    def near_counts(self, words: Ragged, side: int = 0, reach: float = NEAR) -> csr_matrix:
        """Count the terms of texts, weighted by `nearness` to the mark, [n, T]."""
        text, term, distance = self.locate_terms(words)
        weights = nearness(distance, side, reach)
        kept = weights > 0
        indices = text[kept], term[kept]
        return csr_matrix((weights[kept], indices), shape=(len(words), self.terms.size))

    @_in_blocks
    def pair_counts(self, words: Ragged, marked: bool = True) -> csr_matrix:
        """Count pairs of adjacent terms in texts, [n, pairs]; marked: weighted by nearness to the mark."""
        text, pair, weights = self.locate_pairs(words)
        shape = (len(words), len(self.pair_keys))
        return csr_matrix((weights if marked else np.ones_like(weights), (text, pair)), shape=shape)

    def locate_pairs(self, words: Ragged) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Return, for each known pair, its text, its index in `pair_keys`, and its weight by nearness."""
        keys, text, distance = self.adjacent_pairs(words)
        pair = np.searchsorted(self.pair_keys, keys).clip(max=max(len(self.pair_keys) - 1, 0))
        kept = self.pair_keys[pair] == keys if len(self.pair_keys) else np.zeros(len(keys), np.bool_)
        return text[kept], pair[kept], nearness(distance[kept])

    def adjacent_pairs(self, words: Ragged) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return, for each pair of adjacent terms, its key, its text, and its distance from the mark."""
        text, term, distance = self.locate_terms(words)
        same = text[1:] == text[:-1]
        keys = term[:-1].astype(np.int64) * self.terms.size + term[1:]
        far = np.abs(distance)
        return keys[same], text[:-1][same], np.minimum(far[1:], far[:-1])[same]

    def hash_pairs(self, keys: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Hash pairs of terms, given by their keys [n], as in the statistics of a collection."""
        hashes = hash_names(self.terms.names)
        return hash_pairs(hashes[keys // self.terms.size], hashes[keys % self.terms.size])

    def locate_terms(
        self, words: Ragged, terms: Terms | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """Return, for each occurrence of a term, its text, the term, and its distance after the mark."""
        word_terms = (terms or self.terms).word_terms
        found, lengths = word_terms.take(words.values), word_terms.lengths[words.values]
        text = np.repeat(np.arange(len(words)), words.lengths)
        return np.repeat(text, lengths), found.values, np.repeat(self.distances(words), lengths)

    def distances(self, words: Ragged) -> NDArray[np.int64]:
        """Distance of each word after the first mark of its text; far before it without a mark."""
        text = np.repeat(np.arange(len(words)), words.lengths)
        position = np.arange(len(words.values)) - words.offsets[text]
        marks = np.flatnonzero(words.values == self.mark)
        mark = np.full(len(words), 10**6)
        mark[text[marks][::-1]] = position[marks][::-1]
        return np.asarray(position - mark[text])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays().values())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        columns = {name: getattr(self, name) for name in self.ARRAYS}
        for name in (*self.TEXTS, *self.NAMES, *self.RAGGED):
            part = getattr(self, name)
            columns |= {f"{name}.{field.name}": getattr(part, field.name) for field in fields(part)}
        return columns

    def save(self, folder: Path) -> None:
        save_arrays(folder, **self._arrays())
        self.terms.save(folder)
        (folder / BEGINNINGS).mkdir()
        self.beginnings.save(folder / BEGINNINGS)

    @classmethod
    def load(cls, folder: Path, corpus: Corpus) -> CorpusStatistics:
        """Load what `save` wrote, memory-mapped."""
        beginnings = Terms.load(folder / BEGINNINGS, *BEGINNING_OPTIONS)
        statistics, names = cls(corpus, Terms.load(folder, *TERM_OPTIONS), beginnings), cls.ARRAYS
        for name, array in zip(names, load_arrays(folder, *names), strict=True):
            setattr(statistics, name, array)
        kinds = {WeightedTexts: cls.TEXTS, Names: cls.NAMES, Ragged: cls.RAGGED}
        for kind, parts in kinds.items():
            for name in parts:
                files = (f"{name}.{field.name}" for field in fields(kind))
                setattr(statistics, name, kind(*load_arrays(folder, *files)))
        return statistics
