"""Context profiles: papers enriched by the training contexts that cite them. Not in the HAtten paper.

A paper is cited for what others say of it. The contexts that cite it in the training split are queries whose
answer is known, so their vectors show where queries for it lie. Contexts of other splits never enter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.schema import TRAIN
from datasets.store import Corpus
from retrieval.exact import search_exact
from retrieval.tuning import recall_cutoff, sampled

log = logging.getLogger(__name__)

Encode = Callable[[NDArray[np.int64]], NDArray[np.float32]]

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""What `weight=auto` chooses from."""

BATCH = 8192
"""Contexts encoded at a time."""


@dataclass(frozen=True)
class ProfileConfig:
    """How much the training contexts that cite a paper count in its vector."""

    weight: float | str = 0.0
    """0 (no profiles) to 1 (contexts alone), or `auto`: what is best on the validation split"""
    split: str = "val"
    """the split that `auto` looks at"""
    queries: int = 2000
    """its queries that `auto` looks at, a sample where there are more"""
    measure: str = "recall@10"
    """what `auto` wants to be high: recall@k"""
    seed: int = 0

    def __post_init__(self) -> None:
        number = isinstance(self.weight, int | float) and not isinstance(self.weight, bool)
        if not (self.weight == "auto" or (number and 0 <= float(self.weight) <= 1)):
            raise InputError(f"profile.weight={self.weight}: choose auto, or a number from 0 to 1")
        if self.queries < 1:
            raise InputError(f"profile.queries={self.queries}: must be at least 1")
        self.cutoff()

    def cutoff(self) -> int:
        """The k of recall@k."""
        return recall_cutoff(self.measure, "profile.measure")

    def asdict(self) -> dict[str, object]:
        return asdict(self)


def with_profiles(
    vectors: NDArray[np.float32],
    corpus: Corpus,
    candidates: NDArray[np.int64],
    encode_queries: Encode,
    config: ProfileConfig,
) -> tuple[NDArray[np.float32], float]:
    """Vectors of candidates [n, D], of unit length, moved towards their training contexts; and the weight.

    encode_queries: contexts, rows [Q] -> [Q, D] of unit length.
    Raises InputError if the corpus has no training split, or for weight=auto no validation split.
    """
    means = profiles(corpus, candidates, encode_queries, vectors.shape[1])
    weight = config.weight
    if weight == "auto":
        weight = tuned_weight(vectors, means, corpus, candidates, encode_queries, config)
    return combined(vectors, means, float(weight)), float(weight)


def profiles(
    corpus: Corpus, candidates: NDArray[np.int64], encode_queries: Encode, dim: int
) -> NDArray[np.float32]:
    """Mean of the training contexts that cite each candidate [n, D], of unit length; zeros without any."""
    if TRAIN not in corpus.splits:
        raise InputError(
            f"profile: corpus {corpus.name} has no split {TRAIN!r}, whose contexts make profiles; "
            "set profile.weight=0"
        )
    split = corpus.split(TRAIN)
    place = np.full(len(corpus.paper_ids), -1, np.int64)
    place[candidates] = np.arange(len(candidates))
    sums = np.zeros((len(candidates), dim), np.float32)
    for start in range(0, len(split), BATCH):
        rows = np.arange(start, min(start + BATCH, len(split)))
        cited = split.positives.take(rows)
        of_query = np.repeat(np.arange(len(rows)), cited.lengths)
        to = place[cited.values]
        encoded = encode_queries(split.contexts[rows])
        np.add.at(sums, to[to >= 0], encoded[of_query[to >= 0]])
    return _unit(sums)


def combined(vectors: NDArray[np.float32], means: NDArray[np.float32], weight: float) -> NDArray[np.float32]:
    """(1 - weight) * vector + weight * profile, of unit length; a vector without a profile stays."""
    if weight == 0:
        return vectors
    mixed = (1 - weight) * vectors + weight * means
    return np.where(means.any(axis=1, keepdims=True), _unit(mixed), vectors)


def tuned_weight(
    vectors: NDArray[np.float32],
    means: NDArray[np.float32],
    corpus: Corpus,
    candidates: NDArray[np.int64],
    encode_queries: Encode,
    config: ProfileConfig,
) -> float:
    """The weight of WEIGHTS with the best recall on the validation split; the smaller of equals."""
    k = config.cutoff()
    contexts, cited = sampled(corpus, config.split, config.queries, config.seed)
    encoded = encode_queries(contexts)
    place = np.full(len(corpus.paper_ids), -1, np.int64)
    place[candidates] = np.arange(len(candidates))
    own = place[corpus.citing[contexts]]
    of_query, wanted = np.repeat(np.arange(len(contexts)), cited.lengths), place[cited.values]
    found: dict[float, float] = {}
    for weight in WEIGHTS:
        papers = search_exact(encoded, combined(vectors, means, weight), k, exclude=own).papers
        hit = ((papers[of_query] == wanted[:, None]) & (wanted >= 0)[:, None]).any(axis=1)
        found[weight] = float((np.bincount(of_query, hit, len(contexts)) / cited.lengths).mean())
    best = max(found, key=lambda weight: (found[weight], -weight))
    log.info(
        f"profiles: weight {best} ({config.measure} {found[best]:.4f} on {len(contexts):,} queries of "
        f"{config.split}, {found[0.0]:.4f} without)"
    )
    return best


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
