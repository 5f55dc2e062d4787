"""Exact indexes on a GPU, searched by torch or Faiss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.indexes.cpu import CHUNK, FaissIndex, FlatIndex, Found, PaperIndex, faiss

GPU_SCORES = 1 << 26
"""Scores in GPU memory at a time: 256 MiB."""
FAISS_DEPTH = 2048
"""Maximum k of Faiss on a GPU."""


class TorchIndex(PaperIndex):
    """The vectors of an exact index on a torch device, searched in blocks with a running top k."""

    def __init__(self, host: FlatIndex | FaissIndex, device: torch.device) -> None:
        self._host, self.dim = host, host.dim
        self._vectors = torch.empty(
            (len(host), host.dim), dtype=getattr(torch, host.precision), device=device
        )
        start = 0
        for block in host.blocks():
            self._vectors[start : start + len(block)] = torch.from_numpy(block)
            start += len(block)

    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        device = self._vectors.device
        vectors = torch.from_numpy(queries).to(device)
        rows = None if allowed is None else torch.from_numpy(np.flatnonzero(allowed)).to(device)
        best = vectors.new_empty((len(queries), 0))
        found = torch.empty((len(queries), 0), dtype=torch.int64, device=device)
        step = GPU_SCORES // CHUNK
        for start in range(0, len(self) if rows is None else len(rows), step):
            part = slice(start, start + step) if rows is None else rows[start : start + step]
            scores = vectors @ self._vectors[part].float().T
            scores, indices = scores.topk(min(k, scores.shape[1]))
            indices = start + indices if rows is None else rows[start + indices]
            best, order = torch.cat([best, scores], 1).topk(min(k, best.shape[1] + scores.shape[1]))
            found = torch.cat([found, indices], 1).gather(1, order)
        return best.cpu().numpy(), found.cpu().numpy()

    def read(self, rows: Rows) -> Floats:
        return np.asarray(self._vectors[torch.from_numpy(rows)].float().cpu().numpy())

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def nbytes(self) -> int:
        return self._vectors.nbytes

    def save(self, folder: Path) -> None:
        self._host.save(folder)


class FaissGPUIndex(FlatIndex):
    """Faiss on all GPUs; searches with a filter or k above FAISS_DEPTH run on the CPU."""

    def __init__(self, vectors: Floats) -> None:
        super().__init__(vectors)
        flat = faiss.IndexFlatIP(self.dim)
        flat.add(vectors)
        self._gpus = faiss.index_cpu_to_all_gpus(flat)

    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        if allowed is not None or k > FAISS_DEPTH:
            return super()._nearest(queries, k, allowed)
        return self._gpus.search(queries, k)


def gpu_library(kind: str) -> str | None:
    """The library to search an index on a GPU: torch, which supports filters, else faiss; None if neither."""
    if kind not in ("exact", "half"):
        return None
    if torch.cuda.is_available():
        return "torch"
    return "faiss" if kind == "exact" and faiss.get_num_gpus() > 0 else None


def to_gpu(kind: str, index: FlatIndex | FaissIndex) -> PaperIndex:
    """Move an index to a GPU if there is one."""
    library = gpu_library(kind)
    if library == "torch":
        return TorchIndex(index, torch.device("cuda"))
    if library == "faiss" and isinstance(index, FlatIndex) and isinstance(index.vectors, np.ndarray):
        return FaissGPUIndex(index.vectors)
    return index
