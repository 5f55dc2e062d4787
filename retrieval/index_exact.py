"""Exact search of vectors as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from datasets.errors import InputError
from retrieval.exact import BLOCK, Scored, nearest
from retrieval.halves import Halves
from retrieval.paper_index import IndexConfig, PaperIndex


class ExactIndex(PaperIndex):
    """Compares with every vector, of 32 bits a number."""

    FILE = "vectors.npy"
    precision = torch.float32

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        """vectors: [N, D], finite."""
        self.vectors, self.dim = vectors, vectors.shape[1]

    @classmethod
    def build(cls, config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> Self:
        """An index of vectors [N, D], finite, which it holds in memory."""
        return cls(np.asarray(vectors))

    @classmethod
    def load(cls, config: IndexConfig, folder: Path) -> Self:
        """What `save` wrote, mapped; InputError if it is damaged."""
        try:
            vectors = np.load(folder / cls.FILE, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            vectors = np.empty(0)
        if vectors.ndim != 2 or vectors.dtype != np.float32:
            raise InputError(f"{folder / cls.FILE}: damaged; make the index again")
        return cls(vectors)

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        return nearest(queries, self.vectors, k, None if allowed is None else np.flatnonzero(allowed))

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """All vectors, some at a time."""
        step = max(1, BLOCK // self.dim)
        for start in range(0, len(self), step):
            yield np.array(self.vectors[start : start + step])

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes

    def save(self, folder: Path) -> None:
        np.save(folder / self.FILE, self.vectors)
