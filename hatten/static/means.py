"""A weighted mean of word vectors (the mean path; not in the paper), in NumPy.

hatten.static.network.MeanPath trains the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import concat_ranges, sums_of_ranges
from citerec.hatten.documents import ABSTRACT, CONTEXT, TITLE, Documents, first_markers
from citerec.retrieval.arrays import Floats, array_hash

DISTANCE_BUCKETS = 64
"""Number of distances from the marker, in words, with a weight each; larger distances share the last."""

CHUNK = 256
"""Paragraphs whose words are gathered at a time: some 20 MB."""

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


class StoredVectors:
    """Vectors [V, D] as stored in a file, followed by random ones [B, D]; rows that are taken are float32.

    A model thus opens in no time, since a query needs the vectors of a few words only. NumPy accepts this as
    an array.
    """

    def __init__(
        self, numbers: NDArray[Any], scales: Floats | None = None, signs: NDArray[np.uint8] | None = None
    ) -> None:
        """numbers [V, D]. scales [V]: factors of 8-bit numbers. signs: packed bits [B, D] of the random
        vectors, whose numbers are all 1 / sqrt(D) or its opposite."""
        self.numbers, self.scales = numbers, scales
        self.signs = np.empty((0, 0), np.uint8) if signs is None else signs
        self.shape = len(numbers) + len(self.signs), numbers.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: NDArray[np.integer]) -> Floats:
        """Return the vectors of rows, [n, D]."""
        stored = np.minimum(rows, len(self.numbers) - 1)
        scales = np.float32(1) if self.scales is None else self.scales[stored, None]
        vectors = np.multiply(self.numbers[stored], scales, dtype=np.float32)
        if len(random := np.flatnonzero(rows >= len(self.numbers))):
            packed = self.signs[rows[random] - len(self.numbers)]
            bits = np.unpackbits(packed, axis=1, count=self.shape[1])
            vectors[random] = (bits * np.float32(2) - 1) / np.float32(self.shape[1] ** 0.5)
        return vectors

    def __getitem__(self, rows: Any) -> Floats:
        return self.take(np.arange(len(self))[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.float32, copy=False)

    def parts(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that it is made of, by name."""
        scales = {} if self.scales is None else {"scales": self.scales}
        return {"word_vectors": self.numbers, **scales, "signs": self.signs}


@dataclass(frozen=True, eq=False)
class MeanEncoder:
    """Encodes a document as the weighted mean of its paragraph vectors, normalised.

    A paragraph vector is the normalised sum of word vectors, weighted by word and, in a context, by the
    distance from the target marker. Paragraphs are weighted by type.
    """

    word_vectors: Floats | StoredVectors
    """[V, D]"""
    word_weight: Floats
    """[V], before softplus"""
    distance_weight: Floats
    """[2 * DISTANCE_BUCKETS], logarithms"""
    paragraph_weight: Floats
    """[2, NEAR + extra paragraphs around the marker], logarithms: by document (paper or query) and type"""
    target_id: int | None
    """id of the target marker"""

    def weights(self) -> dict[str, Floats]:
        """Return all weights by their names in files."""
        return {"word_vectors": np.asarray(self.word_vectors), **self._learned()}

    def _learned(self) -> dict[str, Floats]:
        return {f"mean.{name}": getattr(self, name) for name in LEARNED}

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the names, types and values of all weights; equals retrieval.encoders.nets.weights_hash in
        torch, unless the vectors are stored in another form."""
        vectors = self.word_vectors
        parts = vectors.parts() if isinstance(vectors, StoredVectors) else {"word_vectors": vectors}
        weights = (parts | self._learned()).items()
        return array_hash({f"{name} torch.{array.dtype} {array.shape}": array for name, array in weights})

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
        stored, offsets = self.word_vectors, documents.paragraphs.offsets
        taken = stored.take if isinstance(stored, StoredVectors) else stored.__getitem__
        bags = np.zeros((len(documents.paragraphs), self.dim), np.float32)
        for start in range(0, len(bags), CHUNK):
            ends = offsets[start : start + CHUNK + 1]
            tokens = slice(ends[0], ends[-1])
            vectors = taken(values[tokens])
            vectors *= weights[tokens, None]
            bags[start : start + CHUNK] = sums_of_ranges(vectors, ends - ends[0])
        _to_unit_length(bags)
        out = np.zeros((len(documents), self.dim), np.float32)
        for column, paragraphs in enumerate(documents.index.T):
            rows = np.flatnonzero(paragraphs >= 0)
            out[rows] += share[rows, column, None] * bags[paragraphs[rows]]
        _to_unit_length(out)
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


def _to_unit_length(vectors: Floats) -> None:
    """Divide vectors [n, D] by their lengths; zeros stay."""
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    vectors /= np.maximum(lengths, np.float32(1e-12))[:, None]
