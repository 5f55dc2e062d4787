"""Context profiles: papers' vectors enriched by the training contexts that cite them. Not from the paper."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.records import TRAIN
from retrieval.arrays import Floats, Rows
from retrieval.fusion import sample_queries
from retrieval.index import search_exact
from retrieval.settings import ProfileConfig
from retrieval.vectors import to_unit_length

log = logging.getLogger(__name__)

Encode = Callable[[Rows], Floats]
"""Contexts, rows [Q] -> [Q, D] of unit length."""

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""What `weight=auto` chooses from."""
BATCH = 8192
"""Contexts encoded at a time."""


def add_profiles(
    vectors: Floats, corpus: Corpus, candidates: Rows, encode_queries: Encode, config: ProfileConfig
) -> tuple[Floats, float]:
    """Vectors of candidates [n, D] of unit length, moved towards their training contexts; and the weight.

    Raises InputError if the corpus has no training split, or for weight=auto no validation split.
    """
    means = context_profiles(corpus, candidates, encode_queries, vectors.shape[1])
    weight = config.weight
    if weight == "auto":
        weight = best_weight(vectors, means, corpus, candidates, encode_queries, config)
    return combine(vectors, means, float(weight)), float(weight)


def context_profiles(corpus: Corpus, candidates: Rows, encode_queries: Encode, dim: int) -> Floats:
    """Mean of the training contexts that cite each candidate [n, D], of unit length; zeros without any."""
    if TRAIN not in corpus.splits:
        raise InputError(
            f"profile: corpus {corpus.name} has no split {TRAIN!r}, whose contexts make profiles; "
            "set profile.weight=0"
        )
    split, place = corpus.split(TRAIN), _places(corpus, candidates)
    sums = np.zeros((len(candidates), dim), np.float32)
    for start in range(0, len(split), BATCH):
        rows = np.arange(start, min(start + BATCH, len(split)))
        cited = split.positives.take(rows)
        of_query, to = np.repeat(np.arange(len(rows)), cited.lengths), place[cited.values]
        encoded = encode_queries(split.contexts[rows])
        np.add.at(sums, to[to >= 0], encoded[of_query[to >= 0]])
    return to_unit_length(sums)


def combine(vectors: Floats, means: Floats, weight: float) -> Floats:
    """(1 - weight) * vector + weight * profile, of unit length; a vector without a profile stays."""
    if weight == 0:
        return vectors
    mixed = (1 - weight) * vectors + weight * means
    return np.where(means.any(axis=1, keepdims=True), to_unit_length(mixed), vectors)


def best_weight(
    vectors: Floats,
    means: Floats,
    corpus: Corpus,
    candidates: Rows,
    encode_queries: Encode,
    config: ProfileConfig,
) -> float:
    """The weight of WEIGHTS with the best recall on the validation split; the smaller of equals."""
    k = config.cutoff()
    contexts, cited = sample_queries(corpus, config.split, config.queries, config.seed)
    encoded, place = encode_queries(contexts), _places(corpus, candidates)
    own = place[corpus.citing[contexts]]
    of_query, wanted = np.repeat(np.arange(len(contexts)), cited.lengths), place[cited.values]
    found: dict[float, float] = {}
    for weight in WEIGHTS:
        papers = search_exact(encoded, combine(vectors, means, weight), k, exclude=own).papers
        hit = ((papers[of_query] == wanted[:, None]) & (wanted >= 0)[:, None]).any(axis=1)
        found[weight] = float((np.bincount(of_query, hit, len(contexts)) / cited.lengths).mean())
    best = max(found, key=lambda weight: (found[weight], -weight))
    log.info(
        f"profiles: weight {best} ({config.measure} {found[best]:.4f} on {len(contexts):,} queries of "
        f"{config.split}, {found[0.0]:.4f} without)"
    )
    return best


def _places(corpus: Corpus, candidates: Rows) -> Rows:
    """Where each paper of the corpus [P] is among the candidates, -1 where it is none."""
    place = np.full(len(corpus.paper_ids), -1, np.int64)
    place[candidates] = np.arange(len(candidates))
    return place
