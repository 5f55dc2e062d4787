"""Corpus data behind the ranker's features: texts and names of papers, and the contexts that cite them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, save_arrays
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import IN_TEXTS, TRAIN
from citerec.datasets.word_statistics import BEGINNING, TERM
from citerec.rerank.ranker.author_names import author_names
from citerec.rerank.ranker.paper_names import Names, SortedNames, initials, title_names, word_hashes
from citerec.rerank.ranker.texts import B_SHORT, B, WeightedTexts, idf, nearness, nearness_before
from citerec.retrieval.arrays import Counts, Floats, load_arrays
from citerec.retrieval.lexical.bm25 import citing_contexts
from citerec.retrieval.lexical.terms import BEGINNINGS, EUROPEAN, PAPERS_PER_BATCH, Terms
from citerec.retrieval.queries import Queries, QueryField, target_marker_id

TERM_OPTIONS, BEGINNING_OPTIONS = ("english", EUROPEAN), (BEGINNINGS, EUROPEAN)
"""Stemmer and stop words of terms, and of the beginnings of words, which words of other languages share."""
MAX_CITING = 100
"""Maximum training contexts to read per cited paper, evenly sampled."""


def citing_split(corpus: Corpus) -> Split | None:
    """Return the contexts that show how papers are cited: for training, or of a library's full texts."""
    return corpus.splits.get(TRAIN, corpus.splits.get(IN_TEXTS))


def keep_fields(queries: Queries, *names: str) -> Queries:
    """Return the queries with all other fields emptied."""
    rows = np.zeros(len(queries), np.int64)
    empty = QueryField([""], Ragged(np.empty(0, np.int32), np.zeros(2, np.int64)), rows)
    fields = {name: field if name in names else empty for name, field in queries.fields.items()}
    return replace(queries, fields=fields)


def _blocks(words: Ragged) -> Iterator[Ragged]:
    """Yield texts, maybe millions, in blocks of PAPERS_PER_BATCH; one empty block if there are none."""
    for start in range(0, max(len(words), 1), PAPERS_PER_BATCH):
        yield words.take(np.arange(start, min(start + PAPERS_PER_BATCH, len(words))))


USUAL = 0.0005
"""Least share of the papers that have a word in title or abstract for it to be usual; at least one paper."""


class CorpusStatistics:
    """Precomputed data of a corpus for features: P papers, n training contexts.

    title, abstract: texts of papers. title_beginnings: titles as the beginnings of their words.
    title_names, initials, first_authors, other_authors: names of papers.
    near, before: training contexts as texts weighted by nearness to the mark; `before`: the words before it.
    citing: training contexts that cite each paper; source [n]: their citing papers, rows of the corpus.
    """

    RAGGED = ("citing",)
    TEXTS = ("title", "abstract", "title_beginnings", "near", "before")
    NAMES = ("title_names", "initials", "first_authors", "other_authors")
    SORTED = ("first_authors", "initials")
    """Names that have an order, by which they are looked up (SortedNames)."""
    ORDERS = ("first_authors_order", "initials_order")
    ARRAYS = ("rarity", "source", *ORDERS)
    title: WeightedTexts
    near: WeightedTexts
    title_names: Names
    initials: Names
    first_authors: Names
    other_authors: Names

    def __init__(self, corpus: Corpus, terms: Terms | None = None, beginnings: Terms | None = None) -> None:
        self.corpus, self.terms = corpus, terms or Terms.from_words(corpus.words, *TERM_OPTIONS)
        self.beginnings = beginnings or Terms.from_words(corpus.words, *BEGINNING_OPTIONS)
        self.mark = target_marker_id(corpus)

    @classmethod
    def build(cls, corpus: Corpus) -> CorpusStatistics:
        """Read a corpus."""
        statistics = cls(corpus)
        statistics._read_papers(corpus)
        statistics._read_contexts(corpus)
        return statistics

    def with_query_words(self, queries: Queries) -> CorpusStatistics:
        """Return a copy that knows the terms of new words in the queries."""
        statistics = copy.copy(self)
        if new := queries.new_words:
            statistics.terms = self.terms.with_words(new)
        return statistics

    def usual_words(self, queries: Queries) -> list[Set[int]]:
        """Hashes of the words of each context [Q] that titles and abstracts often have, and of stop words;
        for statistics that know the queries' words (with_query_words)."""
        words, corpus = queries.words("context"), self.corpus
        ids, place = np.unique(words.values, return_inverse=True)
        terms = self.terms.word_terms.take(ids)
        rarest = np.full(len(ids), -np.inf, np.float32)  # of the terms of a word, which may have several
        np.maximum.at(rarest, np.repeat(np.arange(len(ids)), terms.lengths), self.rarity[terms.values])
        least = np.array(max(1, round(USUAL * corpus.total_papers)))  # papers
        is_usual = rarest <= idf(least, corpus.total_papers) + 1e-6
        is_usual &= (terms.lengths > 0) | (ids < len(corpus.word_counts))  # others are unknown
        hashes = np.zeros(len(ids), np.uint64)
        hashes[is_usual] = word_hashes(queries.word(row) for row in ids[is_usual].tolist())
        usual, hashes = is_usual[place], hashes[place]
        bounds = pairwise(words.offsets.tolist())
        return [{*hashes[start:end][usual[start:end]].tolist()} for start, end in bounds]

    @staticmethod
    def names_of(corpus: Corpus) -> dict[str, tuple[Callable[[str], list[str]], Sequence[str]]]:
        return {
            "title_names": (title_names, corpus.titles),
            "initials": (initials, corpus.titles),
        }

    @cached_property
    def title_weights(self) -> Floats:
        """Sum of the term weights of each title, [P]."""
        row = np.repeat(np.arange(len(self.title.offsets) - 1), np.diff(self.title.offsets))
        sums = np.bincount(row, self.title.weights, len(self.title.offsets) - 1)
        return sums.astype(np.float32)

    def _read_papers(self, corpus: Corpus) -> None:
        title, abstract = (self.counts(words) for words in (corpus.title_tokens, corpus.abstract_tokens))
        papers = len(corpus.paper_ids)
        frequency = np.zeros(self.terms.size, np.int64)
        for start in range(0, papers, PAPERS_PER_BATCH):
            part = np.arange(start, min(start + PAPERS_PER_BATCH, papers))
            frequency += (title.take(part) + abstract.take(part)).frequency()
        if corpus.whole is not None:
            frequency = corpus.whole.count(TERM, self.terms.names)
        self.rarity = idf(frequency, corpus.total_papers)
        self.title = WeightedTexts.from_counts(title, self.rarity, B_SHORT, self._average("title"))
        self.abstract = WeightedTexts.from_counts(abstract, self.rarity, B, self._average("abstract"))
        del title, abstract
        self.title_beginnings = self._beginnings(corpus.title_tokens)
        for name, (find, texts) in self.names_of(corpus).items():
            setattr(self, name, Names.from_texts(corpus, find, texts, name))
        for name, names in author_names(corpus).items():
            setattr(self, name, names)
        for name, order in zip(self.SORTED, self.ORDERS, strict=True):
            setattr(self, order, np.argsort(getattr(self, name).hashes, kind="stable"))

    def sorted_names(self, name: str) -> SortedNames:
        """Return names (SORTED) that are looked up by their hash."""
        return SortedNames(getattr(self, name), getattr(self, self.ORDERS[self.SORTED.index(name)]))

    def _beginnings(self, words: Ragged) -> WeightedTexts:
        counts = self.counts(words, self.beginnings)
        frequency = np.bincount(counts.indices, minlength=self.beginnings.size)
        if self.corpus.whole is not None:
            frequency = self.corpus.whole.count(BEGINNING, self.beginnings.names)
        rarity = idf(frequency, self.corpus.total_papers)
        return WeightedTexts.from_counts(counts, rarity, B_SHORT, self._average("title_beginnings"))

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
        return queries

    def _read_contexts(self, corpus: Corpus) -> None:
        queries = self.read_citations(corpus, citing_split(corpus))
        words = queries.words("context")
        inputs = words if TRAIN in corpus.splits else words.take(np.empty(0, np.int64))
        self.near, self.before = (
            WeightedTexts.from_counts(self.near_counts(texts, weigh), self.rarity, B_SHORT)
            for texts, weigh in ((words, nearness), (inputs, nearness_before))
        )

    def counts(self, words: Ragged, terms: Terms | None = None) -> Counts:
        """Count the terms of texts, [n, T]; terms: other terms than the stems."""
        terms = terms or self.terms
        return Counts.concat(
            [terms.counts(np.arange(len(block)), block, len(block)) for block in _blocks(words)]
        )

    def near_counts(self, words: Ragged, weigh: Callable[[NDArray[np.integer]], Floats] = nearness) -> Counts:
        """Count the terms of texts, weighted by their distance to the mark, [n, T]."""
        parts = []
        for block in _blocks(words):
            text, term, distance = self.locate_terms(block)
            parts.append(Counts.add_up(text, term, (len(block), self.terms.size), weigh(distance)))
        return Counts.concat(parts)

    def locate_terms(
        self, words: Ragged, terms: Terms | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """Return, for each occurrence of a term, its text, the term, and its distance after the mark."""
        word_terms = (terms or self.terms).word_terms
        occurring, lengths = word_terms.take(words.values), word_terms.lengths[words.values]
        text = np.repeat(np.arange(len(words)), words.lengths)
        return np.repeat(text, lengths), occurring.values, np.repeat(self.distances(words), lengths)

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
