"""Features of candidate papers: columns with names, for queries and their candidates [Q, K] as arrays.

A feature is one function of `Candidates`, registered in a group, or a line of a table of products; the
retrievers bring columns of their own.
Where a source has nothing to say (no training contexts, no year) a value is NaN. `standardise` turns columns
into what a model reads: it does not depend on the units, so that a model can be taken to other data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from datasets.columns import Ragged, offsets_of
from datasets.errors import InputError
from rerank.evidence import (
    MOST_WORDS,
    NEARNESS,
    Evidence,
    Names,
    WeightedTexts,
    best_cosines,
    best_products,
    dot_products,
    keep_fields,
    nearest_names,
    nearness,
    run_hashes,
)
from retrieval.arrays import Floats, Mask
from retrieval.base import Retriever
from retrieval.dense import DenseRetriever
from retrieval.queries import Queries

Function = Callable[["Candidates"], NDArray[np.floating]]

RETRIEVERS, AUTHORS = "retrievers", "authors"
"""Groups: the columns of the retrievers; those that only a corpus which keeps authors has."""


@dataclass(frozen=True)
class Feature:
    """A column: its group, and the function that gives it [Q, K]."""

    group: str
    of: Function


FEATURES: dict[str, Feature] = {}


def feature(group: str) -> Callable[[Function], Function]:
    """Register a function as the column of its name."""

    def register(function: Function) -> Function:
        FEATURES[function.__name__] = Feature(group, function)
        return function

    return register


class TermRows(NamedTuple):
    """Terms of texts [n]: offsets [n + 1], terms, what each weighs; a term may be there more than once."""

    offsets: NDArray[np.int64]
    terms: NDArray[np.int32]
    weights: Floats


class Candidates:
    """Queries [Q] and their candidates [Q, K], rows of papers, -1 for none; parts: the indexed retrievers."""

    def __init__(
        self, evidence: Evidence, parts: Mapping[str, Retriever], queries: Queries, papers: NDArray[np.int32]
    ) -> None:
        self.evidence, self.parts, self.queries, self.papers = evidence, parts, queries, papers
        self.corpus = evidence.corpus
        self._reading = evidence.reading(queries)
        self._terms: dict[str, TermRows] = {}
        self._best: dict[str, Floats] = {}
        size = max(evidence.terms.size, len(evidence.pair_keys), len(evidence.papers))
        self._scratch = np.zeros(max(size, 1), np.float32)

    @property
    def has_authors(self) -> bool:
        """Whether the fields that the corpus keeps of papers are authors (data.field=authors)."""
        return "author" in str(self.corpus.settings.get("field")).lower()

    @cached_property
    def dense(self) -> DenseRetriever | None:
        """The retriever that makes vectors of contexts."""
        return first_dense(self.parts)

    def columns(self, groups: Sequence[str] | None = None) -> dict[str, NDArray[np.floating]]:
        """Every column [Q, K] of these groups (None: of all that the corpus has), in a fixed order."""
        if groups is None:
            groups = [group for group in all_groups() if group != AUTHORS or self.has_authors]
        found = self._of_parts() if RETRIEVERS in groups else {}
        return found | {name: one.of(self) for name, one in FEATURES.items() if one.group in groups}

    def _of_parts(self) -> dict[str, NDArray[np.floating]]:
        """PART.score, as it is; PART.rank: log(1 + rank in the list, from 0). Of the dense part also its
        scores of the context alone, and of the citing paper's title and abstract alone."""
        found: dict[str, NDArray[np.floating]] = {}
        for name, part in self.parts.items():
            scores = part.score(self.queries, self.papers)
            found[f"{name}.score"] = lowest_for_none(scores, self.papers)
            found[f"{name}.rank"] = log_ranks(scores)
            if part is self.dense and part.similarity == "cosine":
                for column, vectors in self.field_vectors.items():
                    cosines = (self.paper_vectors @ vectors[:, :, None])[:, :, 0]
                    found[f"{name}.{column}"] = lowest_for_none(cosines, self.papers)
        return found

    # Queries as rows of terms.

    def terms(self, part: str) -> TermRows:
        """A part of the queries: `context`, each place of a term weighing 1, or by nearness to the mark
        (NEARNESS); `pairs` of terms that follow each other there, by nearness; `citing_title` and
        `citing_abstract`, each place weighing 1."""
        if part not in self._terms:
            self._terms[part] = self._read(part)
        return self._terms[part]

    def _read(self, part: str) -> TermRows:
        if part.startswith("citing_"):
            words = self.queries.words(part.removeprefix("citing_"))
            found = self._reading.terms.of_word.take(words.values)
            ones = np.ones(len(found.values), np.float32)
            return TermRows(found.offsets[words.offsets], found.values, ones)
        if part == "pairs":
            text, place, weights = self._reading.pair_places(self.queries.words("context"))
            return TermRows(self.offsets(text), place.astype(np.int32), weights)
        text, term, distance = self._marked
        if part == "context":
            return TermRows(self.offsets(text), term, np.ones(len(term), np.float32))
        return TermRows(self.offsets(text), term, nearness(distance, *NEARNESS[part]))

    @cached_property
    def _marked(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        return self._reading.marked(self.queries.words("context"))

    def offsets(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each query's entries begin [Q + 1], of entries that ascend by query."""
        return offsets_of(np.bincount(queries, minlength=len(self.queries)))

    # Their vectors.

    @cached_property
    def paper_vectors(self) -> Floats:
        """Of the candidates [Q, K, D], as the dense part has them."""
        assert self.dense is not None
        return self.dense.stored(np.maximum(self.papers, 0).ravel()).reshape(*self.papers.shape, -1)

    @cached_property
    def field_vectors(self) -> dict[str, Floats]:
        """By the dense part: `context`, of the contexts alone, and `citing`, of the citing papers, [Q, D]."""
        assert self.dense is not None
        fields = {"context": ("context",), "citing": ("title", "abstract")}
        return {
            name: self.dense.encode_queries(keep_fields(self.queries, *of)) for name, of in fields.items()
        }

    # Their products with what belongs to the candidates.

    def product(self, queries: TermRows, texts: WeightedTexts) -> Floats:
        """BM25 [Q, K] of queries and a text of each paper."""
        return dot_products(*queries, texts.offsets, texts.terms, texts.weights, self._scratch, self.papers)

    def best(self, name: str) -> Floats:
        """The highest [Q, K, BEST] of what cites a candidate in training, but for the citing paper: BM25 of
        `contexts`, whole, or of their parts (NEARNESS, `pairs`); cosines of `vectors` of contexts, or of
        `papers`, by title and abstract. NaN where nothing does."""
        if name not in self._best:
            kernel = self._best_cosines if name in ("vectors", "papers") else self._best_products
            self._best[name] = _filled(kernel(name))
        return self._best[name]

    def _best_products(self, name: str) -> Floats:
        there, texts = self.evidence, getattr(self.evidence, name)
        rows = (*self.terms("context" if name == "contexts" else name), *(texts.offsets, texts.terms))
        of = (self.papers, there.citing.offsets, there.citing.values, there.source, self.queries.citing)
        values: Floats = best_products(*rows, texts.weights, self._scratch, *of)[0]
        return values

    def _best_cosines(self, name: str) -> Floats:
        there = self.evidence
        field, table, cited, source = (
            ("context", there.context_vectors, there.citing, there.source)
            if name == "vectors"
            else ("citing", there.paper_vectors, there.cited_by, there.papers)
        )
        if self.dense is None or len(table) == 0:
            return np.full((*self.papers.shape, 1), np.nan, np.float32)
        of = (self.papers, cited.offsets, cited.values, source, self.queries.citing)
        values: Floats = best_cosines(self.field_vectors[field], table, *of)
        return values

    @cached_property
    def citations(self) -> NDArray[np.float64]:
        """Training papers that cite each candidate, but for the citing paper; NaN where there are none."""
        cited = self.evidence.cited_by
        if not self.evidence.has_contexts:
            return np.full(self.papers.shape, np.nan)
        found = cited.lengths[self.papers].astype(np.float64)
        own = self.queries.citing
        for query in np.flatnonzero((own >= 0) & np.isin(own, self.evidence.papers)):
            rows = np.flatnonzero(cited.values == np.searchsorted(self.evidence.papers, own[query]))
            mine = np.searchsorted(cited.offsets, rows, side="right") - 1
            found[query] -= np.isin(self.papers[query], mine)
        return found

    @cached_property
    def known_cosines(self) -> Floats:
        """Cosines of each candidate's vector to those of the known papers: the highest, and their mean
        [Q, K, 2]. It does not count as like itself."""
        found = np.full((*self.papers.shape, 2), np.nan, np.float32)
        if self.dense is None or self.dense.similarity != "cosine":
            return found
        for query in np.flatnonzero(self.queries.known.lengths):
            known = self.queries.known[int(query)]
            cosines = self.paper_vectors[query] @ self.dense.stored(known).T
            cosines[self.papers[query][:, None] == known] = np.nan
            there = ~np.isnan(cosines).all(axis=1)
            found[query, there, 0] = np.nanmax(cosines[there], axis=1)
            found[query, there, 1] = np.nanmean(cosines[there], axis=1)
        return found

    @cached_property
    def _runs(self) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """Runs of words of the contexts: offsets [Q + 1], hashes, ascending, and words from the mark."""
        words = self.queries.words("context")
        far = np.abs(self.evidence.distances(words))
        text = np.repeat(np.arange(len(words)), words.lengths)
        parts: list[tuple[Any, Any, Any]] = []
        for length in range(1, MOST_WORDS + 1):
            starts = np.arange(max(len(text) - length + 1, 0))
            starts = starts[text[starts] == text[starts + length - 1]]
            hashes = run_hashes(words.values, starts, length)
            parts.append((text[starts], hashes, np.minimum(far[starts], far[starts + length - 1])))
        texts, hashes, distances = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.lexsort((distances, hashes, texts))
        return self.offsets(texts), hashes[order], distances[order]

    def named(self, names: Names, reach: float) -> Floats:
        """The most telling name of each candidate that is in the context: its weight / (1 + d / reach),
        d words from the mark; 0 where none is there."""
        there = (names.offsets, names.hashes, names.weights)
        return nearest_names(*self._runs, *there, self.papers, reach)

    @cached_property
    def years_before(self) -> NDArray[np.float64]:
        """Years from each candidate to the citing paper, NaN where one is unknown."""
        years, own = self.corpus.years[self.papers], self.queries.years[:, None]
        return np.where((years > 0) & (own > 0), own - years, np.nan)


def first_dense(parts: Mapping[str, Retriever]) -> DenseRetriever | None:
    """The first retriever by an encoder, None if there is none."""
    return next((part for part in parts.values() if isinstance(part, DenseRetriever)), None)


def _filled(best: Floats) -> Floats:
    """Values of the best [Q, K, BEST]: of fewer the last is repeated; NaN where there is none."""
    for i in range(1, best.shape[2]):
        best[..., i] = np.where(np.isneginf(best[..., i]), best[..., i - 1], best[..., i])
    return np.where(np.isneginf(best), np.float32(np.nan), best)


def lowest_for_none(scores: Floats, papers: NDArray[np.int32]) -> Floats:
    """Scores [Q, K]; what a retriever does not find, -inf, counts as the lowest of its list."""
    there = np.isfinite(scores) & (papers >= 0)
    lowest = np.where(there, scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    return np.where(there, scores, np.where(np.isfinite(lowest), lowest, 0)).astype(np.float32)


def log_ranks(scores: Floats) -> Floats:
    """log(1 + rank) of scores in their list [Q, K], ranks from 0."""
    order = np.argsort(-scores, axis=1, kind="stable")
    places = np.log1p(np.arange(scores.shape[1], dtype=np.float32))
    ranks = np.empty(order.shape, np.float32)
    np.put_along_axis(ranks, order, np.broadcast_to(places, order.shape), axis=1)
    return ranks


def is_listed(papers: NDArray[np.int32], rows: Ragged) -> Mask:
    """Which papers [Q, K] are in the row of their query [Q]; none where there is none (-1)."""
    size, places = int(max(papers.max(initial=0), rows.values.max(initial=0))) + 1, np.arange(len(rows))
    wanted = rows.values + np.repeat(places, rows.lengths) * size
    return np.isin(papers + places[:, None] * size, wanted) & (papers >= 0)


def standardise(columns: Mapping[str, NDArray[np.floating]], papers: NDArray[np.int32]) -> Floats:
    """Columns [Q, K] as [Q, K, F] in standard deviations from the mean of their list.

    What is NaN is 0, as the mean; so is a column that says the same of all.
    """
    values = np.stack([np.asarray(column, np.float64) for column in columns.values()], axis=2)
    there = np.isfinite(values) & (papers >= 0)[:, :, None]
    values[~there] = 0
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    values -= values.sum(axis=1, keepdims=True) / count
    values[~there] = 0
    deviation = np.sqrt((values**2).sum(axis=1, keepdims=True) / count)
    return (values / np.where(deviation > 1e-6, deviation, np.inf)).astype(np.float32)


def all_groups() -> tuple[str, ...]:
    return tuple(dict.fromkeys([RETRIEVERS, *(one.group for one in FEATURES.values())]))


def check_groups(groups: Sequence[str] | None) -> tuple[str, ...] | None:
    """The groups of features as a tuple, None for all; InputError for an unknown one and for none."""
    if groups is None:
        return None
    known = all_groups()
    for group in [groups] if isinstance(groups, str) else groups or [""]:
        if group not in known:
            raise InputError(f"retriever.features: {group!r} is not one of {', '.join(known)}")
    return (groups,) if isinstance(groups, str) else tuple(groups)


# BM25 of a part of the query (Candidates.terms) against a text of the paper, as PART_TEXT. Unit: sums of idf.


def _product(x: Candidates, part: str, text: str) -> Floats:
    return x.product(x.terms(part), getattr(x.evidence, text))


def _products(group: str, part: str, *texts: str) -> None:
    for text in texts:
        FEATURES[f"{part}_{text}"] = Feature(group, partial(_product, part=part, text=text))


_products("texts", "context", "title", "abstract")
_products("texts", "near", "title", "abstract")
_products("texts", "left", "title")
_products("texts", "right", "title")


@feature("texts")
def title_share(x: Candidates) -> NDArray[np.floating]:
    """Share of the title's idf, 0 to 1, whose terms are in the context."""
    offsets, term, _ = x.terms("context")
    text = np.repeat(np.arange(len(x.queries)), np.diff(offsets))
    size = max(x.evidence.terms.size, 1)
    text, term = np.divmod(np.unique(text * size + term), size)
    there = TermRows(x.offsets(text), term.astype(np.int32), np.ones(len(term), np.float32))
    return x.product(there, x.evidence.title) / np.maximum(x.evidence.title_weights[x.papers], 1e-9)


@feature("texts")
def title_share_near(x: Candidates) -> NDArray[np.floating]:
    """The same, terms by nearness to the mark."""
    return x.product(x.terms("near"), x.evidence.title) / np.maximum(x.evidence.title_weights[x.papers], 1e-9)


@feature("texts")
def pairs_title(x: Candidates) -> Floats:
    """Pairs of terms of the context, by nearness to the mark, against those of the title."""
    return x.product(x.terms("pairs"), x.evidence.title_pairs)


_products("citing", "citing_title", "title", "abstract")
_products("citing", "citing_abstract", "title", "abstract")


# What cites the paper in training, but for the citing paper (Candidates.best): NAME_best, the most like the
# query; NAME_mean, of the three most like it. Units: sums of idf, cosines.


def _best(group: str, name: str) -> None:
    FEATURES[f"{name}_best"] = Feature(group, lambda x: x.best(name)[..., 0])
    if name != "beside":  # whose mean is no column
        FEATURES[f"{name}_mean"] = Feature(group, lambda x: x.best(name).mean(axis=2))


for _name in ("contexts", "near", "left", "beside", "right", "pairs"):
    _best("contexts", _name)
for _name in ("vectors", "papers"):
    _best("vectors", _name)


# Names of the paper in the context, d words from the mark: rarity / (1 + d / reach). Unit: 0 (not there) to 1
# (no other paper has it).


def _named(column: str, names: str, reach: float) -> None:
    FEATURES[column] = Feature("names", lambda x: x.named(getattr(x.evidence, names), reach))


_named("name_near", "title_names", 3.0)
_named("name_beside", "title_names", 1.0)
_named("name_there", "title_names", 1e9)  # anywhere
_named("initials_near", "initials", 3.0)
_named("abstract_name_near", "abstract_names", 3.0)


# The paper itself.


@feature("popularity")
def popularity(x: Candidates) -> NDArray[np.floating]:
    """log(1 + training papers that cite it, but for the citing paper)."""
    return np.log1p(x.citations)


@feature("popularity")
def unseen(x: Candidates) -> NDArray[np.floating]:
    """1: no other training paper cites it."""
    return np.where(np.isnan(x.citations), np.nan, x.citations == 0)


@feature("age")
def age(x: Candidates) -> NDArray[np.floating]:
    """log(1 + years from the paper to the citing paper)."""
    return np.log1p(np.maximum(x.years_before, 0))


@feature("age")
def recent(x: Candidates) -> NDArray[np.floating]:
    """1: at most a year older than the citing paper."""
    return np.where(np.isnan(x.years_before), np.nan, (x.years_before <= 1) & (x.years_before >= 0))


@feature("age")
def later(x: Candidates) -> NDArray[np.floating]:
    """1: of a later year than the citing paper."""
    return np.where(np.isnan(x.years_before), np.nan, x.years_before < 0)


@feature(AUTHORS)
def shared_names(x: Candidates) -> NDArray[np.floating]:
    """log(1 + authors of the citing paper who are authors of the paper too); NaN where either has none."""
    if not x.has_authors:
        return np.full(x.papers.shape, np.nan)
    names, citing, size = x.corpus.fields, x.queries.citing, len(x.corpus.field_names)
    own, theirs = names.take(citing.clip(min=0)), names.take(x.papers.clip(min=0).ravel())
    wanted = own.values + np.repeat(np.arange(len(own)), own.lengths) * size
    pair = np.repeat(np.arange(len(theirs)), theirs.lengths)
    shared = np.isin(theirs.values + pair // x.papers.shape[1] * size, wanted)
    count = np.bincount(pair[shared], minlength=x.papers.size).reshape(x.papers.shape)
    known = (theirs.lengths > 0).reshape(x.papers.shape) & (x.papers >= 0)
    known &= ((own.lengths > 0) & (citing >= 0))[:, None]
    return np.where(known, np.log1p(count), np.nan)


# What the draft is known to cite at other places. NaN where nothing is known.


def _if_known(x: Candidates, values: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.where(x.queries.known.lengths[:, None] > 0, values, np.nan)


@feature("draft")
def known(x: Candidates) -> NDArray[np.floating]:
    """1: the draft cites it elsewhere."""
    return _if_known(x, is_listed(x.papers, x.queries.known).astype(np.float32))


@feature("draft")
def known_best(x: Candidates) -> Floats:
    """Cosine of its vector to that of the nearest other paper that the draft cites."""
    return x.known_cosines[..., 0]


@feature("draft")
def known_mean(x: Candidates) -> Floats:
    """Mean cosine of its vector to those of the papers that the draft cites."""
    return x.known_cosines[..., 1]


@feature("draft")
def cited_together(x: Candidates) -> NDArray[np.floating]:
    """Co-citation: sum of log(1 + n) over the training papers that cite it, n papers of the draft being cited
    there too, divided by the root of their number."""
    cited, there = x.evidence.cited_by, x.queries.known
    papers = cited.take(there.values)
    rows = np.repeat(np.repeat(np.arange(len(there)), there.lengths), papers.lengths)
    own = x.queries.citing[rows]
    others = (x.evidence.papers[papers.values] != own) | (own < 0)
    ones, shape = np.ones(int(others.sum()), np.float32), (len(there), len(x.evidence.papers))
    times = csr_matrix((ones, (rows[others], papers.values[others])), shape=shape)
    times.data = np.log1p(times.data)
    ones = np.ones(len(cited.values), np.float32)
    counted = TermRows(times.indptr.astype(np.int64), times.indices, times.data)
    votes = x.product(counted, WeightedTexts(cited.offsets, cited.values, ones, ones[:1]))
    return _if_known(x, votes / np.sqrt(np.maximum(cited.lengths[x.papers], 1)))


@feature("length")
def length(x: Candidates) -> NDArray[np.floating]:
    """log(1 + words of title and abstract)."""
    return x.evidence.lengths[x.papers]


@feature("length")
def title_length(x: Candidates) -> NDArray[np.floating]:
    """log(1 + words of the title)."""
    return x.evidence.title_lengths[x.papers]


@feature("length")
def title_only(x: Candidates) -> NDArray[np.floating]:
    """1 for a paper without an abstract, else 0."""
    lengths, titles = x.evidence.lengths[x.papers], x.evidence.title_lengths[x.papers]
    return (lengths == titles).astype(np.float32)
