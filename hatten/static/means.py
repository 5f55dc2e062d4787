"""The trained mean path, a weighted mean of word vectors, in NumPy (not in the paper).

hatten.static.network.MeanPath trains the weights, alone (hatten.static.model) or with HAtten's levels
(`residual=mean`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.packages import compiled
from citerec.datasets.columns import concat_ranges
from citerec.hatten.documents import ABSTRACT, CONTEXT, NEAR, TITLE, Documents, first_markers
from citerec.retrieval.arrays import Floats, array_hash

DISTANCE_BUCKETS = 64
"""Number of distances from the marker, in words, with a weight each; larger distances share the last."""

INITIAL_WEIGHTS = {
    (TITLE, False): 0.5,
    (ABSTRACT, False): 1.0,
    (TITLE, True): 0.5,
    (ABSTRACT, True): 0.3,
    (CONTEXT, True): 1.0,
}
"""Initial weight of a paragraph by (type, whether the document is a query)."""
INITIAL_NEAR_WEIGHT = 0.5
"""Initial weight of the extra paragraphs around the marker."""

LEARNED = ("word_weight", "distance_weight", "paragraph_weight")
"""Trained weights besides the word vectors."""


@dataclass(frozen=True, eq=False)
class MeanEncoder:
    """Encodes a document as the weighted mean of its paragraph vectors, normalised.

    A paragraph vector is the normalised sum of word vectors, weighted by word and, in a context, by the
    distance from the target marker. Paragraphs are weighted by type.
    """

    word_vectors: Floats
    """[V, D]"""
    word_weight: Floats
    """[V], before softplus"""
    distance_weight: Floats
    """[2 * DISTANCE_BUCKETS], logarithms"""
    paragraph_weight: Floats
    """[2, NEAR + extra paragraphs around the marker], logarithms: by paper or query and type"""
    target_id: int | None
    """id of the target marker"""

    def weights(self) -> dict[str, Floats]:
        """Return all weights by their names in files."""
        mean = {f"mean.{name}": getattr(self, name) for name in LEARNED}
        return {"word_vectors": self.word_vectors, **mean}

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the names, types and values of all weights; equals retrieval.encoders.nets.weights_hash in
        torch."""
        weights = self.weights().items()
        return array_hash({f"{name} torch.{array.dtype} {array.shape}": array for name, array in weights})

    @property
    def near(self) -> int:
        """Number of extra paragraphs around the marker."""
        return self.paragraph_weight.shape[1] - NEAR

    @property
    def dim(self) -> int:
        return self.word_vectors.shape[1]

    @cached_property
    def _word_weights(self) -> Floats:
        return np.logaddexp(np.float32(0), self.word_weight)

    def encode(self, documents: Documents) -> Floats:
        """B documents -> [B, D] of unit length; zeros for a document without words. Thread-safe."""
        values = documents.paragraphs.values
        weights = self._word_weights[values]
        positions, buckets = marker_distances(documents, self.target_id)
        weights[positions] *= np.exp(self.distance_weight)[buckets]
        share = np.exp(self.paragraph_weight)[paragraph_kinds(documents, self.paragraph_weight.shape[1])]
        out, table = np.zeros((len(documents), self.dim), np.float32), self.word_vectors
        _weighted_means(values, documents.paragraphs.offsets, weights, table, documents.index, share, out)
        return out


def paragraph_kinds(documents: Documents, types: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of paragraph weights: [B, 1] whether the document is a query, [B, P] the type."""
    return documents.is_query.astype(np.int64)[:, None], np.minimum(documents.types, types - 1)


def marker_distances(
    documents: Documents, target_id: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of all tokens in paragraphs with a target marker, and their distance buckets."""
    paragraphs = documents.paragraphs
    rows, markers = first_markers(paragraphs, target_id)
    positions, offsets = concat_ranges(paragraphs.offsets[rows], paragraphs.offsets[rows + 1])
    distance = positions - np.repeat(markers, np.diff(offsets))
    return positions, np.clip(np.abs(distance), 0, DISTANCE_BUCKETS - 1) + DISTANCE_BUCKETS * (distance > 0)


@compiled(nogil=True, fastmath=True)
def _weighted_means(
    values: Any, offsets: Any, weights: Any, table: Any, index: Any, share: Any, out: Any
) -> None:
    """Write the normalised means into `out` [B, D], which is zero: share [B, P] times paragraph vectors."""
    dim = table.shape[1]
    bags = np.zeros((len(offsets) - 1, dim), np.float32)
    for i in range(len(bags)):
        for token in range(offsets[i], offsets[i + 1]):
            weight, vector = weights[token], table[values[token]]
            for d in range(dim):
                bags[i, d] += weight * vector[d]
        _to_unit_length(bags[i])
    for i in range(len(out)):
        for column in range(index.shape[1]):
            if index[i, column] >= 0:
                weight, bag = share[i, column], bags[index[i, column]]
                for d in range(dim):
                    out[i, d] += weight * bag[d]
        _to_unit_length(out[i])


@compiled(nogil=True, fastmath=True)
def _to_unit_length(vector: Any) -> None:
    total = np.float32(0.0)
    for d in range(len(vector)):
        total += vector[d] * vector[d]
    scale = np.float32(1.0) / max(np.sqrt(total), np.float32(1e-12))
    for d in range(len(vector)):
        vector[d] *= scale
