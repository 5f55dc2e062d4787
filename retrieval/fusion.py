"""Fusion of rankings: weighted sums of normalised scores or of reciprocal ranks, and tuning of the weights.

`Fusion` is a retriever that fuses others; `fuse_scores` fuses a reranker with its prefetcher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.base import Ranking, Retriever, top_k
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import check_counts

log = logging.getLogger(__name__)

RRF_CONSTANT = 60
"""Constant of reciprocal rank fusion (Cormack et al. 2009)."""
TUNED, EQUAL = "tuned", "equal"
VALIDATION = "val"
TUNING_QUERIES, CUTOFFS = 2000, (10, 100)
"""Maximum validation queries, and cutoffs of the mean recall, by which weights are tuned."""

_QUERIES = 32
"""Queries merged at a time, so that their arrays fit into the processor's caches."""


def normalise_scores(ranking: Ranking) -> Floats:
    """Distance of each score from the lowest of its query [Q, n], in standard deviations.

    The last paper of a ranking gets 0, like papers that it lacks. (The mean that z-scores subtract is the
    same for all papers of a query and changes no ranking.) If all scores are equal, each paper gets 1.
    """
    valid = ranking.papers >= 0
    scores = np.where(valid, ranking.scores, 0).astype(np.float64)
    lowest = np.where(valid, scores, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    above = np.where(valid, scores - np.where(np.isfinite(lowest), lowest, 0), 0)
    equal = above.max(axis=1, initial=0, keepdims=True) == 0
    papers = np.maximum(valid.sum(axis=1, keepdims=True), 1)
    mean = above.sum(axis=1, keepdims=True) / papers
    deviation = np.sqrt((np.where(valid, above - mean, 0) ** 2).sum(axis=1, keepdims=True) / papers)
    return np.where(equal, valid, above / np.where(equal, 1, deviation)).astype(np.float32)


def reciprocal_ranks(ranking: Ranking) -> Floats:
    """1 / (RRF_CONSTANT + rank) of each entry [Q, n], ranks from 1; 0 if there is no paper."""
    gains = (1 / (RRF_CONSTANT + np.arange(1, ranking.k + 1))).astype(np.float32)
    return np.where(ranking.papers >= 0, gains, np.float32(0))


@dataclass(frozen=True)
class MergedRankings:
    """The union of the papers of all parts, in the order of their rows.

    papers: int32 [Q, n], -1 for none. gains: float32 [Q, parts, n], the gain of a paper by each part, 0 if
    the part did not find it. found: bool [Q, parts, n].
    """

    papers: NDArray[np.int32]
    gains: Floats
    found: Mask

    def sums(self, weights: NDArray[np.floating]) -> Floats:
        """Weighted sums of the gains [Q, n]; -inf for papers that no part of positive weight found.

        weights: [Q or 1, parts].
        """
        weights = weights.astype(np.float64)
        total = weights[:, :1] * self.gains[:, 0]  # float64, so that the order of the parts does not matter
        for part in range(1, self.gains.shape[1]):
            total += weights[:, part, None] * self.gains[:, part]
        sums = total.astype(np.float32)
        if (weights > 0).all():
            sums[self.papers < 0] = -np.inf
        else:
            sums[~(self.found & (weights > 0)[:, :, None]).any(axis=1)] = -np.inf
        return sums


def merge_rankings(
    rankings: Sequence[Ranking], gains: Sequence[Floats]
) -> Iterator[tuple[slice, MergedRankings]]:
    """Yield batches of queries with the merged rankings of all parts.

    rankings: one per part [Q, n], n may differ, distinct papers in each row; gains: one [Q, n] per part.
    """
    part = np.repeat(np.arange(len(rankings)), [ranking.k for ranking in rankings])
    for start in range(0, len(rankings[0]), _QUERIES):
        rows = slice(start, start + _QUERIES)
        papers = np.concatenate([ranking.papers[rows] for ranking in rankings], axis=1)
        values = np.concatenate([part_gains[rows] for part_gains in gains], axis=1)
        queries, n = papers.shape
        # One integer (paper, column): numpy sorts integers far faster than it argsorts. -1 comes last.
        keys = papers.astype(np.uint32).astype(np.uint64) << np.uint64(32) | np.arange(n, dtype=np.uint64)
        keys.sort(axis=1)
        ascending = (keys >> np.uint64(32)).astype(np.uint32).view(np.int32)
        column = keys.astype(np.uint32).astype(np.int64)
        first = np.ones((queries, n), np.bool_)
        first[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
        to = np.maximum.accumulate(np.where(first, np.arange(n), 0), axis=1)
        flat = (np.arange(queries)[:, None] * len(rankings) + part[column]) * n + to
        shape = (queries, len(rankings), n)
        batch = MergedRankings(
            np.where(first, ascending, -1), np.zeros(shape, np.float32), np.zeros(shape, np.bool_)
        )
        batch.gains.ravel()[flat] = np.take_along_axis(values, column, axis=1)
        batch.found.ravel()[flat] = ascending >= 0
        yield rows, batch


def fuse(
    rankings: Sequence[Ranking], gains: Sequence[Floats], weights: NDArray[np.floating], k: int
) -> Ranking:
    """The k papers with the highest weighted sums of gains [Q, n]; weights: [Q or 1, parts]."""
    weights = np.broadcast_to(weights, (len(rankings[0]), len(rankings)))
    batches = [Ranking(np.empty((0, k), np.int32), np.empty((0, k), np.float32))]
    for rows, batch in merge_rankings(rankings, gains):
        sums = batch.sums(weights[rows])
        batches.append(top_k(batch.papers, sums, k, np.isneginf(sums)))
    return Ranking.concat(batches)


# Tuning on validation queries.


def sample_queries(corpus: Corpus, split: str, queries: int, seed: int) -> tuple[Rows, Ragged]:
    """Sample at most `queries` contexts [Q] of a split; also returns the papers that they cite.

    Raises InputError if the split is missing or empty.
    """
    population = corpus.split(split)
    if len(population) == 0:
        raise InputError(f"corpus {corpus.name}: the split {split!r} has no queries to tune on")
    rows = np.sort(np.random.default_rng(seed).permutation(len(population))[:queries])
    return population.contexts[rows], population.positives.take(rows)


def simplex(parts: int) -> NDArray[np.float64]:
    """Grid of weights [W, parts] that sum to 1, in steps of 0.05, or coarser for many parts.

    >>> simplex(3).shape
    (66, 3)
    """
    steps = {1: 1, 2: 20, 3: 10}.get(parts, 5)
    counts = [row for row in product(range(steps + 1), repeat=parts - 1) if sum(row) <= steps]
    return np.array([[*row, steps - sum(row)] for row in counts]) / steps


def recall_by_weights(
    rankings: Sequence[Ranking],
    gains: Sequence[Floats],
    wanted: Ragged,
    grid: NDArray[np.float64],
    cutoffs: Sequence[int],
) -> NDArray[np.float64]:
    """Mean recall at the cutoffs for each row of the grid [W, parts] and each query: [W, Q].

    rankings, gains: one per part [Q, n]; wanted: the cited papers [Q].
    """
    values = np.zeros((len(grid), len(wanted)))
    for rows, batch in merge_rankings(rankings, gains):
        count = len(batch.papers)
        cited = wanted.take(np.arange(rows.start, rows.start + count))
        query, target = np.repeat(np.arange(count), cited.lengths), cited.values[:, None]
        is_target = batch.papers[query] == target
        column, listed = is_target.argmax(axis=1), is_target.any(axis=1)
        before = batch.papers[query] < target
        for row, weights in zip(values, grid, strict=True):
            sums = batch.sums(weights[None])[query]
            own = np.take_along_axis(sums, column[:, None], axis=1)
            ranks = 1 + np.count_nonzero((sums > own) | ((sums == own) & before), axis=1)
            hit = listed & np.isfinite(own[:, 0])
            hits = sum((hit & (ranks <= k)).astype(np.float64) for k in cutoffs) / len(cutoffs)
            row[rows] = np.bincount(query, hits, count) / np.maximum(cited.lengths, 1)
    return values


def best_weights(values: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights [parts] with the highest mean value [W, Q]; ties go to the most even, then to the first."""
    means = values.mean(axis=1).round(9)
    ties = np.flatnonzero(means == means.max())
    return grid[ties[np.argmin((grid[ties] ** 2).sum(axis=1).round(9))]]


# A reranker and its prefetcher.


def fuse_scores(candidates: Ranking, scores: Floats, weight: float) -> NDArray[np.floating]:
    """Weighted sums of the z-scores of both stages [Q, K], -inf where there is no candidate.

    scores: the reranker's [Q, K]. weight: of the reranker, from 0 (prefetcher alone) to 1 (reranker alone,
    as in Gu et al. 2022).
    """
    if weight == 1:  # no sum: rounding would create ties
        return scores
    if weight == 0:
        order = -np.arange(candidates.k, dtype=np.float64)
        return np.where(candidates.papers >= 0, order, -np.inf)
    prefetched, reranked = (part.astype(np.float64) for part in stage_gains(candidates, scores))
    return np.where(candidates.papers >= 0, weight * reranked + (1 - weight) * prefetched, -np.inf)


def tune_weight(candidates: Ranking, scores: Floats, wanted: Ragged, cutoffs: Sequence[int] = (10,)) -> float:
    """The weight of the reranker, in steps of 0.05, with the highest mean recall at the cutoffs.

    wanted: the cited papers [Q].
    """
    grid, gains = simplex(2), stage_gains(candidates, scores)
    return float(best_weights(recall_by_weights([candidates] * 2, gains, wanted, grid, cutoffs), grid)[1])


def stage_gains(candidates: Ranking, scores: Floats) -> list[Floats]:
    """Gains of the prefetcher and of the reranker [Q, K], in the order of the candidates."""
    return [normalise_scores(candidates), normalise_scores(Ranking(candidates.papers, scores))]


# Several retrievers.


Recalls = Callable[[Corpus, Rows, Ragged, NDArray[np.float64]], NDArray[np.float64]]
"""(corpus, contexts [Q], cited papers [Q], grid [W, parts]) to recall_by_weights [W, Q]."""


class FusionWeights:
    """The weights of the parts of a retriever: fixed, equal, or tuned on the validation split.

    Tuning maximises the mean recall at CUTOFFS on TUNING_QUERIES queries sampled with `seed`.
    """

    def __init__(self, weights: str | Mapping[str, float], parts: Collection[str], seed: int) -> None:
        """Raises InputError for an invalid value."""
        self.parts, self.seed = list(parts), seed
        self.fixed = None if weights == TUNED else normalise_weights(weights, parts)

    def settings(self, retriever: Retriever) -> dict[str, Any]:
        """Everything the weights of a retriever depend on, as plain values."""
        if self.fixed is not None:
            return {"weights": self.fixed}
        return {"seed": self.seed, "weights": TUNED, "query": retriever.query_settings()}

    def values(self, retriever: Retriever) -> list[float]:
        """The weights of an indexed retriever, in the order of the parts."""
        weights = retriever.tuned["weights"] if self.fixed is None else self.fixed
        return [weights[name] for name in self.parts]

    def tune(self, name: str, corpus: Corpus, recalls: Recalls) -> dict[str, float]:
        """The best weight of each part on the validation split."""
        if VALIDATION not in corpus.splits:
            raise InputError(
                f"{name} tunes weights on split {VALIDATION!r}, which corpus {corpus.name} lacks; set "
                f"retriever.weights to {EQUAL} or to one weight for each of {', '.join(self.parts)}"
            )
        contexts, wanted = sample_queries(corpus, VALIDATION, TUNING_QUERIES, self.seed)
        grid = simplex(len(self.parts))
        values = recalls(corpus, contexts, wanted, grid)
        weights = dict(zip(self.parts, best_weights(values, grid).tolist(), strict=True))
        alone = [f"{values[grid[:, part] == 1].mean():.4f}" for part in range(len(self.parts))]
        log.info(
            f"{name}: weights {weights} by recall at {CUTOFFS} on {len(contexts):,} queries of "
            f"{VALIDATION}; parts alone: {', '.join(alone)}"
        )
        return weights


def normalise_weights(weights: str | Mapping[str, float], parts: Collection[str]) -> dict[str, float]:
    """Scale the weights of the parts to a sum of 1."""
    values = dict.fromkeys(parts, 1.0) if weights == EQUAL else weights
    if not isinstance(values, Mapping) or set(values) != set(parts):
        raise InputError(
            f"retriever.weights: {weights!r} is neither {TUNED} nor {EQUAL} nor one weight for each of "
            f"{', '.join(parts)}"
        )
    for name, weight in values.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < np.inf:
            raise InputError(f"retriever.weights.{name}: {weight!r} is not a non-negative number")
    total = sum(values.values())
    if total == 0:
        raise InputError("retriever.weights: at least one weight must be positive")
    return {name: float(values[name] / total) for name in parts}


class Fusion(Retriever):
    """Searches with several retrievers and fuses their rankings.

    parts: retrievers by name; `weights` refers to the names.
    Papers are ranked by the weighted sums of their normalised scores.
    depth: papers fetched from each part, independent of k so that the first papers do not change with k.
    Papers that no part has fetched cannot be found.
    weights: one per part; or `equal`; or `tuned` (FusionWeights), with `seed`.
    """

    name = "fusion"

    def __init__(
        self,
        parts: Mapping[str, Retriever],
        depth: int = 2000,
        weights: str | Mapping[str, float] = TUNED,
        seed: int = 0,
    ) -> None:
        """Raises InputError for an invalid value."""
        super().__init__()
        self.parts = dict(parts)
        if not self.parts:
            raise InputError("retriever.parts: name at least one retriever to fuse")
        self.join_parts(self.parts)
        self.per_pool = any(part.per_pool for part in self.parts.values())
        check_counts(depth=depth)
        self.depth = depth
        self.weights = FusionWeights(weights, self.parts, seed)

    def settings(self) -> dict[str, Any]:
        parts = {name: {"retriever": part.name, **part.settings()} for name, part in self.parts.items()}
        return {"parts": parts, "method": "convex", "depth": self.depth, **self.weights.settings(self)}

    def _index(self, corpus: Corpus) -> None:
        self.index_parts(self.parts, corpus)
        if self.weights.fixed is None:
            self.tuned["weights"] = self.weights.tune(self.name, corpus, self._recalls)

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        rankings, weights = self._rankings(queries, allowed), np.array([self.weights.values(self)])
        return fuse(rankings, list(map(normalise_scores, rankings)), weights, k)

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        """As Retriever.score, with scores normalised over the papers of a search without filters."""
        return self.search_allowed(queries, self.depth * len(self.parts), None).scores_of(papers)

    def _rankings(self, queries: Queries | Rows, allowed: Mask | None) -> list[Ranking]:
        """The ranking of each part, without the citing paper, whose score would distort the normalisation."""
        return [part.search_allowed(queries, self.depth, allowed) for part in self.parts.values()]

    def _recalls(
        self, corpus: Corpus, contexts: Rows, wanted: Ragged, grid: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        rankings = self._rankings(contexts, None)
        return recall_by_weights(rankings, list(map(normalise_scores, rankings)), wanted, grid, CUTOFFS)
