"""Array types for signatures, hashes of arrays, and array files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import concat_ranges, load_array, offsets_of, sums_of_ranges

Rows = NDArray[np.int64]
"""Rows of a corpus's papers or contexts."""
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of terms in texts, or weights in their place: a sparse matrix of `shape` (n, T), by text.

    Text i has the terms indices[indptr[i]:indptr[i + 1]], ascending, each once, and their counts in `data`.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: Floats
    shape: tuple[int, int]

    @classmethod
    def add_up(
        cls,
        texts: NDArray[np.integer],
        terms: NDArray[np.integer],
        shape: tuple[int, int],
        weights: Floats | None = None,
    ) -> Counts:
        """Add up occurrences of terms in texts [m], or their weights."""
        keys, size = texts.astype(np.int64) * shape[1] + terms, max(shape[1], 1)
        if weights is None:
            keys, sums = np.unique(keys, return_counts=True)
        else:
            order = np.argsort(keys, kind="stable")
            keys, first = np.unique(keys[order], return_index=True)
            sums = sums_of_ranges(weights[order], np.append(first, len(order)))
        offsets = offsets_of(np.bincount(keys // size, minlength=shape[0]))
        return cls(offsets, (keys % size).astype(np.int32), sums.astype(np.float32), shape)

    @classmethod
    def concat(cls, parts: Sequence[Counts]) -> Counts:
        """Join the texts of one or more parts."""
        indptr = offsets_of(np.concatenate([np.diff(part.indptr) for part in parts]))
        indices, data = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "data")
        )
        return cls(indptr, indices, data, (len(indptr) - 1, parts[0].shape[1]))

    @property
    def texts(self) -> Rows:
        """The text of each entry."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def __add__(self, other: Counts) -> Counts:
        texts, terms, data = (
            np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("texts", "indices", "data")
        )
        return Counts.add_up(texts, terms, self.shape, data)

    def __mul__(self, factor: float) -> Counts:
        return replace(self, data=self.data * np.float32(factor))

    def take(self, texts: Rows) -> Counts:
        """Select texts, which may repeat."""
        at, indptr = concat_ranges(self.indptr[texts], self.indptr[texts + 1])
        return Counts(indptr, self.indices[at], self.data[at], (len(texts), self.shape[1]))

    def lengths(self) -> Floats:
        """Number of terms of each text [n]."""
        return np.asarray(sums_of_ranges(self.data, self.indptr), np.float32)

    def frequency(self) -> NDArray[np.int64]:
        """Number of texts with each term [T]."""
        return np.bincount(self.indices, minlength=self.shape[1])


def to_unit_length(vectors: Floats) -> Floats:
    """Scale vectors [..., D] to unit length; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def array_hash(parts: Mapping[str, NDArray[Any]]) -> str:
    """Hash of arrays and their labels, such as name and type."""
    digest = hashlib.blake2b(digest_size=16)
    for label, array in sorted(parts.items()):
        digest.update(label.encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def load_arrays(folder: Path, *names: str) -> list[NDArray[Any]]:
    """Memory-map arrays written by `save_arrays` (datasets.columns)."""
    return [load_array(folder, name) for name in names]
