"""Exact search on GPUs, by torch or by Faiss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from retrieval.exact import CHUNK, Scored, faiss
from retrieval.index_exact import ExactIndex
from retrieval.index_faiss import HalfIndex
from retrieval.index_mapped import MappedIndex
from retrieval.paper_index import IndexConfig, PaperIndex, gpu_library

SCORES = 1 << 26
"""Scores that are held at a time: 256 MiB."""
FAISS_DEPTH = 2048
"""The most papers that Faiss ranks on a GPU."""


class TorchIndex(PaperIndex):
    """The vectors of an exact index on a device of torch: products of blocks and a running best k."""

    def __init__(self, host: ExactIndex | HalfIndex | MappedIndex, device: torch.device) -> None:
        self._host, self.dim = host, host.dim
        self._vectors = torch.empty((len(host), host.dim), dtype=host.precision, device=device)
        start = 0
        for block in host.blocks():
            self._vectors[start : start + len(block)] = torch.from_numpy(block)
            start += len(block)

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        device = self._vectors.device
        wanted = torch.from_numpy(queries).to(device)
        rows = None if allowed is None else torch.from_numpy(np.flatnonzero(allowed)).to(device)
        best = wanted.new_empty((len(queries), 0))
        found = torch.empty((len(queries), 0), dtype=torch.int64, device=device)
        step = SCORES // CHUNK
        for start in range(0, len(self) if rows is None else len(rows), step):
            part = slice(start, start + step) if rows is None else rows[start : start + step]
            scores = wanted @ self._vectors[part].float().T
            scores, places = scores.topk(min(k, scores.shape[1]))
            places = start + places if rows is None else rows[start + places]
            best, order = torch.cat([best, scores], 1).topk(min(k, best.shape[1] + scores.shape[1]))
            found = torch.cat([found, places], 1).gather(1, order)
        return best.cpu().numpy(), found.cpu().numpy()

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def nbytes(self) -> int:
        return self._vectors.nbytes

    def save(self, folder: Path) -> None:
        self._host.save(folder)


class FaissGPUIndex(ExactIndex):
    """Faiss on all GPUs. There it takes no filter and no k above FAISS_DEPTH: the CPU searches then."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        super().__init__(vectors)
        flat = faiss.IndexFlatIP(self.dim)
        flat.add(vectors)
        self._gpus = faiss.index_cpu_to_all_gpus(flat)

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        if allowed is not None or k > FAISS_DEPTH:
            return super()._nearest(queries, k, allowed)
        return self._gpus.search(queries, k)


def on_device(config: IndexConfig, index: PaperIndex) -> PaperIndex:
    """The index, or what searches its vectors on a GPU where there is one."""
    library = None if config.device == "cpu" else gpu_library(config.kind)
    if library == "torch" and isinstance(index, ExactIndex | HalfIndex | MappedIndex):
        return TorchIndex(index, torch.device("cuda"))
    if library == "faiss" and isinstance(index, ExactIndex):
        return FaissGPUIndex(index.vectors)
    return index
