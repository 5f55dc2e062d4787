"""Features of candidate papers: named columns [Q, K] for queries and their candidates.

A feature is a function of `Candidates` in the table FEATURES; to add one, add a function with @feature.
docs/research/ranking.md tells what each brings. Values are NaN if their source is missing (no training
contexts, no abstract, no year). `rerank.ranker.linear` turns columns into a model's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.records import TRAIN
from citerec.rerank.ranker.author_names import HALF, capitalised_words, years_near
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.rerank.ranker.paper_names import MAX_NAME_WORDS, Names, nearest_names, ngram_hashes, word_hashes
from citerec.rerank.ranker.texts import (
    WeightedTexts,
    best_products,
    dot_products,
    nearness,
    nearness_before,
)
from citerec.retrieval.arrays import Floats, Mask
from citerec.retrieval.base import Retriever
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.queries import Queries

Function = Callable[["Candidates"], NDArray[np.floating]]

RETRIEVERS, WORDS, CITING, NAMES = "retrievers", "words", "citing", "names"
PASSAGES, DRAFT = "passages", "draft"
"""Groups of features. PASSAGES: of full texts. DRAFT: what a draft tells; only rerank.ranker.confidence reads
these."""
NETWORK = ("encoder", "encoder_title", "english_encoder", "beside_encoder")
"""Features that need a network that has read all papers."""
BESIDE_WEIGHT = 0.3
"""Weight of a paper that is cited beside the context, apart from the words in common."""
NEIGHBOURS = 3.0
"""In the library's order, how many papers beyond the next being near to one cited beside counts 1/e."""
NAME_REACH = 3.0
"""Distance from the mark, in words, at which a name has half of the weight beside it."""


@dataclass(frozen=True)
class Feature:
    """A column: its group, and the function that computes it, [Q, K]."""

    group: str
    compute: Function
    relative: bool = False
    """whether its unit depends on corpus and query, as BM25's does; else it is the same in all lists"""


FEATURES: dict[str, Feature] = {}


def feature(group: str, relative: bool = False) -> Callable[[Function], Function]:
    """Register a function as the feature of its name."""

    def register(function: Function) -> Function:
        FEATURES[function.__name__] = Feature(group, function, relative)
        return function

    return register


class PassageScores(Protocol):
    """The passages of full texts that some of a corpus's papers have."""

    def find(self, queries: Queries, depth: int, eligible: Mask) -> Ragged:
        """Return the eligible papers [Q] whose passages have most of the words of each query, best first;
        without the citing paper."""

    def best(self, queries: Queries, papers: NDArray[np.int32]) -> Floats:
        """Return the BM25 of the best passage of papers [Q, K] for the words of each context, by nearness to
        the mark; NaN for papers without a full text."""


class Candidates:
    """Q queries and their candidates [Q, K], rows of papers, -1 for none. parts: indexed retrievers.
    passages: of full texts, if there are any."""

    def __init__(
        self,
        statistics: CorpusStatistics,
        parts: Mapping[str, Retriever],
        queries: Queries,
        papers: NDArray[np.int32],
        passages: PassageScores | None = None,
    ) -> None:
        self.statistics, self.parts, self.queries, self.papers = statistics, parts, queries, papers
        self.passages = passages
        self.corpus = statistics.corpus
        self.query_statistics = statistics.with_query_words(queries)
        size = max(statistics.terms.size, statistics.beginnings.size)
        self.scratch = np.zeros(max(size, 1), np.float32)
        """zeros for the kernels of rerank.ranker.texts"""

    @cached_property
    def dense(self) -> DenseRetriever | None:
        """The retriever that encodes contexts as vectors."""
        return first_dense(self.parts)

    @property
    def unknown(self) -> Floats:
        """NaN for all candidates, [Q, K]."""
        return np.full(self.papers.shape, np.nan, np.float32)

    def columns(self) -> dict[str, NDArray[np.floating]]:
        """Compute all columns [Q, K] that the corpus supports, in a fixed order."""
        columns: dict[str, NDArray[np.floating]] = {}
        for name, part in self.parts.items():
            if not part.comparable:  # an encoder has features of its own
                columns[name] = fill_missing_scores(part.score(self.queries, self.papers), self.papers)
        for name, feature in FEATURES.items():
            if self.passages is not None or feature.group != PASSAGES:
                columns[name] = feature.compute(self)
        return columns

    # Terms of queries.

    def locate_terms(self, field: str) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """Return, for each occurrence of a term in a field, its query, the term, and its distance after the
        mark."""
        return self.query_statistics.locate_terms(self.queries.words(field))

    def terms(self, weigh: Callable[[NDArray[np.integer]], Floats] = nearness) -> WeightedTexts:
        """Return the terms of the contexts; weigh: of occurrences by their distance after the mark."""
        text, term, distance = self.locate_terms("context")
        return WeightedTexts(self.offsets(text), term, weigh(distance))

    def offsets(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the offsets [Q + 1] of entries that are sorted by query."""
        return offsets_of(np.bincount(queries, minlength=len(self.queries)))

    # Vectors.

    @cached_property
    def paper_vectors(self) -> Floats:
        """Vectors of the candidates in the dense retriever, [Q, K, D]."""
        assert self.dense is not None
        return self.dense.indexed_vectors(np.maximum(self.papers, 0).ravel()).reshape(*self.papers.shape, -1)

    # Comparisons of queries with candidates.

    def product(self, queries: WeightedTexts, texts: WeightedTexts) -> Floats:
        """Score a text of each candidate for the queries by BM25, [Q, K]; NaN for papers without the text."""
        scores = dot_products(queries, texts, self.scratch, self.papers)
        missing = texts.offsets[self.papers] == texts.offsets[self.papers + 1]
        return np.where(missing, np.float32(np.nan), scores)

    def title_shares(self, field: str) -> NDArray[np.floating]:
        """Share of the title's idf in terms that are in a field of the query, [Q, K]."""
        text, term, _ = self.locate_terms(field)
        size = max(self.statistics.terms.size, 1)
        text, term = np.divmod(np.unique(text * size + term), size)
        terms = WeightedTexts(self.offsets(text), term.astype(np.int32), np.ones(len(term), np.float32))
        weights = np.maximum(self.statistics.title_weights[self.papers], 1e-9)
        return np.nan_to_num(self.product(terms, self.statistics.title)) / weights

    @cached_property
    def _ngrams(self) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """N-grams of the contexts: offsets [Q + 1], ascending hashes, and distances from the mark."""
        words = self.queries.words("context")
        distance = np.abs(self.statistics.distances(words))
        text = np.repeat(np.arange(len(words)), words.lengths)
        ids, place = np.unique(words.values, return_inverse=True)
        hashed = word_hashes(self.queries.word(row) for row in ids.tolist())[place]
        parts: list[tuple[Any, Any, Any]] = []
        for length in range(1, MAX_NAME_WORDS + 1):
            starts = np.arange(max(len(text) - length + 1, 0))
            starts = starts[text[starts] == text[starts + length - 1]]
            hashes = ngram_hashes(hashed, starts, length)
            parts.append((text[starts], hashes, np.minimum(distance[starts], distance[starts + length - 1])))
        texts, hashes, distances = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.lexsort((distances, hashes, texts))
        return self.offsets(texts), hashes[order], distances[order]

    def name_scores(self, names: Names) -> Floats:
        """Return the highest weight / (1 + d / NAME_REACH) of a candidate's names in the context, d words
        from the mark; 0 without any."""
        return nearest_names(*self._ngrams, names, self.papers, NAME_REACH)

    @cached_property
    def elsewhere(self) -> dict[str, Floats]:
        """How other passages of the drafts cite each candidate, [Q, K]; NaN if none is known to.

        count: log of their number. words: their highest cosine with the context's words. distance: log of the
        least distance to one, in passages.
        """
        shape, order = self.papers.shape, np.argsort(self.papers, axis=1, kind="stable")
        count, words = np.zeros(shape, np.float32), np.full(shape, -np.inf, np.float32)
        distance = np.full(shape, np.inf, np.float32)
        for query, text in enumerate(self.queries.texts("context")):
            papers, cosines, distances = self.queries.elsewhere.cited(self.corpus, query, text)
            own = self.papers[query, order[query]]
            there = np.searchsorted(own, papers).clip(max=len(own) - 1)
            listed = own[there] == papers
            column = order[query, there[listed]]
            np.add.at(count[query], column, 1)
            np.maximum.at(words[query], column, cosines[listed])
            np.minimum.at(distance[query], column, distances[listed])
        columns = {"count": np.log(np.maximum(count, 1)), "words": words, "distance": np.log(distance)}
        return {name: np.where(count > 0, values, np.float32(np.nan)) for name, values in columns.items()}

    @cached_property
    def beside(self) -> dict[str, Floats]:
        """What passages beside the context cite, [Q, K]; NaN if none is known.

        words: highest cosine of the context's words with those of one that cites it; 0 if none does. cosine:
        highest cosine in the dense retriever with another paper that one cites, times BESIDE_WEIGHT and the
        cosine of the words. encoder: the same by the network that has read all papers. order: how near it
        stands to such a paper in the library's order (Corpus.places), e^(-(d - 1) / NEIGHBOURS): what was
        added together is often cited together.
        """
        networks = complete_encoder(self.parts)
        columns = {name: self.unknown.copy() for name in ("words", "cosine", "encoder", "order")}
        for query, text in enumerate(self.queries.texts("context")):
            papers, words, _ = self.queries.elsewhere.cited(self.corpus, query, text, beside=True)
            if not len(papers):
                continue
            own = self.papers[query]
            same, weights = own[:, None] == papers, words + BESIDE_WEIGHT
            columns["words"][query] = np.where(same, words, 0).max(axis=1)
            if (places := self.corpus.places) is not None:
                near = np.exp((1 - np.abs(places[own][:, None] - places[papers])) / NEIGHBOURS)
                columns["order"][query] = np.where(same, 0, near).max(axis=1)
            cosines = {}
            if self.dense is not None and self.dense.similarity == "cosine":
                cosines["cosine"] = self.paper_vectors[query] @ self.dense.indexed_vectors(papers).T
            if networks is not None:
                cosines["encoder"] = networks.paper_vectors(own) @ networks.paper_vectors(papers).T
            for name, values in cosines.items():
                highest = np.where(same | np.isnan(values), -np.inf, values * weights).max(axis=1)
                columns[name][query] = np.where(np.isneginf(highest), np.nan, highest)
        return columns


def first_dense(parts: Mapping[str, Retriever]) -> DenseRetriever | None:
    """Return the first dense retriever, if any."""
    return next((part for part in parts.values() if isinstance(part, DenseRetriever)), None)


def first_network(parts: Mapping[str, Retriever]) -> NetworkRetriever | None:
    """Return the networks among the parts, if any."""
    return next((part for part in parts.values() if isinstance(part, NetworkRetriever)), None)


def complete_encoder(parts: Mapping[str, Retriever]) -> NetworkRetriever | None:
    """Return the network that has read all papers, if there is one."""
    part = first_network(parts)
    return part if part is not None and part.complete else None


def fill_missing_scores(scores: Floats, papers: NDArray[np.int32]) -> Floats:
    """Replace -inf, for papers that a retriever did not find, by the lowest score of the list [Q, K]."""
    mask = np.isfinite(scores) & (papers >= 0)
    lowest = np.where(mask, scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    return np.where(mask, scores, np.where(np.isfinite(lowest), lowest, 0)).astype(np.float32)


def is_listed(papers: NDArray[np.int32], rows: Ragged) -> Mask:
    """Return which papers [Q, K] are in their query's row [Q]; False for -1."""
    size, queries = int(max(papers.max(initial=0), rows.values.max(initial=0))) + 1, np.arange(len(rows))
    listed = rows.values + np.repeat(queries, rows.lengths) * size
    return np.isin(papers + queries[:, None] * size, listed) & (papers >= 0)


def is_relative(column: str) -> bool:
    """Whether a column's unit depends on corpus and query: scores of retrievers, and `Feature.relative`."""
    return column not in FEATURES or FEATURES[column].relative


def group_of(column: str) -> str:
    """Return the group of a column."""
    return FEATURES[column].group if column in FEATURES else RETRIEVERS


# Retrievers. Each has its score as a feature, by its name (Candidates.columns); further ones:


@feature(RETRIEVERS)
def encoder(x: Candidates) -> Floats:
    """Cosine of the passage with the paper by a network that has read all papers, [Q, K]."""
    part = complete_encoder(x.parts)
    return x.unknown if part is None else part.cosines(x.queries, x.papers)


@feature(RETRIEVERS)
def encoder_title(x: Candidates) -> Floats:
    """How well the title has the words of the passage, by the same network, [Q, K].

    Late interaction (ColBERT: Khattab and Zaharia 2020).
    """
    part = complete_encoder(x.parts)
    return x.unknown if part is None else part.title_scores(x.queries, x.papers)


@feature(RETRIEVERS)
def english_encoder(x: Candidates) -> Floats:
    """Cosine by the encoder of English, where one of other languages ranks in its place; NaN for scripts that
    it does not read, [Q, K]."""
    part = complete_encoder(x.parts)
    if part is None or part.english is None or not part.english.complete:
        return x.unknown
    is_read = part.english.reads(x.queries)[:, None]
    return np.where(is_read, part.english.cosines(x.queries, x.papers), np.float32(np.nan))


# Words that query and paper share.


@feature(WORDS)
def title_share(x: Candidates) -> NDArray[np.floating]:
    """Share of the title's idf in terms that are in the context, 0 to 1, [Q, K]."""
    return x.title_shares("context")


@feature(WORDS)
def section_title_share(x: Candidates) -> NDArray[np.floating]:
    """What 2,000 characters on each side of the mark add to `title_share`, [Q, K]; 0 if not known."""
    if x.queries.fields["section"].texts is x.queries.fields["context"].texts:
        return np.zeros(x.papers.shape, np.float32)
    return x.title_shares("section") - x.title_shares("context")


@feature(WORDS, relative=True)
def abstract_words(x: Candidates) -> Floats:
    """BM25 of the context's terms against the abstract, [Q, K]."""
    return x.product(x.terms(lambda distance: np.ones_like(distance, np.float32)), x.statistics.abstract)


@feature(WORDS, relative=True)
def abstract_near(x: Candidates) -> Floats:
    """The same, weighted by nearness to the mark, [Q, K]."""
    return x.product(x.terms(), x.statistics.abstract)


@feature(WORDS, relative=True)
def title_beginnings(x: Candidates) -> Floats:
    """BM25 of the first five letters of the context's words, by nearness, against those of the title, [Q, K].

    Other languages share them (formats.letters.cognate).
    """
    beginnings = x.statistics.beginnings.with_words(x.queries.new_words)
    text, term, distance = x.statistics.locate_terms(x.queries.words("context"), beginnings)
    return x.product(WeightedTexts(x.offsets(text), term, nearness(distance)), x.statistics.title_beginnings)


# Training contexts that cite the paper, without those of the citing paper; NaN if none does.


@feature(CITING, relative=True)
def citing_words(x: Candidates) -> Floats:
    """BM25 of the words before the mark against those of the most similar context that cites the paper.

    The nearer to the mark, the more they weigh, in both. [Q, K]
    """
    if TRAIN not in x.corpus.splits:  # those of full texts are no input (rerank.ranker.model)
        return x.unknown
    texts, citing = x.statistics.before, (x.statistics.citing, x.statistics.source)
    terms = x.terms(nearness_before)
    best = best_products(terms, texts, x.scratch, x.papers, *citing, x.queries.citing)[0][..., 0]
    return np.where(np.isneginf(best), np.float32(np.nan), best)


# Names of the paper in the context, d words from the mark: rarity / (1 + d / reach), from 0 (not mentioned)
# to 1 (no other paper has the name).


@feature(NAMES)
def name_near(x: Candidates) -> Floats:
    """An acronym, the title up to its colon, or a word of it with inner capitals or digits, [Q, K]."""
    return x.name_scores(x.statistics.title_names)


@feature(NAMES)
def initials_near(x: Candidates) -> Floats:
    """Initials of the title's words, [Q, K]."""
    return x.name_scores(x.statistics.initials)


@feature(NAMES)
def author_near(x: Candidates) -> Floats:
    """Surname of the first author, [Q, K]: weight * HALF / (HALF + d)."""
    words = capitalised_words(x.queries.texts("context"), x.query_statistics.usual_words(x.queries))
    return nearest_names(*words, x.statistics.first_authors, x.papers, HALF)


@feature(NAMES)
def year_near(x: Candidates) -> Floats:
    """Year of the paper: HALF / (HALF + d), 0 if it is not there, [Q, K]."""
    scores = np.zeros(x.papers.shape, np.float32)
    for query, years in enumerate(years_near(x.queries.texts("context"))):
        for year, distance in years.items():
            same = (x.corpus.years[x.papers[query]] == year) & (x.papers[query] >= 0)
            scores[query, same] = HALF / (HALF + distance)
    return scores


@feature(PASSAGES)
def passage_near(x: Candidates) -> Floats:
    """BM25 of the context's words, weighted by nearness to the mark, [Q, K]."""
    assert x.passages is not None
    return x.passages.best(x.queries, x.papers)


# Where else the draft cites the paper, or papers like it; NaN if unknown, or not in other passages.


@feature(DRAFT)
def known(x: Candidates) -> NDArray[np.floating]:
    """1 if the draft cites it elsewhere, else 0, [Q, K]."""
    listed = is_listed(x.papers, x.queries.known).astype(np.float32)
    return np.where(x.queries.known.lengths[:, None] > 0, listed, np.nan)


def _column_of(table: str, name: str) -> Function:
    """Return the function of a column of `Candidates.elsewhere` or `Candidates.beside`."""
    return lambda x: getattr(x, table)[name]


for name in ("count", "words", "distance"):
    FEATURES[f"elsewhere_{name}"] = Feature(DRAFT, _column_of("elsewhere", name))
for name in ("words", "cosine", "encoder", "order"):
    FEATURES[f"beside_{name}"] = Feature(DRAFT, _column_of("beside", name))
