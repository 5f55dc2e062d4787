"""The linear ranking model, and how it is fitted to candidate lists.

A list holds all candidates of a context, as in a search. The loss is the cross entropy between the cited
papers and the softmax over the list (ListNet: Cao et al. 2007). Measures are cross-fitted over citing papers:
the contexts of each are ranked by a model that was not trained on them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import concat_ranges
from citerec.datasets.errors import InputError
from citerec.rerank.features import FEATURES, RETRIEVERS
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.arrays import Floats, Mask, Rows

BLOCK = 1 << 14
"""Candidates per block of the Hessian."""
IN_DOMAIN, NO_CONTEXTS, OUT_OF_DOMAIN, DRAFT = "in_domain", "no_contexts", "out_of_domain", "draft"
"""Models for corpora with training contexts; without them, but with words that the dense retriever knows; and
of another field. NAME-draft is the variant for queries whose draft has known citations elsewhere."""
MIN_LISTS = 20
"""Minimum lists with a cited paper to fit a model."""


@dataclass(frozen=True)
class Lists:
    """Candidate lists of Q queries, as a search ranks them: n candidates in total, list by list.

    columns: F names; values: float16 [n, F]; papers: [n]; cited: bool [n]; offsets: [Q + 1], starts of the
    lists; queries: their numbers [Q]; citing: papers [Q]; count: cited papers [Q], found or not.
    """

    columns: Sequence[str]
    values: NDArray[np.float16]
    papers: NDArray[np.int32]
    cited: Mask
    offsets: NDArray[np.int64]
    queries: Rows
    citing: NDArray[np.int32]
    count: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[Q]"""
        return np.diff(self.offsets)

    @property
    def query(self) -> NDArray[np.int64]:
        """Index of each candidate's list, [n]."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, which: Mask) -> Lists:
        """Select lists by a mask [Q]."""
        rows = np.flatnonzero(which)
        index, offsets = concat_ranges(self.offsets[rows], self.offsets[rows + 1])
        of_queries = self.queries[rows], self.citing[rows], self.count[rows]
        return Lists(
            self.columns, self.values[index], self.papers[index], self.cited[index], offsets, *of_queries
        )

    def drop_group(self, group: str) -> Lists:
        """Return the lists without the columns of a feature group."""
        kept = [i for i, column in enumerate(self.columns) if group_of(column) != group]
        return replace(self, columns=[self.columns[i] for i in kept], values=self.values[:, kept])


def group_of(column: str) -> str:
    return FEATURES[column].group if column in FEATURES else RETRIEVERS


@dataclass(frozen=True)
class LinearModel:
    """A linear model: weights of standardised columns by name; unknown columns are ignored."""

    weights: Mapping[str, float]

    def scores(self, columns: Sequence[str], values: Floats) -> Floats:
        """values [..., F] -> [...]"""
        return np.asarray(values @ np.array([self.weights.get(name, 0.0) for name in columns], np.float32))


def fit_ranker(settings: RankerSettings, lists: Lists, seed: int) -> LinearModel:
    """Fit a model to the lists; InputError if too few of them have a cited paper."""
    useful = lists.take(np.bincount(lists.query[lists.cited], minlength=len(lists)) > 0)
    if len(useful) < MIN_LISTS:
        raise InputError(
            f"model: fewer than {MIN_LISTS} queries have a cited paper among their candidates; use "
            "more contexts or other retrievers, or raise retriever.depth"
        )
    return fit_linear(settings, drop_groups(useful, settings.drop, seed))


def drop_groups(lists: Lists, share: float, seed: int) -> Lists:
    """Zero the columns of each feature group in a random share of the lists, independently per group."""
    if share == 0:
        return lists
    groups, values = np.array([group_of(column) for column in lists.columns]), lists.values.copy()
    for group in set(groups.tolist()) - {RETRIEVERS}:
        group_seed = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=4).digest(), "little")
        keys = ((seed, group_seed, query) for query in lists.queries.tolist())
        drawn = np.array([np.random.default_rng(key).random() < share for key in keys])
        values[np.ix_(drawn[lists.query], groups == group)] = 0
    return replace(lists, values=values)


def fit_linear(settings: RankerSettings, lists: Lists) -> LinearModel:
    """Minimise the mean cross entropy plus l2 |w|^2 by Newton's method in a trust region.

    Conn, Gould and Toint 2000, section 7.3: about ten steps, where quasi-Newton methods take a hundred.
    """
    from scipy.optimize import minimize  # not needed to rank
    from scipy.sparse import csr_matrix

    values, cited = lists.values.astype(np.float32), lists.cited.astype(np.float64)
    starts, sizes = lists.offsets[:-1], lists.lengths
    target = cited / np.repeat(np.add.reduceat(cited, starts), sizes)

    def softmax(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = (values @ weights.astype(np.float32)).astype(np.float64)
        scores -= np.repeat(np.maximum.reduceat(scores, starts), sizes)
        probabilities = np.exp(scores)
        sums = np.add.reduceat(probabilities, starts)
        return float(np.log(sums).sum() - target @ scores), probabilities / np.repeat(sums, sizes)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        entropy, probabilities = softmax(weights)
        gradient = ((probabilities - target).astype(np.float32) @ values) / len(sizes)
        penalty = settings.l2 * float(weights @ weights)
        return entropy / len(sizes) + penalty, gradient + 2 * settings.l2 * weights

    def hessian(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        probabilities = softmax(weights)[1].astype(np.float32)
        places = np.arange(len(values)), lists.offsets
        means = csr_matrix((probabilities, *places), shape=(len(sizes), len(values))) @ values
        total = np.zeros((len(lists.columns), len(lists.columns)))
        for start in range(0, len(values), BLOCK):
            rows = slice(start, start + BLOCK)
            part = values[rows] * np.sqrt(probabilities[rows, None])
            total += part.T @ part
        return (total - means.T @ means) / len(sizes) + 2 * settings.l2 * np.eye(len(lists.columns))

    options = {"maxiter": settings.iterations, "gtol": 1e-5}
    start = np.zeros(len(lists.columns))
    found = minimize(loss, start, jac=True, hess=hessian, method="trust-exact", options=options)
    return LinearModel(dict(zip(lists.columns, found.x.tolist(), strict=True)))


def cross_fit(settings: RankerSettings, lists: Lists, seed: int) -> dict[str, float]:
    """Compute recall and MRR by cross-validation over citing papers."""
    papers, place = np.unique(lists.citing, return_inverse=True)
    if len(papers) < settings.folds:
        raise InputError(
            f"model.folds={settings.folds}: the contexts have only {len(papers)} citing papers; "
            "use fewer folds"
        )
    fold = (np.random.default_rng(seed).permutation(len(papers)) % settings.folds)[place]
    sums = Counter[str]()
    for i in range(settings.folds):
        model = fit_ranker(settings, lists.take(fold != i), seed)
        sums.update(ranking_sums(model, lists.take(fold == i)))
    return {name: value / len(lists) for name, value in sums.items()}


def ranking_sums(model: LinearModel, lists: Lists) -> dict[str, float]:
    """Sum recall and reciprocal rank over lists; papers missing from their list count as not found."""
    scores, query = model.scores(lists.columns, lists.values.astype(np.float32)), lists.query
    rank = np.empty(len(query), np.int64)
    rank[np.lexsort((lists.papers, -scores, query))] = np.arange(len(query)) - lists.offsets[query]
    rank, query = rank[lists.cited], query[lists.cited]
    sums = {f"recall@{k}": float((1 / lists.count[query[rank < k]]).sum()) for k in (10, 100)}
    first = np.full(len(lists), np.inf)
    np.minimum.at(first, query, rank + 1.0)
    return {**sums, "mrr": float((1 / first).sum())}


def models_hash(models: Mapping[str, LinearModel]) -> str:
    """Return a hash of the models' parameters."""
    content = {name: dict(model.weights) for name, model in models.items()}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()
