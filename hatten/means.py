"""The mean path: a weighted mean of word vectors, without torch, as it is when it has been trained.

hatten.layers trains its weights, alone (hatten.static) or around HAtten's levels (`residual=mean`); it is not
in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from datasets.columns import ranges
from hatten.documents import ABSTRACT, CONTEXT, NEAR, TITLE, Documents, first_marks
from retrieval.arrays import Floats, array_hash

REACH = 64
"""Distances from the marker, in words, that have a weight of their own; what is farther shares the last."""

START = {
    (TITLE, False): 0.5,
    (ABSTRACT, False): 1.0,
    (TITLE, True): 0.5,
    (ABSTRACT, True): 0.3,
    (CONTEXT, True): 1.0,
}
"""Weight of a paragraph by (type, whether the document is a query) before training."""
START_NEAR = 0.5
"""Weight of a paragraph of words near the mark before training."""

LEARNED = ("word_weight", "distance_weight", "paragraph_weight")
"""What is learned beside the vectors."""


@dataclass(frozen=True, eq=False)
class MeanEncoder:
    """Unit vector of each paragraph: its words' vectors, each by its own weight and, in a context, by its
    distance from the target marker; then the sum over paragraphs by type, as a unit vector again."""

    word_vectors: Floats
    """[V, D]"""
    word_weight: Floats
    """[V], before softplus"""
    distance_weight: Floats
    """[2 * REACH], logarithms, as those below"""
    paragraph_weight: Floats
    """[2, NEAR + paragraphs of words near the mark]: of papers and of queries, by type"""
    target_id: int | None
    """of the marker"""

    def weights(self) -> dict[str, Floats]:
        """By the names that they have in files."""
        mean = {f"mean.{name}": getattr(self, name) for name in LEARNED}
        return {"word_vectors": self.word_vectors, **mean}

    def check(self) -> None:
        """ValueError unless the weights are finite and fit each other."""
        words, _ = self.word_vectors.shape
        shapes = (words,), (2 * REACH,), (2, NEAR + self.near)
        for name, shape in zip(LEARNED, shapes, strict=True):
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} of shape {getattr(self, name).shape}, not {shape}")
        if not all(np.isfinite(array).all() for array in self.weights().values()):
            raise ValueError("numbers that are not finite")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the names, types and values of all weights, as retrieval.nets.weights_hash of a net."""
        weights = self.weights().items()
        return array_hash({f"{name} torch.{array.dtype} {array.shape}": array for name, array in weights})

    @property
    def near(self) -> int:
        """Paragraphs of words near the mark."""
        return max(self.paragraph_weight.shape[-1] - NEAR, 0)

    @property
    def dim(self) -> int:
        return self.word_vectors.shape[1]

    @cached_property
    def _word_weights(self) -> Floats:
        return np.logaddexp(np.float32(0), self.word_weight)

    def encode(self, documents: Documents) -> Floats:
        """B documents -> [B, D] of unit length, zeros for one without words; from any number of threads."""
        values = documents.paragraphs.values
        weights = self._word_weights[values]
        places, buckets = marker_distances(documents, self.target_id)
        weights[places] *= np.exp(self.distance_weight)[buckets]
        share = np.exp(self.paragraph_weight)[paragraph_kinds(documents, self.paragraph_weight.shape[1])]
        found, table = np.zeros((len(documents), self.dim), np.float32), self.word_vectors
        _weighted_means(values, documents.paragraphs.offsets, weights, table, documents.index, share, found)
        return found


def paragraph_kinds(documents: Documents, types: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each slot of the documents, where its weight is: [B, 1] whether of a query, [B, P] the type."""
    return documents.is_query.astype(np.int64)[:, None], np.minimum(documents.types, types - 1)


def marker_distances(
    documents: Documents, target_id: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the tokens in paragraphs with a target marker, and the buckets of their distances."""
    paragraphs = documents.paragraphs
    rows, marks = first_marks(paragraphs, target_id)
    places, offsets = ranges(paragraphs.offsets[rows], paragraphs.offsets[rows + 1])
    distance = places - np.repeat(marks, np.diff(offsets))
    return places, np.clip(np.abs(distance), 0, REACH - 1) + REACH * (distance > 0)


@njit(cache=True, nogil=True, fastmath=True)
def _weighted_means(
    values: Any, offsets: Any, weights: Any, table: Any, index: Any, share: Any, found: Any
) -> None:
    """Adds to found [B, D], zeros: over slots, shares [B, P] times unit sums of weighted word vectors."""
    dim = table.shape[1]
    bags = np.zeros((len(offsets) - 1, dim), np.float32)
    for i in range(len(bags)):
        for token in range(offsets[i], offsets[i + 1]):
            weight, vector = weights[token], table[values[token]]
            for d in range(dim):
                bags[i, d] += weight * vector[d]
        _to_unit_length(bags[i])
    for i in range(len(found)):
        for slot in range(index.shape[1]):
            if index[i, slot] >= 0:
                weight, bag = share[i, slot], bags[index[i, slot]]
                for d in range(dim):
                    found[i, d] += weight * bag[d]
        _to_unit_length(found[i])


@njit(cache=True, nogil=True, fastmath=True)
def _to_unit_length(vector: Any) -> None:
    total = np.float32(0.0)
    for d in range(len(vector)):
        total += vector[d] * vector[d]
    scale = np.float32(1.0) / max(np.sqrt(total), np.float32(1e-12))
    for d in range(len(vector)):
        vector[d] *= scale
