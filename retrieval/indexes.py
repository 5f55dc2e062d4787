"""Indexes of paper vectors by name: making them, and reading them again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retrieval.exact import finite
from retrieval.halves import Halves
from retrieval.index_exact import ExactIndex
from retrieval.index_faiss import FaissIndex, HalfIndex, HNSWIndex, IVFIndex, PQIndex
from retrieval.index_gpu import on_device
from retrieval.index_mapped import MappedIndex
from retrieval.paper_index import IndexConfig, PaperIndex

__all__ = ["IndexConfig", "PaperIndex", "build_index", "load_index"]

KINDS: dict[str, type[ExactIndex | FaissIndex]] = {
    "exact": ExactIndex,
    "half": HalfIndex,
    "ivf": IVFIndex,
    "hnsw": HNSWIndex,
    "pq": PQIndex,
    "ivfpq": IVFIndex,
}


def build_index(config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> PaperIndex:
    """An index of vectors [N, D] of unit length; InputError if one is not finite or they do not suit.

    Halves are known to be finite. Those of an exact index stay where they are; none reads all at once.
    """
    config.check(len(vectors))
    if isinstance(vectors, Halves):
        if config.kind == "exact":
            return on_device(config, MappedIndex(vectors))
        return on_device(config, KINDS[config.kind].build(config, vectors))
    return on_device(config, KINDS[config.kind].build(config, finite(vectors, "papers")))


def load_index(config: IndexConfig, folder: Path) -> PaperIndex:
    """An index that `PaperIndex.save` wrote, its vectors mapped; InputError if it is damaged."""
    config.check()
    if config.kind == "exact" and (folder / MappedIndex.FILE).is_file():
        return on_device(config, MappedIndex.load(folder))
    return on_device(config, KINDS[config.kind].load(config, folder))
