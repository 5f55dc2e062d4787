"""Searching vectors: exact, and approximate indexes of Faiss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from retrieval.exact import search_exact
from retrieval.ranking import Ranking


@dataclass(frozen=True)
class IndexConfig:
    """Which index, and its settings (conf/index)."""

    kind: str = "exact"

    def __post_init__(self) -> None:
        if self.kind not in ("exact",):
            raise InputError(f"index.kind={self.kind}: choose exact")

    def asdict(self) -> dict[str, object]:
        return asdict(self)


class PaperIndex(ABC):
    """Vectors [N, D] of unit length; papers are known by their place, 0 to N - 1."""

    @abstractmethod
    def search(
        self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> Ranking:
        """The k nearest of the allowed places [N] to each query [Q, D]; -1 where there are fewer."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory of what is searched."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the index into an existing folder."""


class ExactIndex(PaperIndex):
    """Compares with every vector."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self._vectors = vectors

    def search(
        self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> Ranking:
        return search_exact(queries, self._vectors, k, candidates=allowed)

    @property
    def nbytes(self) -> int:
        return self._vectors.nbytes

    def save(self, folder: Path) -> None:
        np.save(folder / "vectors.npy", self._vectors)


def build_index(config: IndexConfig, vectors: NDArray[np.float32]) -> PaperIndex:
    """An index of vectors [N, D] of unit length."""
    return ExactIndex(vectors)


def load_index(config: IndexConfig, folder: Path) -> PaperIndex:
    """An index that `PaperIndex.save` wrote, its vectors mapped where that can be."""
    return ExactIndex(np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False))
