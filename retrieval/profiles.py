"""Context profiles: paper vectors enriched with citing training contexts (not in Gu et al. 2022)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from citerec.datasets.corpus import Corpus
from citerec.datasets.errors import InputError
from citerec.datasets.records import TRAIN
from citerec.retrieval.arrays import Floats, Rows
from citerec.retrieval.fusion import sample_queries
from citerec.retrieval.index import search_exact
from citerec.retrieval.settings import ProfileConfig
from citerec.retrieval.vectors import to_unit_length

log = logging.getLogger(__name__)

Encode = Callable[[Rows], Floats]
"""Rows of contexts [Q] -> [Q, D] of unit length."""

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Candidates of `weight=auto`."""
BATCH = 8192
"""Contexts encoded at a time."""


def add_profiles(
    vectors: Floats, corpus: Corpus, candidates: Rows, encode_queries: Encode, config: ProfileConfig
) -> tuple[Floats, float]:
    """Move unit vectors of candidates [n, D] towards their training contexts; also returns the weight.

    Raises InputError if the corpus has no training split or, for weight=auto, no validation split.
    """
    means = context_profiles(corpus, candidates, encode_queries, vectors.shape[1])
    weight = config.weight
    if weight == "auto":
        weight = best_weight(vectors, means, corpus, candidates, encode_queries, config)
    return combine(vectors, means, float(weight)), float(weight)


def context_profiles(corpus: Corpus, candidates: Rows, encode_queries: Encode, dim: int) -> Floats:
    """Normalised mean of the training contexts that cite each candidate [n, D]; zeros without contexts."""
    if TRAIN not in corpus.splits:
        raise InputError(
            f"profile: needs the contexts of split {TRAIN!r}, which corpus {corpus.name} lacks; "
            "set profile.weight=0"
        )
    split, positions = corpus.split(TRAIN), _positions(corpus, candidates)
    sums = np.zeros((len(candidates), dim), np.float32)
    for start in range(0, len(split), BATCH):
        rows = np.arange(start, min(start + BATCH, len(split)))
        cited = split.positives.take(rows)
        query, target = np.repeat(np.arange(len(rows)), cited.lengths), positions[cited.values]
        encoded = encode_queries(split.contexts[rows])
        np.add.at(sums, target[target >= 0], encoded[query[target >= 0]])
    return to_unit_length(sums)


def combine(vectors: Floats, means: Floats, weight: float) -> Floats:
    """Normalised (1 - weight) * vector + weight * profile; vectors without a profile stay the same."""
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
    """The weight in WEIGHTS with the best recall on the validation split; ties go to the smallest."""
    k = config.cutoff()
    contexts, cited = sample_queries(corpus, config.split, config.queries, config.seed)
    encoded, positions = encode_queries(contexts), _positions(corpus, candidates)
    own = positions[corpus.citing[contexts]]
    query, target = np.repeat(np.arange(len(contexts)), cited.lengths), positions[cited.values]
    recalls: dict[float, float] = {}
    for weight in WEIGHTS:
        papers = search_exact(encoded, combine(vectors, means, weight), k, exclude=own).papers
        hit = ((papers[query] == target[:, None]) & (target >= 0)[:, None]).any(axis=1)
        recalls[weight] = float((np.bincount(query, hit, len(contexts)) / cited.lengths).mean())
    best = max(recalls, key=lambda weight: (recalls[weight], -weight))
    log.info(
        f"profiles: weight {best} ({config.measure} {recalls[best]:.4f} on {len(contexts):,} queries of "
        f"{config.split}, {recalls[0.0]:.4f} without profiles)"
    )
    return best


def _positions(corpus: Corpus, candidates: Rows) -> Rows:
    """Position of each paper of the corpus [P] among the candidates, -1 for other papers."""
    positions = np.full(len(corpus.paper_ids), -1, np.int64)
    positions[candidates] = np.arange(len(candidates))
    return positions
