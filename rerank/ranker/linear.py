"""The linear ranking model, and how it is fitted to candidate lists.

A list holds all candidates of a context, as in a search. The loss is the cross entropy between the cited
papers and the softmax over the list (ListNet: Cao et al. 2007). Measures are cross-fitted over citing papers:
the contexts of each are ranked by a model that was not trained on them.

Inputs are the features, centred within each list, and three gates: the retrievers' and the texts' features
again for candidates that the dense model was trained to find, and everything again by the share of candidates
that training contexts cite, and by the share of the library that is in the list. So the model learns how far
to trust what it knows, and a bibliography gets other weights than a large corpus.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import concat_ranges, offsets_of
from citerec.rerank.ranker.features import FEATURES, RETRIEVERS, is_relative
from citerec.retrieval.arrays import Floats, Mask

if TYPE_CHECKING:
    from citerec.rerank.settings import RankerSettings

BLOCK = 1 << 14
"""Candidates per block of the Hessian."""
DRAFT = "draft"
"""Group of features that the model does not use (rerank.ranker.confidence)."""
FLOOR = 0.5
"""Least deviation by which relative features are divided, as a share of that of training lists."""
GATED = (RETRIEVERS, "texts")
"""Groups whose features have weights of their own for familiar candidates."""
MIN_LISTS = 20
"""Minimum lists with a cited paper to fit a model."""


@dataclass(frozen=True)
class Lists:
    """Candidate lists of Q queries, as a search ranks them: n candidates in total, list by list.

    columns: F names; values: features [n, F], NaN if unknown; familiar: bool [n] (Candidates.familiar);
    offsets: [Q + 1], starts of the lists.
    """

    columns: Sequence[str]
    values: NDArray[np.floating]
    familiar: Mask
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def only(self, columns: Sequence[str]) -> Self:
        """Return the lists with these columns alone."""
        places = {column: place for place, column in enumerate(self.columns)}
        return replace(self, columns=list(columns), values=self.values[:, [places[one] for one in columns]])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[Q]"""
        return np.diff(self.offsets)

    @property
    def query(self) -> NDArray[np.int64]:
        """Index of each candidate's list, [n]."""
        return np.repeat(np.arange(len(self)), self.lengths)


@dataclass(frozen=True)
class TrainingLists(Lists):
    """Lists with their answers.

    papers: [n]; cited: bool [n]; citing: papers [Q]; count: cited papers [Q], found or not; variant: [Q], the
    variant of the corpus (rerank.ranker.training).
    """

    papers: NDArray[np.int32]
    cited: Mask
    citing: NDArray[np.int32]
    count: NDArray[np.int64]
    variant: NDArray[np.str_]

    def take(self, which: NDArray[np.integer] | Mask) -> TrainingLists:
        """Select lists by a mask [Q] or their indices."""
        rows = np.flatnonzero(which) if which.dtype == np.bool_ else which
        index, offsets = concat_ranges(self.offsets[rows], self.offsets[rows + 1])
        columns = self.values[index], self.familiar[index], offsets, self.papers[index], self.cited[index]
        return TrainingLists(self.columns, *columns, self.citing[rows], self.count[rows], self.variant[rows])

    def keep(self, candidates: Mask) -> TrainingLists:
        """Select candidates by a mask [n], at least one of each list."""
        offsets = offsets_of(np.add.reduceat(candidates, self.offsets[:-1], dtype=np.int64))
        columns = (getattr(self, name)[candidates] for name in ("values", "familiar", "papers", "cited"))
        values, familiar, papers, cited = columns
        of_queries = self.citing, self.count, self.variant
        return TrainingLists(self.columns, values, familiar, offsets, papers, cited, *of_queries)

    def drop_group(self, group: str) -> TrainingLists:
        """Return the lists without the columns of a feature group."""
        return self.only([column for column in self.columns if group_of(column) != group])

    @classmethod
    def concat(cls, parts: Sequence[TrainingLists]) -> TrainingLists:
        """Concatenate lists; a column that a part lacks is unknown there."""
        columns = list(dict.fromkeys(column for part in parts for column in part.columns))
        values = np.full((sum(len(part.papers) for part in parts), len(columns)), np.nan, np.float16)
        start = 0
        for part in parts:
            rows = slice(start, start + len(part.papers))
            values[rows, [columns.index(column) for column in part.columns]] = part.values
            start += len(part.papers)
        lengths = np.concatenate([part.lengths for part in parts])
        names = ("papers", "cited", "citing", "count", "variant")
        others = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        familiar = np.concatenate([part.familiar for part in parts])
        return cls(columns, values, familiar, offsets_of(lengths), *others)


def group_of(column: str) -> str:
    return FEATURES[column].group if column in FEATURES else RETRIEVERS


def centre(lists: Lists) -> tuple[Floats, Floats]:
    """Return the values less their list's mean, 0 if unknown, [n, F]; and their deviations [Q, F]."""
    known, starts = np.isfinite(lists.values), lists.offsets[:-1]
    values = np.where(known, lists.values, 0).astype(np.float32)
    count = np.maximum(np.add.reduceat(known, starts, axis=0, dtype=np.float32), 1)
    values -= (np.add.reduceat(values, starts, axis=0) / count)[lists.query]
    values[~known] = 0
    return values, np.sqrt(np.add.reduceat(values**2, starts, axis=0) / count)


def typical_deviations(lists: Lists) -> dict[str, float]:
    """Median deviation of each column over the lists where it varies; without those that never do."""
    _, deviations = centre(lists)
    found = {}
    for column, of_lists in zip(lists.columns, deviations.T, strict=True):
        varying = of_lists[of_lists > 1e-6]
        if len(varying):
            found[column] = float(np.median(varying))
    return found


@dataclass(frozen=True)
class LinearModel:
    """A linear model: weights of inputs by name, and the typical deviation of each column.

    Names of inputs are those of columns, also with FAMILIAR or a gate (_gates) before them. Unknown columns
    are ignored.
    """

    weights: Mapping[str, float]
    deviations: Mapping[str, float]

    def inputs(self, lists: Lists) -> tuple[list[str], Floats]:
        """Return names [I] and values [n, I] of the inputs."""
        columns, values = self._values(lists)
        gates = _gates(lists)
        found = np.empty((len(values), len(gates) * len(columns)), np.float32)
        for i, gate in enumerate(gates.values()):
            block = found[:, i * len(columns) : (i + 1) * len(columns)]
            np.multiply(values, gate[lists.query, None], out=block)
        return [gate + name for gate in gates for name in columns], found

    def scores(self, lists: Lists) -> Floats:
        """[n]"""
        columns, values = self._values(lists)
        weights = np.zeros((len(lists), len(columns)), np.float32)
        for prefix, gate in _gates(lists).items():
            of_gate = np.array([self.weights.get(prefix + name, 0.0) for name in columns], np.float32)
            weights += gate[:, None] * of_gate
        return np.einsum("ni,ni->n", values, weights[lists.query])

    def _values(self, lists: Lists) -> tuple[list[str], Floats]:
        """Return names and values [n, ...] of the inputs without gates of lists.

        Columns with a unit of their own are divided by their typical deviation, so that a rare difference
        stays as large as it is; relative ones by that of the list, but at least FLOOR times the typical one.
        """
        names = [column for column in lists.columns if column in self.deviations]
        values, deviations = centre(lists.only(names))
        typical = np.array([self.deviations[name] for name in names], np.float32)
        relative = np.array([is_relative(name) for name in names], np.bool_)
        scale = np.where(relative, np.hypot(deviations, FLOOR * typical), typical)
        values /= scale[lists.query]
        gated = [i for i, name in enumerate(names) if group_of(name) in GATED]
        values = np.concatenate([values, values[:, gated] * lists.familiar[:, None]], axis=1)
        return names + [FAMILIAR + names[i] for i in gated], values


FAMILIAR, CITED, SMALL, TEXTS = "familiar ", "cited ", "small ", "texts "
COVERED = 0.59
"""Share of a list's candidates that training contexts cite from which the list counts as fully covered.

About a quarter of the lists over all contexts of acl-scisumm-lcr reach it. Models fitted with 1 in its place
rank as well (docs/results/ranking.md), but those that were fitted with this value need it.
"""


def _gates(lists: Lists) -> dict[str, Floats]:
    """Return what the inputs of each list are multiplied by, [Q], by prefix.

    1; how well training contexts cover it, the root of the share of candidates that any cites, relative to
    COVERED, at most 1; the share of the library that it holds; and that of candidates with a full text.
    """
    first, columns, zeros = lists.offsets[:-1], list(lists.columns), np.zeros(len(lists), np.float32)
    gates = {"": np.ones(len(lists), np.float32), CITED: zeros, SMALL: zeros}
    if "unseen" in columns:
        seen = lists.values[:, columns.index("unseen")] == 0
        share = np.add.reduceat(seen, first, dtype=np.float32) / np.maximum(lists.lengths, 1)
        gates[CITED] = np.sqrt(np.minimum(share / np.float32(COVERED), 1))
    if "listed" in columns:
        gates[SMALL] = lists.values[first, columns.index("listed")].astype(np.float32)
    if "passage_words" in columns:
        gates[TEXTS] = share_with_text(lists)
    return gates


def share_with_text(lists: Lists) -> Floats:
    """Return the share of each list's candidates that have a full text, [Q]."""
    columns = list(lists.columns)
    if "passage_words" not in columns:
        return np.zeros(len(lists), np.float32)
    known = np.isfinite(lists.values[:, columns.index("passage_words")])
    counts = np.add.reduceat(known, lists.offsets[:-1], dtype=np.float32)
    return (counts / np.maximum(lists.lengths, 1)).astype(np.float32)


def fit_ranker(
    settings: RankerSettings, lists: TrainingLists, start: LinearModel | None = None
) -> LinearModel:
    """Fit a model to the lists; InputError if too few of them have a cited paper.

    start: a model whose weights it keeps where the lists do not speak against them, and whose deviations.
    """
    useful = lists.take(np.bincount(lists.query[lists.cited], minlength=len(lists)) > 0)
    if len(useful) < MIN_LISTS:
        raise InputError(
            f"model: fewer than {MIN_LISTS} queries have a cited paper among their candidates; use "
            "more contexts or other retrievers, or raise retriever.depth"
        )
    return fit_linear(settings, useful, start or LinearModel({}, {}))


def fit_linear(settings: RankerSettings, lists: TrainingLists, start: LinearModel) -> LinearModel:
    """Minimise the mean cross entropy plus l2 |w - start|^2."""
    deviations = {
        column: deviation
        for column, deviation in typical_deviations(lists).items()
        if group_of(column) != DRAFT
    } | dict(start.deviations)
    found = LinearModel(start.weights, deviations)
    return LinearModel({**start.weights, **_minimise(settings, lists, found)}, deviations)


def fit_group(settings: RankerSettings, lists: TrainingLists, model: LinearModel, group: str) -> LinearModel:
    """Fit the weights of a group of features, as `fit_linear`, with those of all others fixed."""
    part = lists.only([column for column in lists.columns if group_of(column) == group])
    added = LinearModel({}, typical_deviations(part))
    weights = _minimise(settings, lists, added, model.scores(lists))
    return LinearModel({**model.weights, **weights}, {**model.deviations, **added.deviations})


def _minimise(
    settings: RankerSettings, lists: TrainingLists, start: LinearModel, others: Floats | None = None
) -> dict[str, float]:
    """Return the weights of a model's inputs that minimise the loss, by Newton's method in a trust region.

    Conn, Gould and Toint 2000, section 7.3: about ten steps, where quasi-Newton methods take a hundred.
    others: scores [n] that are added to the model's.
    """
    from scipy.optimize import minimize  # not needed to rank
    from scipy.sparse import csr_matrix

    names, values = start.inputs(lists)
    fixed = np.zeros(len(values)) if others is None else others.astype(np.float64)
    cited = lists.cited.astype(np.float64)
    starts, sizes = lists.offsets[:-1], lists.lengths
    target = cited / np.repeat(np.add.reduceat(cited, starts), sizes)

    def softmax(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = (values @ weights.astype(np.float32)).astype(np.float64) + fixed
        scores -= np.repeat(np.maximum.reduceat(scores, starts), sizes)
        probabilities = np.exp(scores)
        sums = np.add.reduceat(probabilities, starts)
        return float(np.log(sums).sum() - target @ scores), probabilities / np.repeat(sums, sizes)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        entropy, probabilities = softmax(weights)
        gradient = ((probabilities - target).astype(np.float32) @ values) / len(sizes)
        change = weights - before
        penalty = settings.l2 * float(change @ change)
        return entropy / len(sizes) + penalty, gradient + 2 * settings.l2 * change

    def hessian(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        probabilities = softmax(weights)[1].astype(np.float32)
        places = np.arange(len(values)), lists.offsets
        means = csr_matrix((probabilities, *places), shape=(len(sizes), len(values))) @ values
        total = np.zeros((len(names), len(names)))
        for start in range(0, len(values), BLOCK):
            rows = slice(start, start + BLOCK)
            part = values[rows] * np.sqrt(probabilities[rows, None])
            total += part.T @ part
        return (total - means.T @ means) / len(sizes) + 2 * settings.l2 * np.eye(len(names))

    options = {"maxiter": settings.iterations, "gtol": 1e-5}
    before = np.array([start.weights.get(name, 0.0) for name in names])
    found = minimize(loss, before, jac=True, hess=hessian, method="trust-exact", options=options)
    return dict(zip(names, found.x.tolist(), strict=True))


def cross_fit(
    settings: RankerSettings, lists: TrainingLists, seed: int, start: LinearModel | None = None
) -> Floats:
    """Score all candidates [n] by cross-validation over citing papers (settings.folds)."""
    papers, place = np.unique(lists.citing, return_inverse=True)
    if len(papers) < settings.folds:
        raise InputError(
            f"model.folds={settings.folds}: the contexts have only {len(papers)} citing papers; "
            "use fewer folds"
        )
    fold = (np.random.default_rng(seed).permutation(len(papers)) % settings.folds)[place]
    scores = np.empty(len(lists.papers), np.float32)
    for i in range(settings.folds):
        scores[(fold == i)[lists.query]] = fit_ranker(settings, lists.take(fold != i), start).scores(
            lists.take(fold == i)
        )
    return scores


def measure_variants(lists: TrainingLists, scores: Floats) -> dict[str, dict[str, float]]:
    """Compute recall and MRR of each variant from the scores of all candidates."""
    found = {}
    for name in dict.fromkeys(lists.variant.tolist()):
        of = lists.variant == name
        sums = ranking_sums(lists.take(of), scores[of[lists.query]])
        found[str(name)] = {measure: value / int(np.count_nonzero(of)) for measure, value in sums.items()}
    return found


def ranking_sums(lists: TrainingLists, scores: Floats) -> dict[str, float]:
    """Sum recall and reciprocal rank over lists; papers missing from their list count as not found."""
    query = lists.query
    rank = np.empty(len(query), np.int64)
    rank[np.lexsort((lists.papers, -scores, query))] = np.arange(len(query)) - lists.offsets[query]
    rank, query = rank[lists.cited], query[lists.cited]
    sums = {f"recall@{k}": float((1 / lists.count[query[rank < k]]).sum()) for k in (10, 100)}
    first = np.full(len(lists), np.inf)
    np.minimum.at(first, query, rank + 1.0)
    return {**sums, "mrr": float((1 / first).sum())}


def model_hash(model: LinearModel, parameters: Mapping[str, float]) -> str:
    """Return a hash of a model's parameters and further ones."""
    content = [dict(model.weights), dict(model.deviations), dict(parameters)]
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()
