"""Builds, loads and searches vector indexes, on CPU or GPU.

`build_index` and `load_index` return the `PaperIndex` for an `IndexConfig` (retrieval.settings);
`search_exact` searches arrays without an index.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.retrieval.arrays import Floats, Mask
from citerec.retrieval.base import Ranking
from citerec.retrieval.indexes.cpu import FaissIndex, FlatIndex, PaperIndex, check_vectors
from citerec.retrieval.settings import IndexConfig
from citerec.retrieval.vectors import VectorTable


def search_exact(
    queries: Floats,
    papers: Floats,
    k: int,
    exclude: NDArray[np.integer] | None = None,
    candidates: Mask | None = None,
    device: Any = "cpu",
) -> Ranking:
    """The k papers with the highest inner product with each query, without excluded ones.

    queries: float32 [Q, D]; papers: float32 [P, D]; normalise both for the cosine.
    exclude, candidates: like `exclude` and `allowed` of PaperIndex.search; same errors. device: of torch,
    where to search. Ties for the last place are broken by Faiss or torch.
    """
    index = FlatIndex(check_vectors(papers, "papers"))
    if str(device) == "cpu":
        return index.search(queries, k, candidates, exclude)
    from citerec.retrieval.indexes.gpu import on_device  # imports torch

    filtered = candidates is not None and not candidates.all()
    return on_device(index, device, filtered).search(queries, k, candidates, exclude)


def check_index(config: IndexConfig, papers: int | None = None) -> None:
    """InputError if the device is missing, or there are too few papers to train the index."""
    if config.device == "gpu" and not _uses_gpu(config):
        raise InputError(
            "index.device=gpu: no usable GPU; install torch with CUDA, or choose index.device=cpu"
        )
    if papers is None or config.kind != "ivf":
        return
    needed = config.lists or 1
    if (training := min(papers, config.sample or papers)) < needed:
        raise InputError(
            f"index.kind=ivf: needs {needed:,} papers to train on, has {training:,}; "
            "choose fewer index.lists, a larger index.sample, or index.kind=exact"
        )


def to_device(config: IndexConfig, index: FlatIndex | FaissIndex) -> PaperIndex:
    """Move an index to a GPU if there is one and the settings allow it."""
    if not _uses_gpu(config):
        return index
    from citerec.retrieval.indexes.gpu import on_device  # imports torch

    return on_device(index)


def _uses_gpu(config: IndexConfig) -> bool:
    if config.device == "cpu" or config.kind not in ("exact", "half"):
        return False
    import torch

    return torch.cuda.is_available()


def build_index(config: IndexConfig, vectors: Floats | VectorTable) -> PaperIndex:
    """Build an index of vectors [N, D]; InputError if they are not finite or do not suit the settings.

    Tables are known to be finite and are read in blocks; an exact index keeps them on disk.
    """
    check_index(config, len(vectors))
    checked: Any = vectors if isinstance(vectors, VectorTable) else check_vectors(vectors, "papers")
    exact = config.kind == "exact"
    return to_device(config, FlatIndex(checked) if exact else FaissIndex.build(config, checked))


def load_index(config: IndexConfig, folder: Path) -> PaperIndex:
    """Memory-map an index written by `PaperIndex.save`."""
    check_index(config)
    exact = config.kind == "exact"
    return to_device(config, FlatIndex.load(folder) if exact else FaissIndex.load(config, folder))
