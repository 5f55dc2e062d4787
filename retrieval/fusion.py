"""The retriever that fuses what other retrievers find, with weights tuned on validation."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.errors import InputError
from retrieval.base import Ranking, Retriever
from retrieval.tuning import (
    NORMALISATIONS,
    VALIDATION,
    best_weights,
    fused,
    normalised,
    recall_cutoff,
    recalls,
    reciprocal_ranks,
    sampled,
    simplex,
)

log = logging.getLogger(__name__)

METHODS = ("convex", "rrf")
CONTEXT_LENGTH = "context_length"
TUNED, EQUAL = "tuned", "equal"


class Fusion(Retriever):
    """Searches with several retrievers and fuses what they find.

    parts: retrievers by the names that weights are given to.
    method: `convex` (sums of scores) or `rrf` (sums of reciprocal ranks).
    normalise: the unit of scores, of NORMALISATIONS, for `convex`; rank_constant: the constant of `rrf`.
    depth: papers taken of each part, whatever k is, so that the first papers do not depend on how many are
    asked for. More than all parts have found is not to be had.
    weights: of each part, `equal`, or `tuned`: what is best for `measure` (recall@k, or the mean of several)
    on `queries` of the validation split, drawn by `seed`.
    by: tuned weights may depend on the query: `context_length` (words), or the name of a part: the score of
    the best paper that it finds. The sample is cut into `buckets` of equal size by it, with weights of their
    own.
    """

    name = "fusion"

    def __init__(
        self,
        parts: Mapping[str, Retriever],
        method: str = "convex",
        normalise: str = "zscore",
        rank_constant: float = 60,
        depth: int = 2000,
        weights: str | Mapping[str, float] = TUNED,
        by: str | None = None,
        buckets: int = 3,
        queries: int = 2000,
        measure: str | Sequence[str] = ("recall@10", "recall@100"),
        seed: int = 0,
    ) -> None:
        """Raises InputError for a value that is not one of those above."""
        super().__init__()
        self.parts = dict(parts)
        if not self.parts:
            raise InputError("retriever.parts: there is none to fuse")
        _choice("method", method, METHODS)
        _choice("normalise", normalise, NORMALISATIONS)
        if by is not None:
            _choice("by", by, (CONTEXT_LENGTH, *self.parts))
        for key, value, least in (("depth", depth, 1), ("buckets", buckets, 2), ("queries", queries, 1)):
            if type(value) is not int or value < least:
                raise InputError(f"retriever.{key}: {value!r} is no whole number from {least} on")
        if not isinstance(rank_constant, int | float) or not 0 <= rank_constant < np.inf:
            raise InputError(f"retriever.rank_constant: {rank_constant!r} is no number from 0 on")
        self.method, self.normalise, self.constant = method, normalise, rank_constant
        self.depth, self.by, self.buckets, self.queries, self.seed = depth, by, buckets, queries, seed
        self.measures = [measure] if isinstance(measure, str) else list(measure)
        self.cutoffs = [recall_cutoff(text, "retriever.measure") for text in self.measures or [""]]
        self._given = _given(weights, self.parts)
        if self._given is not None and by is not None:
            raise InputError(f"retriever.by={by}: only weights=tuned depend on the query")

    def settings(self) -> dict[str, Any]:
        parts = {name: {"retriever": part.name, **part.settings()} for name, part in self.parts.items()}
        found: dict[str, Any] = {"parts": parts, "method": self.method, "depth": self.depth}
        if self.method == "convex":
            found["normalise"] = self.normalise
        else:
            found["rank_constant"] = self.constant
        if self._given is None:
            found |= {"by": self.by, "buckets": self.buckets if self.by else None}
            found |= {"queries": self.queries, "measure": self.measures, "seed": self.seed}
        return {**found, "weights": TUNED if self._given is None else self._given}

    def query_settings(self) -> dict[str, Any]:
        return {name: found for name, part in self.parts.items() if (found := part.query_settings())}

    @property
    def index_bytes(self) -> int:
        return sum(part.index_bytes for part in self.parts.values())

    def _index(self, corpus: Corpus) -> None:
        for name, part in self.parts.items():
            part.index(corpus)
            self.tuned |= {f"{name}.{key}": value for key, value in part.tuned.items()}
        if self._given is None:
            self.tuned |= self._tune(corpus)
        self._take_tuned()

    def _search(self, contexts: NDArray[np.int64], k: int, allowed: NDArray[np.bool_] | None) -> Ranking:
        rankings = self._rankings(contexts, allowed)
        features = self._features(self.corpus, contexts, rankings)
        weights = self._weights[np.searchsorted(self._bounds, features)]
        return fused(rankings, self._gains(rankings), weights, k)

    def _rankings(self, contexts: NDArray[np.int64], allowed: NDArray[np.bool_] | None) -> list[Ranking]:
        """Of each part, without the citing paper: its score would be the unit of all others."""
        return [part.search_allowed(contexts, self.depth, allowed) for part in self.parts.values()]

    def _gains(self, rankings: list[Ranking]) -> list[NDArray[np.float32]]:
        if self.method == "rrf":
            return [reciprocal_ranks(ranking, self.constant) for ranking in rankings]
        return [normalised(ranking, self.normalise) for ranking in rankings]

    def _features(
        self, corpus: Corpus, contexts: NDArray[np.int64], rankings: list[Ranking]
    ) -> NDArray[np.floating]:
        """What weights depend on, of each query [Q]."""
        if self.by is None:
            return np.zeros(len(contexts))
        if self.by == CONTEXT_LENGTH:
            return corpus.context_tokens.take(contexts).lengths.astype(np.float64)
        return rankings[list(self.parts).index(self.by)].scores[:, 0]

    def _tune(self, corpus: Corpus) -> dict[str, Any]:
        """The weight of each part; with `by` those of each bucket, and the bounds between buckets."""
        if VALIDATION not in corpus.splits:
            raise InputError(
                f"retriever=fusion tunes weights on split {VALIDATION!r}, which corpus {corpus.name} lacks; "
                "set retriever.weights to equal, or to a weight for each part"
            )
        contexts, wanted = sampled(corpus, VALIDATION, self.queries, self.seed)
        rankings = self._rankings(contexts, None)
        grid = simplex(len(self.parts))
        values = recalls(rankings, self._gains(rankings), wanted, grid, self.cutoffs)
        features = self._features(corpus, contexts, rankings)
        shares = np.arange(1, self.buckets if self.by else 1) / self.buckets
        bounds = np.quantile(features, shares, method="lower")
        bucket = np.searchsorted(bounds, features)
        table = [
            best_weights(values[:, bucket == i] if (bucket == i).any() else values, grid)
            for i in range(len(bounds) + 1)
        ]
        weights = dict(zip(self.parts, np.array(table).T.tolist(), strict=True))
        alone = values.mean(axis=1)[[np.flatnonzero(grid[:, i] == 1)[0] for i in range(len(self.parts))]]
        log.info(
            f"fusion: weights {weights} by {', '.join(self.measures)} on {len(contexts):,} queries of "
            f"{VALIDATION}; parts alone: {', '.join(f'{value:.4f}' for value in alone)}"
        )
        if self.by is None:
            return {"weights": {name: column[0] for name, column in weights.items()}}
        return {"weights": weights, "bounds": bounds.tolist()}

    def _take_tuned(self) -> None:
        """The weights [buckets, parts] and the bounds between buckets, as given or tuned."""
        given = self._given or self.tuned["weights"]
        self._weights = np.array([np.atleast_1d(given[name]) for name in self.parts], np.float64).T
        self._bounds = np.array(self.tuned.get("bounds", []), np.float64)

    def _save(self, folder: Path) -> None:
        for name, part in self.parts.items():
            part.save(folder / name)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        for name, part in self.parts.items():
            part.load(folder / name, corpus)
        self._take_tuned()


def _choice(key: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"retriever.{key}: {value!r} is not one of {', '.join(known)}")


def _given(weights: str | Mapping[str, float], parts: Mapping[str, Retriever]) -> dict[str, float] | None:
    """The weights of the parts, of the sum 1; None if they are to be tuned."""
    if weights == TUNED:
        return None
    found = dict.fromkeys(parts, 1.0) if weights == EQUAL else weights
    if not isinstance(found, Mapping) or set(found) != set(parts):
        raise InputError(
            f"retriever.weights: {weights!r} is neither {TUNED} nor {EQUAL} nor a weight for each of "
            f"{', '.join(parts)}"
        )
    for name, weight in found.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < np.inf:
            raise InputError(f"retriever.weights.{name}: {weight!r} is no number from 0 on")
    total = sum(found.values())
    if total == 0:
        raise InputError("retriever.weights: one of them must be above 0")
    return {name: float(found[name] / total) for name in parts}
