"""Features of candidate papers: named columns [Q, K] for queries and their candidates.

A feature is a function of `Candidates` that is registered in a group; retrievers add columns of their own.
Values are NaN if their source is missing (no training contexts, no abstract, no year). `rerank.ranker.linear`
turns columns into a model's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged, offsets_of
from citerec.rerank.ranker.author_names import HALF, capitalised_words, usual_words, years_near
from citerec.rerank.ranker.corpus_statistics import NEARNESS, CorpusStatistics, keep_fields
from citerec.rerank.ranker.paper_names import MAX_NAME_WORDS, Names, nearest_names, ngram_hashes, word_hashes
from citerec.rerank.ranker.texts import (
    CitingTexts,
    TermRows,
    WeightedTexts,
    best_cosines,
    best_products,
    dot_products,
    nearness,
)
from citerec.retrieval.arrays import Floats, Mask
from citerec.retrieval.base import Retriever
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.queries import SURROUNDINGS, Queries

Function = Callable[["Candidates"], NDArray[np.floating]]

RETRIEVERS, PASSAGES = "retrievers", "passages"
"""Groups of the columns of the retrievers, and of full texts."""
BESIDE_WEIGHT = 0.3
"""Weight of a paper that is cited beside the context, apart from the words in common."""
NEIGHBOURS = 3.0
"""Papers beyond the next one, in the library's order, at which being near to one cited beside counts 1/e."""


@dataclass(frozen=True)
class Feature:
    """A column: its group, and the function that computes it, [Q, K]."""

    group: str
    compute: Function
    relative: bool = False
    """whether its unit depends on corpus and query, as BM25's does; else all lists are comparable"""


FEATURES: dict[str, Feature] = {}


def feature(group: str, relative: bool = False) -> Callable[[Function], Function]:
    """Register a function as the feature of its name."""

    def register(function: Function) -> Function:
        FEATURES[function.__name__] = Feature(group, function, relative)
        return function

    return register


class PassageScores(Protocol):
    """The passages of full texts that some of a corpus's papers have."""

    def find(self, queries: Queries, depth: int) -> Ragged:
        """Return the papers [Q] whose passages have most of the words of each query, best first."""

    def best(self, queries: Queries, papers: NDArray[np.int32], vectors: Floats | None) -> dict[str, Floats]:
        """Return the scores of the best passage of papers [Q, K], by column of the group PASSAGES; NaN for
        papers without a full text. vectors: of the contexts, [Q, D]."""


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
        self._query_statistics = statistics.with_query_words(queries)
        self._terms: dict[str, TermRows] = {}
        self._best: dict[str, Floats] = {}
        self._authors: dict[str, Floats] = {}
        size = max(
            statistics.terms.size,
            statistics.beginnings.size,
            len(statistics.pair_keys),
            len(statistics.papers),
        )
        self._scratch = np.zeros(max(size, 1), np.float32)

    @cached_property
    def dense(self) -> DenseRetriever | None:
        """The retriever that encodes contexts as vectors."""
        return first_dense(self.parts)

    def columns(self, groups: Sequence[str] | None = None) -> dict[str, NDArray[np.floating]]:
        """Compute the columns [Q, K] of groups (None: all that the corpus supports), in a fixed order."""
        if groups is None:
            groups = all_groups()
        found = self._retriever_columns() if RETRIEVERS in groups else {}
        left_out = {PASSAGES} if self.passages is None else set()
        wanted = set(groups) - left_out
        return found | {name: one.compute(self) for name, one in FEATURES.items() if one.group in wanted}

    def _retriever_columns(self) -> dict[str, NDArray[np.floating]]:
        """Compute PART.score and PART.rank, log(1 + rank), ranks from 0. For the dense retriever, also the
        scores of the context alone, and of the citing paper's title and abstract alone; for further dense
        ones, those of the sentence alone."""
        found: dict[str, NDArray[np.floating]] = {}
        for name, part in self.parts.items():
            if part.comparable:  # has a feature of its own
                continue
            scores = part.score(self.queries, self.papers)
            found[f"{name}.score"] = fill_missing_scores(scores, self.papers)
            found[f"{name}.rank"] = log_ranks(scores)
            if part is self.dense and part.similarity == "cosine":
                for column, vectors in self.field_vectors.items():
                    found[f"{name}.{column}"] = fill_missing_scores(self.cosines(vectors), self.papers)
            elif isinstance(part, DenseRetriever):
                scores = part.score(self.queries.sentences(), self.papers)
                found[f"{name}.sentence"] = fill_missing_scores(scores, self.papers)
        return found

    # Terms of queries.

    def terms(self, part: str) -> TermRows:
        """Return the terms of a part of the queries: `context`, SURROUNDINGS, `citing_title` or
        `citing_abstract`, each occurrence with weight 1; a part of the context by nearness to the mark
        (NEARNESS); or `pairs` of its adjacent terms or `beginnings` of its words, by nearness."""
        if part not in self._terms:
            self._terms[part] = self._read_terms(part)
        return self._terms[part]

    def _read_terms(self, part: str) -> TermRows:
        if part.startswith("citing_"):
            words = self.queries.words(part.removeprefix("citing_"))
            terms = self._query_statistics.terms.word_terms.take(words.values)
            ones = np.ones(len(terms.values), np.float32)
            return TermRows(terms.offsets[words.offsets], terms.values, ones)
        if part == "beginnings":
            beginnings = self.statistics.beginnings.with_words(self.queries.new_words)
            text, term, distance = self.statistics.locate_terms(self.queries.words("context"), beginnings)
            return TermRows(self.offsets(text), term, nearness(distance))
        if part == "pairs":
            text, pair, weights = self._query_statistics.locate_pairs(self.queries.words("context"))
            return TermRows(self.offsets(text), pair.astype(np.int32), weights)
        text, term, distance = self._locate(part) if part in SURROUNDINGS else self._context_terms
        if part in NEARNESS:
            return TermRows(self.offsets(text), term, nearness(distance, *NEARNESS[part]))
        return TermRows(self.offsets(text), term, np.ones(len(term), np.float32))

    @cached_property
    def _context_terms(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        return self._locate("context")

    def _locate(self, field: str) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        return self._query_statistics.locate_terms(self.queries.words(field))

    def offsets(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the offsets [Q + 1] of entries that are sorted by query."""
        return offsets_of(np.bincount(queries, minlength=len(self.queries)))

    # Vectors.

    @cached_property
    def paper_vectors(self) -> Floats:
        """Vectors of the candidates in the dense retriever, [Q, K, D]."""
        assert self.dense is not None
        return self.dense.indexed_vectors(np.maximum(self.papers, 0).ravel()).reshape(*self.papers.shape, -1)

    @cached_property
    def field_vectors(self) -> dict[str, Floats]:
        """Vectors [Q, D] of the contexts alone (`context`) and of the citing papers alone (`citing`)."""
        assert self.dense is not None
        fields = {"context": ("context",), "citing": ("title", "abstract")}
        return {
            name: self.dense.encode_queries(keep_fields(self.queries, *of)) for name, of in fields.items()
        }

    def cosines(self, vectors: Floats) -> Floats:
        """Cosines [Q, K] of vectors [Q, D] with the candidates'."""
        found: Floats = (self.paper_vectors @ vectors[:, :, None])[:, :, 0]
        return found

    # Comparisons of queries with candidates.

    def is_cut(self, field: str) -> bool:
        """Whether a field of SURROUNDINGS has more text than the context."""
        return self.queries.fields[field].texts is not self.queries.fields["context"].texts

    def title_shares(self, field: str) -> NDArray[np.floating]:
        """Share of the title's idf in terms that are in a field of the query, [Q, K]."""
        offsets, term, _ = self.terms(field)
        text = np.repeat(np.arange(len(self.queries)), np.diff(offsets))
        size = max(self.statistics.terms.size, 1)
        text, term = np.divmod(np.unique(text * size + term), size)
        terms = TermRows(self.offsets(text), term.astype(np.int32), np.ones(len(term), np.float32))
        return self.share_of_titles(terms)

    def share_of_titles(self, terms: TermRows) -> NDArray[np.floating]:
        weights = np.maximum(self.statistics.title_weights[self.papers], 1e-9)
        return self.product(terms, self.statistics.title) / weights

    def product(self, queries: TermRows, texts: WeightedTexts) -> Floats:
        """Score a text of each candidate for the queries by BM25, [Q, K]."""
        return dot_products(queries, texts.rows, self._scratch, self.papers)

    def best(self, name: str) -> Floats:
        """Return the highest similarities [Q, K, TOP] of the query to what cites a candidate in training,
        except its own citing paper: BM25 of `contexts` or their parts (NEARNESS, `pairs`), or cosines of the
        `vectors` of contexts or of citing `papers`. NaN if nothing cites it."""
        if name not in self._best:
            kernel = self._best_cosines if name in ("vectors", "papers") else self._best_products
            self._best[name] = _fill_missing(kernel(name))
        return self._best[name]

    def _best_products(self, name: str) -> Floats:
        statistics, texts = self.statistics, getattr(self.statistics, name)
        terms = self.terms("context" if name == "contexts" else name)
        citing = CitingTexts(statistics.citing.offsets, statistics.citing.values, statistics.source)
        own = self.queries.citing
        values: Floats = best_products(terms, texts.rows, self._scratch, self.papers, citing, own)[0]
        return values

    def _best_cosines(self, name: str) -> Floats:
        statistics = self.statistics
        field, table, cited, source = (
            ("context", statistics.context_vectors, statistics.citing, statistics.source)
            if name == "vectors"
            else ("citing", statistics.paper_vectors, statistics.cited_by, statistics.papers)
        )
        if self.dense is None or len(table) == 0:
            return np.full((*self.papers.shape, 1), np.nan, np.float32)
        citing = CitingTexts(cited.offsets, cited.values, source)
        vectors, own = self.field_vectors[field], self.queries.citing
        values: Floats = best_cosines(vectors, table, self.papers, citing, own)
        return values

    @cached_property
    def best_passages(self) -> dict[str, Floats]:
        """Scores of the best passage of each candidate's full text [Q, K]."""
        assert self.passages is not None
        by_cosine = self.dense is not None and self.dense.similarity == "cosine"
        vectors = self.field_vectors["context"] if by_cosine else None
        return self.passages.best(self.queries, self.papers, vectors)

    @cached_property
    def citations(self) -> NDArray[np.float64]:
        """Training papers that cite each candidate, except the citing paper; NaN without training papers."""
        cited = self.statistics.cited_by
        if not self.statistics.has_contexts:
            return np.full(self.papers.shape, np.nan)
        found = cited.lengths[self.papers].astype(np.float64)
        own = self.queries.citing
        for query in np.flatnonzero((own >= 0) & np.isin(own, self.statistics.papers)):
            rows = np.flatnonzero(cited.values == np.searchsorted(self.statistics.papers, own[query]))
            cited_rows = np.searchsorted(cited.offsets, rows, side="right") - 1
            found[query] -= np.isin(self.papers[query], cited_rows)
        return found

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

    def name_scores(self, names: Names, reach: float) -> Floats:
        """Return the highest weight / (1 + d / reach) of a candidate's names in the context, d words from the
        mark; 0 without any."""
        name_rows = (names.offsets, names.hashes, names.weights)
        return nearest_names(*self._ngrams, *name_rows, self.papers, reach)

    def author_scores(self, authors: str) -> Floats:
        """Return weight * HALF / (HALF + d) of the authors whose surname is d words from the mark."""
        if authors not in self._authors:
            names = getattr(self.statistics, authors)
            rows = (names.offsets, names.hashes, names.weights)
            self._authors[authors] = nearest_names(*self._capitalised, *rows, self.papers, HALF)
        return self._authors[authors]

    @cached_property
    def _capitalised(self) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        return capitalised_words(
            self.queries.texts("context"), usual_words(self._query_statistics, self.queries)
        )

    @cached_property
    def year_scores(self) -> Floats:
        """HALF / (HALF + d) for candidates whose year is d words from the mark, else 0."""
        scores = np.zeros(self.papers.shape, np.float32)
        for query, years in enumerate(years_near(self.queries.texts("context"))):
            for year, distance in years.items():
                same = (self.corpus.years[self.papers[query]] == year) & (self.papers[query] >= 0)
                scores[query, same] = HALF / (HALF + distance)
        return scores

    @cached_property
    def familiar(self) -> Mask:
        """Candidates that the dense model was trained to find, [Q, K]; if it does not say, those that
        training contexts cite."""
        found = None if self.dense is None else self.dense.familiar(self.papers)
        offsets = self.statistics.citing.offsets
        return offsets[self.papers + 1] > offsets[self.papers] if found is None else found

    @cached_property
    def elsewhere(self) -> dict[str, Floats]:
        """How other passages of the drafts cite each candidate [Q, K] (the features elsewhere_...)."""
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
        found = {"count": np.log(np.maximum(count, 1)), "words": words, "distance": np.log(distance)}
        return {name: np.where(count > 0, values, np.float32(np.nan)) for name, values in found.items()}

    @cached_property
    def beside(self) -> dict[str, Floats]:
        """What passages beside the context cite (the features beside_...), [Q, K]."""
        shape, networks = self.papers.shape, complete_encoder(self.parts)
        names = ("words", "cosine", "encoder", "order")
        found = {name: np.full(shape, np.nan, np.float32) for name in names}
        for query, text in enumerate(self.queries.texts("context")):
            papers, words = self.queries.elsewhere.cited_beside(self.corpus, query, text)
            if not len(papers):
                continue
            own = self.papers[query]
            same, weights = own[:, None] == papers, words + BESIDE_WEIGHT
            found["words"][query] = np.where(same, words, 0).max(axis=1)
            if (places := self.corpus.places) is not None:
                near = np.exp((1 - np.abs(places[own][:, None] - places[papers])) / NEIGHBOURS)
                found["order"][query] = np.where(same, 0, near).max(axis=1)
            cosines = {}
            if self.dense is not None and self.dense.similarity == "cosine":
                cosines["cosine"] = self.paper_vectors[query] @ self.dense.indexed_vectors(papers).T
            if networks is not None:
                cosines["encoder"] = networks.paper_vectors(own) @ networks.paper_vectors(papers).T
            for name, values in cosines.items():
                highest = np.where(same | np.isnan(values), -np.inf, values * weights).max(axis=1)
                found[name][query] = np.where(np.isneginf(highest), np.nan, highest)
        return found

    @cached_property
    def years_before(self) -> NDArray[np.float64]:
        """Years from each candidate to the citing paper; NaN if unknown."""
        years, own = self.corpus.years[self.papers], self.queries.years[:, None]
        return np.where((years > 0) & (own > 0), own - years, np.nan)


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


def _fill_missing(best: Floats) -> Floats:
    """Repeat the last of the best [Q, K, TOP] if there are fewer; NaN without any."""
    for i in range(1, best.shape[2]):
        best[..., i] = np.where(np.isneginf(best[..., i]), best[..., i - 1], best[..., i])
    return np.where(np.isneginf(best), np.float32(np.nan), best)


def fill_missing_scores(scores: Floats, papers: NDArray[np.int32]) -> Floats:
    """Replace -inf, for papers that a retriever did not find, by the lowest score of the list [Q, K]."""
    mask = np.isfinite(scores) & (papers >= 0)
    lowest = np.where(mask, scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    return np.where(mask, scores, np.where(np.isfinite(lowest), lowest, 0)).astype(np.float32)


def log_ranks(scores: Floats) -> Floats:
    """Return log(1 + rank) of the scores within their list [Q, K], ranks from 0."""
    order = np.argsort(-scores, axis=1, kind="stable")
    log_positions = np.log1p(np.arange(scores.shape[1], dtype=np.float32))
    ranks = np.empty(order.shape, np.float32)
    np.put_along_axis(ranks, order, np.broadcast_to(log_positions, order.shape), axis=1)
    return ranks


def is_listed(papers: NDArray[np.int32], rows: Ragged) -> Mask:
    """Return which papers [Q, K] are in their query's row [Q]; False for -1."""
    size, queries = int(max(papers.max(initial=0), rows.values.max(initial=0))) + 1, np.arange(len(rows))
    listed = rows.values + np.repeat(queries, rows.lengths) * size
    return np.isin(papers + queries[:, None] * size, listed) & (papers >= 0)


def is_relative(column: str) -> bool:
    """Whether a column's unit depends on corpus and query: scores of retrievers, and `Feature.relative`."""
    return FEATURES[column].relative if column in FEATURES else not column.endswith(".rank")


def all_groups() -> tuple[str, ...]:
    return tuple(dict.fromkeys([RETRIEVERS, *(one.group for one in FEATURES.values())]))


def check_groups(groups: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the feature groups as a tuple, None for all; InputError for an unknown or empty group."""
    if groups is None:
        return None
    known = all_groups()
    for group in [groups] if isinstance(groups, str) else groups or [""]:
        if group not in known:
            raise InputError(f"retriever.features: {group!r} is not one of {', '.join(known)}")
    return (groups,) if isinstance(groups, str) else tuple(groups)


@feature(RETRIEVERS)
def encoder(x: Candidates) -> Floats:
    """Cosine of the passage with the paper by a network that has read all papers."""
    part = complete_encoder(x.parts)
    return np.full(x.papers.shape, np.nan, np.float32) if part is None else part.cosines(x.queries, x.papers)


@feature(RETRIEVERS)
def encoder_title(x: Candidates) -> Floats:
    """How well the title has the words of the passage, by the same network (late interaction)."""
    part = complete_encoder(x.parts)
    unknown = np.full(x.papers.shape, np.nan, np.float32)
    return unknown if part is None else part.title_scores(x.queries, x.papers)


# PART_TEXT: BM25 of a part of the query (Candidates.terms) against a text of the paper; NaN if the paper
# lacks it. Unit: sums of idf.


def _part_product(x: Candidates, part: str, text: str) -> Floats:
    texts = getattr(x.statistics, text)
    missing = texts.offsets[x.papers] == texts.offsets[x.papers + 1]
    return np.where(missing, np.float32(np.nan), x.product(x.terms(part), texts))


def _add_products(group: str, part: str, *texts: str) -> None:
    for text in texts:
        FEATURES[f"{part}_{text}"] = Feature(group, partial(_part_product, part=part, text=text), True)


_add_products("texts", "context", "title", "abstract")
_add_products("texts", "near", "title", "abstract")
_add_products("texts", "left", "title")
_add_products("texts", "right", "title")


@feature("texts")
def title_share(x: Candidates) -> NDArray[np.floating]:
    """Share of the title's idf in terms that are in the context, 0 to 1."""
    return x.title_shares("context")


@feature("texts")
def title_share_near(x: Candidates) -> NDArray[np.floating]:
    """Like `title_share`, with terms weighted by nearness to the mark."""
    return x.share_of_titles(x.terms("near"))


_add_products("texts", "beginnings", "title_beginnings")


@feature("texts", relative=True)
def pairs_title(x: Candidates) -> Floats:
    """BM25 of pairs of adjacent terms in the context, by nearness to the mark, against those of the title."""
    return x.product(x.terms("pairs"), x.statistics.title_pairs)


# What the text around the context adds to it: 0 if no more text is known.


_OfField = Callable[[Candidates, str], NDArray[np.floating]]


def _added(x: Candidates, field: str, compute: _OfField) -> NDArray[np.floating]:
    if not x.is_cut(field):
        return np.zeros(x.papers.shape, np.float32)
    return compute(x, field) - compute(x, "context")


def _field_cosines(x: Candidates, field: str) -> Floats:
    if x.dense is None or x.dense.similarity != "cosine":
        return np.full(x.papers.shape, np.nan, np.float32)
    if field == "context":
        return x.cosines(x.field_vectors[field])
    alone = keep_fields(x.queries.with_context(x.queries.fields[field]), "context")
    return x.cosines(x.dense.encode_queries(alone))


def _add_surroundings(column: str, field: str, compute: _OfField) -> None:
    FEATURES[column] = Feature("surroundings", partial(_added, field=field, compute=compute))


for _name in SURROUNDINGS:
    _add_surroundings(f"{_name}_title_share", _name, Candidates.title_shares)
    _add_surroundings(f"{_name}_cosine", _name, _field_cosines)

_add_products("citing", "citing_title", "title", "abstract")
_add_products("citing", "citing_abstract", "title", "abstract")


# Similarity of the query to what cites the paper in training, except the citing paper (Candidates.best): the
# best (NAME_best) and the mean of the best three (NAME_mean). Units: sums of idf, cosines.


def _add_best(group: str, name: str, relative: bool) -> None:
    FEATURES[f"{name}_best"] = Feature(group, lambda x: x.best(name)[..., 0], relative)
    if name != "beside":  # its mean is not a feature
        FEATURES[f"{name}_mean"] = Feature(group, lambda x: x.best(name).mean(axis=2), relative)


for _name in ("contexts", "near", "left", "beside", "right", "pairs"):
    _add_best("contexts", _name, True)
for _name in ("vectors", "papers"):
    _add_best("vectors", _name, False)


# Names of the paper in the context, d words from the mark: rarity / (1 + d / reach), from 0 (not mentioned)
# to 1 (no other paper has the name).


def _add_names(column: str, names: str, reach: float) -> None:
    FEATURES[column] = Feature("names", lambda x: x.name_scores(getattr(x.statistics, names), reach))


_add_names("name_near", "title_names", 3.0)
_add_names("name_beside", "title_names", 1.0)
_add_names("name_there", "title_names", 1e9)  # anywhere
_add_names("initials_near", "initials", 3.0)
_add_names("abstract_name_near", "abstract_names", 3.0)


# The best passage of the paper's full text; NaN without one. Units: sums of idf, cosines.


@feature(PASSAGES, relative=True)
def passage_words(x: Candidates) -> Floats:
    """BM25 of the context."""
    return x.best_passages["words"]


@feature(PASSAGES, relative=True)
def passage_near(x: Candidates) -> Floats:
    """BM25 of the context's words, weighted by nearness to the mark."""
    return x.best_passages["near"]


@feature(PASSAGES)
def passage_cosine(x: Candidates) -> Floats:
    """Cosine of the context alone in the dense retriever."""
    return x.best_passages["cosine"]


# The paper itself.


@feature("popularity")
def popularity(x: Candidates) -> NDArray[np.floating]:
    """log(1 + training papers that cite it, except the citing paper)."""
    return np.log1p(x.citations)


@feature("popularity")
def unseen(x: Candidates) -> NDArray[np.floating]:
    """1 if no other training paper cites it, else 0."""
    return np.where(np.isnan(x.citations), np.nan, x.citations == 0)


@feature("age")
def age(x: Candidates) -> NDArray[np.floating]:
    """log(1 + years from the paper to the citing paper)."""
    return np.log1p(np.maximum(x.years_before, 0))


@feature("age")
def recent(x: Candidates) -> NDArray[np.floating]:
    """1 if it is at most a year older than the citing paper, else 0."""
    return np.where(np.isnan(x.years_before), np.nan, (x.years_before <= 1) & (x.years_before >= 0))


@feature("age")
def later(x: Candidates) -> NDArray[np.floating]:
    """1 if it is from a later year than the citing paper, else 0."""
    return np.where(np.isnan(x.years_before), np.nan, x.years_before < 0)


# Authors and year of the paper beside the mark, as `names`.


@feature("authors")
def first_author_near(x: Candidates) -> Floats:
    """Surname of the first author near the mark, as a name with reach 3."""
    return x.author_scores("first_authors")


@feature("authors")
def other_author_near(x: Candidates) -> Floats:
    """Surname of another author near the mark."""
    return x.author_scores("other_authors")


@feature("authors")
def year_near(x: Candidates) -> Floats:
    """Year of the paper near the mark: 3 / (3 + words between)."""
    return x.year_scores


@feature("authors")
def author_and_year(x: Candidates) -> Floats:
    """Product of the surname's and the year's nearness."""
    first, other = x.author_scores("first_authors"), x.author_scores("other_authors")
    return np.maximum(first, other) * x.year_scores


# Where else the draft cites the paper, or papers like it; NaN if unknown, or not in other passages. Only
# rerank.ranker.confidence reads these.


@feature("draft")
def known(x: Candidates) -> NDArray[np.floating]:
    """1 if the draft cites it elsewhere, else 0."""
    listed = is_listed(x.papers, x.queries.known).astype(np.float32)
    return np.where(x.queries.known.lengths[:, None] > 0, listed, np.nan)


@feature("draft")
def elsewhere_count(x: Candidates) -> Floats:
    """log of the number of passages that cite it."""
    return x.elsewhere["count"]


@feature("draft")
def elsewhere_words(x: Candidates) -> Floats:
    """Highest cosine of the context's words with those of a passage that cites it."""
    return x.elsewhere["words"]


@feature("draft")
def elsewhere_distance(x: Candidates) -> Floats:
    """log of the least distance to a passage that cites it, in passages."""
    return x.elsewhere["distance"]


@feature("draft")
def beside_words(x: Candidates) -> Floats:
    """Highest cosine of the context's words with those of a passage beside it that cites it; 0 if none."""
    return x.beside["words"]


@feature("draft")
def beside_cosine(x: Candidates) -> Floats:
    """Highest cosine in the dense retriever with another paper that a passage beside the context cites, times
    BESIDE_WEIGHT and the cosine of the passages' words."""
    return x.beside["cosine"]


@feature("draft")
def beside_encoder(x: Candidates) -> Floats:
    """The same with cosines of the network that has read all papers."""
    return x.beside["encoder"]


@feature("draft")
def beside_order(x: Candidates) -> Floats:
    """How near the paper stands, in the library's order (Corpus.places), to another one that a passage beside
    the context cites: e^(-(d - 1) / NEIGHBOURS). What was added together is often cited together."""
    return x.beside["order"]


@feature("library")
def listed(x: Candidates) -> Floats:
    """Share of the library's papers that are candidates of the query; only tells how small the library is."""
    count = np.count_nonzero(x.papers >= 0, axis=1, keepdims=True).astype(np.float32)
    return np.broadcast_to(count / max(x.corpus.total_papers, 1), x.papers.shape)


@feature("length")
def title_length(x: Candidates) -> NDArray[np.floating]:
    """log(1 + words of the title)."""
    return x.statistics.title_lengths[x.papers]
