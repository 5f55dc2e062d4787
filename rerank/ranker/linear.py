"""The linear ranking model, and how it is fitted to candidate lists.

A list holds all candidates of a context, as in a search. The loss is the cross entropy between the cited
papers and the softmax over the list (ListNet: Cao et al. 2007). Measures are cross-fitted over citing papers:
the contexts of each are ranked by a model that was not trained on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import concat_ranges, offsets_of
from citerec.rerank.ranker.features import DRAFT, group_of, is_relative
from citerec.retrieval.arrays import Floats, Mask

if TYPE_CHECKING:
    from citerec.rerank.settings import RankerSettings

FLOOR = 0.5
"""Least deviation by which relative features are divided, as a share of their deviation in training lists."""
STEPS = 1000
"""Maximum steps to fit weights."""
BINS = 10
SURE = 0.5
"""Least probability of those first papers for which it is measured how many are right."""
MIN_LISTS = 20
"""Minimum lists with a cited paper to fit a model."""


@dataclass(frozen=True)
class Lists:
    """Candidate lists of Q queries, as a search ranks them: n candidates in total, list by list.

    columns: F names of features; values: [n, F], NaN if unknown; offsets: [Q + 1], starts of the lists.
    """

    columns: Sequence[str]
    values: NDArray[np.floating]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def only(self, columns: Sequence[str]) -> Self:
        """Return the lists with these columns alone."""
        places = {column: place for place, column in enumerate(self.columns)}
        values = self.values[:, [places[column] for column in columns]]
        return replace(self, columns=list(columns), values=values)

    def without(self, *columns: str) -> Self:
        """Return the lists without these columns."""
        return self.only([column for column in self.columns if column not in columns])

    def without_draft(self) -> Self:
        """Return the lists of the same queries as plain questions: nothing is known of a draft."""
        return self.without(*(column for column in self.columns if group_of(column) == DRAFT))

    def column(self, name: str) -> Floats:
        """Return the values of a feature [n]; NaN if the lists lack it."""
        if name not in self.columns:
            return np.full(len(self.values), np.nan, np.float32)
        return self.values[:, list(self.columns).index(name)].astype(np.float32)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Numbers of candidates, [Q]."""
        return np.diff(self.offsets)

    @property
    def query(self) -> NDArray[np.int64]:
        """Index of each candidate's list, [n]."""
        return np.repeat(np.arange(len(self)), self.lengths)


@dataclass(frozen=True)
class TrainingLists(Lists):
    """Lists with their answers.

    papers: rows [n]; cited: bool [n]; citing: papers [Q]; count: cited papers [Q], found or not; source: [Q],
    where the queries are from.
    """

    papers: NDArray[np.int32]
    cited: Mask
    citing: NDArray[np.int32]
    count: NDArray[np.int64]
    source: NDArray[np.str_]

    def take(self, which: NDArray[np.integer] | Mask) -> Self:
        """Select lists by a mask [Q] or their indices."""
        rows = np.flatnonzero(which) if which.dtype == np.bool_ else which
        index, offsets = concat_ranges(self.offsets[rows], self.offsets[rows + 1])
        return replace(
            self,
            values=self.values[index],
            offsets=offsets,
            papers=self.papers[index],
            cited=self.cited[index],
            citing=self.citing[rows],
            count=self.count[rows],
            source=self.source[rows],
        )

    def keep(self, candidates: Mask) -> Self:
        """Select candidates by a mask [n], at least one of each list."""
        return replace(
            self,
            values=self.values[candidates],
            offsets=offsets_of(np.add.reduceat(candidates, self.offsets[:-1], dtype=np.int64)),
            papers=self.papers[candidates],
            cited=self.cited[candidates],
        )

    @property
    def useful(self) -> Mask:
        """Which lists have a cited paper, [Q]."""
        return np.bincount(self.query[self.cited], minlength=len(self)) > 0

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
        others: dict[str, Any] = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(cls)
            if field.name not in ("columns", "values", "offsets")
        }
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(columns=columns, values=values, offsets=offsets_of(lengths), **others)


def centre(lists: Lists) -> tuple[Floats, Floats]:
    """Return the values less their list's mean, 0 if unknown, [n, F]; and their deviations [Q, F]."""
    is_known, starts = np.isfinite(lists.values), lists.offsets[:-1]
    values = np.where(is_known, lists.values, 0).astype(np.float32)
    count = np.maximum(np.add.reduceat(is_known, starts, axis=0, dtype=np.float32), 1)
    values -= (np.add.reduceat(values, starts, axis=0) / count)[lists.query]
    values[~is_known] = 0
    return values, np.sqrt(np.add.reduceat(values**2, starts, axis=0) / count)


def typical_deviations(lists: Lists) -> dict[str, float]:
    """Median deviation of each column over the lists where it varies; without those that never do."""
    _, deviations = centre(lists)
    typical = {}
    for column, by_list in zip(lists.columns, deviations.T, strict=True):
        varying = by_list[by_list > 1e-6]
        if len(varying):
            typical[column] = float(np.median(varying))
    return typical


@dataclass(frozen=True)
class LinearModel:
    """A linear model: the weight of each feature, and its typical deviation. Other columns are ignored."""

    weights: Mapping[str, float]
    deviations: Mapping[str, float]

    def inputs(self, lists: Lists) -> tuple[list[str], Floats]:
        """Return names [I] and values [n, I] of the inputs: features that are centred and scaled.

        Columns with a unit of their own are divided by their typical deviation, so that a rare difference
        stays as large as it is; relative ones by that of the list, but at least FLOOR times the typical one.
        """
        names = [column for column in lists.columns if column in self.deviations]
        values, deviations = centre(lists.only(names))
        typical = np.array([self.deviations[name] for name in names], np.float32)
        relative = np.array([is_relative(name) for name in names], np.bool_)
        scale = np.where(relative, np.hypot(deviations, FLOOR * typical), typical)
        values /= scale[lists.query]
        return names, values

    def scores(self, lists: Lists) -> Floats:
        """Return the score of each candidate, [n]."""
        names, values = self.inputs(lists)
        scores: Floats = values @ np.array([self.weights.get(name, 0.0) for name in names], np.float32)
        return scores


def fit_ranker(settings: RankerSettings, lists: TrainingLists) -> LinearModel:
    """Fit a model: minimise the mean cross entropy plus l2 |w|^2. What only a draft tells is not an input.

    Raises InputError if too few lists have a cited paper.
    """
    useful = lists.take(lists.useful).without_draft()
    if len(useful) < MIN_LISTS:
        raise InputError(
            f"model: fewer than {MIN_LISTS} queries have a cited paper among their candidates; use "
            "more contexts or other retrievers, or raise retriever.depth"
        )
    deviations = typical_deviations(useful)
    names, values = LinearModel({}, deviations).inputs(useful)
    weights = minimise(values, useful.offsets, useful.cited, settings.l2)
    return LinearModel(dict(zip(names, weights.tolist(), strict=True)), deviations)


def minimise(values: Floats, offsets: NDArray[np.int64], cited: Mask, l2: float) -> NDArray[np.float64]:
    """Return the weights [I] of inputs [n, I] with the least mean cross entropy of lists plus l2 |w|^2.

    offsets [Q + 1]: starts of the lists, each of which has a cited row.
    """
    from scipy.optimize import minimize  # not needed to rank

    starts, sizes = offsets[:-1], np.diff(offsets)
    share = cited.astype(np.float64)
    target = share / np.repeat(np.add.reduceat(share, starts), sizes)
    scale = 1 / np.maximum(values.std(axis=0, dtype=np.float64), 1e-9)  # of inputs, for fewer steps

    def loss(scaled: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = scaled * scale
        scores = (values @ weights.astype(np.float32)).astype(np.float64)
        scores -= np.repeat(np.maximum.reduceat(scores, starts), sizes)
        probabilities = np.exp(scores)
        sums = np.add.reduceat(probabilities, starts)
        probabilities /= np.repeat(sums, sizes)
        entropy = float(np.log(sums).sum() - target @ scores) / len(sizes)
        gradient = ((probabilities - target).astype(np.float32) @ values) / len(sizes)
        return entropy + l2 * float(weights @ weights), scale * (gradient + 2 * l2 * weights)

    options = {"maxiter": STEPS, "ftol": 1e-9, "gtol": 1e-6}
    least = minimize(loss, np.zeros(values.shape[1]), jac=True, method="L-BFGS-B", options=options)
    weights: NDArray[np.float64] = least.x * scale
    return weights


def folds_of(lists: TrainingLists, folds: int, seed: int) -> NDArray[np.int64]:
    """Divide lists into folds [Q], those of a citing paper together. InputError if there are too few."""
    papers, place = np.unique(lists.citing, return_inverse=True)
    if len(papers) < folds:
        raise InputError(
            f"model.folds={folds}: the contexts have only {len(papers)} citing papers; use fewer folds"
        )
    fold: NDArray[np.int64] = (np.random.default_rng(seed).permutation(len(papers)) % folds)[place]
    return fold


def cross_fit(
    settings: RankerSettings, lists: TrainingLists, seed: int, fitted: Mask | None = None
) -> Floats:
    """Score all candidates [n] by cross-validation over citing papers (settings.folds).

    fitted: lists [Q] that models may be fitted to; None: all.
    """
    fold, scores = folds_of(lists, settings.folds, seed), np.empty(len(lists.papers), np.float32)
    for i in range(settings.folds):
        held_out, others = lists.take(fold == i), (fold != i) & (True if fitted is None else fitted)
        scores[(fold == i)[lists.query]] = fit_ranker(settings, lists.take(others)).scores(held_out)
    return scores


def measure(lists: TrainingLists, scores: Floats, sure: bool = False) -> dict[str, dict[str, float]]:
    """Compute recall and MRR by source from the scores of all candidates [n].

    sure: also measure the probabilities of which the scores are the logarithms (`certainty`).
    """
    measures = {}
    for name in dict.fromkeys(lists.source.tolist()):
        chosen = lists.source == name
        part, values = lists.take(chosen), scores[chosen[lists.query]]
        sums = ranking_sums(part, values)
        measures[str(name)] = {key: value / len(part) for key, value in sums.items()}
        if sure:
            highest = np.maximum.reduceat(values, part.offsets[:-1])
            right = np.logical_or.reduceat(part.cited & (values == highest[part.query]), part.offsets[:-1])
            measures[str(name)] |= certainty(np.exp(highest), right)
    return measures


def certainty(sure: NDArray[np.floating], right: NDArray[Any]) -> dict[str, float]:
    """Return the expected calibration error of probabilities of answers [Q] over BINS, and the share of those
    of at least SURE, and how many of these are right."""
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    error = np.abs(np.bincount(place, sure - right)).sum() / len(sure)
    filled = sure >= SURE
    return {
        "ece": float(error),
        "sure": float(filled.mean()),
        "right": float(right[filled].mean()) if filled.any() else np.nan,
    }


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
