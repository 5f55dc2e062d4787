"""Exact indexes on a GPU, searched by torch or Faiss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.indexes.cpu import CHUNK, FaissIndex, FlatIndex, Found, PaperIndex, load_faiss
from citerec.retrieval.vectors import blocks

GPU_SCORES = 1 << 26
"""Scores in GPU memory at a time: 256 MiB."""
DEVICE = torch.device("cuda")
"""The GPU that searches: the first that CUDA_VISIBLE_DEVICES shows."""
FAISS_DEPTH = 2048
"""Maximum k of Faiss on a GPU."""


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 matrices exactly, not in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class TorchIndex(PaperIndex):
    """The vectors of an exact index on a torch device, searched in blocks with a running top k."""

    def __init__(self, host: FlatIndex | FaissIndex, device: torch.device) -> None:
        self._host, self.dim = host, host.dim
        self._vectors = torch.empty(
            (len(host), host.dim), dtype=getattr(torch, host.precision), device=device
        )
        for part in blocks(len(host), host.dim):
            self._vectors[part] = torch.from_numpy(host.read(np.arange(part.start, part.stop)))

    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        device = self._vectors.device
        vectors = torch.from_numpy(queries).to(device)
        rows = None if allowed is None else torch.from_numpy(np.flatnonzero(allowed)).to(device)
        best = vectors.new_empty((len(queries), 0))
        places = torch.empty((len(queries), 0), dtype=torch.int64, device=device)
        step = GPU_SCORES // CHUNK
        for start in range(0, len(self) if rows is None else len(rows), step):
            part = slice(start, start + step) if rows is None else rows[start : start + step]
            with full_precision():
                scores = vectors @ self._vectors[part].float().T
            scores, indices = scores.topk(min(k, scores.shape[1]))
            indices = start + indices if rows is None else rows[start + indices]
            best, order = torch.cat([best, scores], 1).topk(min(k, best.shape[1] + scores.shape[1]))
            places = torch.cat([places, indices], 1).gather(1, order)
        return best.cpu().numpy(), places.cpu().numpy()

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
    """Faiss on one GPU; searches with a filter, or for more than FAISS_DEPTH papers, are left to torch."""

    def __init__(self, vectors: Floats, device: torch.device) -> None:
        super().__init__(vectors)
        faiss = load_faiss()
        flat = faiss.IndexFlatIP(self.dim)
        flat.add(vectors)
        self._device, self._resources = device, faiss.StandardGpuResources()
        self._gpu = faiss.index_cpu_to_gpu(self._resources, device.index or 0, flat)

    @cached_property
    def _torch(self) -> TorchIndex:
        return TorchIndex(self, self._device)

    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        if allowed is None and k <= FAISS_DEPTH:
            return self._gpu.search(queries, k)
        return self._torch._nearest(queries, k, allowed)


def on_device(
    index: FlatIndex | FaissIndex, device: torch.device = DEVICE, filtered: bool = False
) -> PaperIndex:
    """Move an index to one device of torch. filtered: for searches with a filter.

    Faiss searches float32 vectors on a GPU if faiss-gpu is installed, else torch.
    """
    use_faiss = device.type == "cuda" and not filtered and load_faiss().get_num_gpus() > 0
    if use_faiss and isinstance(index, FlatIndex) and isinstance(index.vectors, np.ndarray):
        return FaissGPUIndex(index.vectors, device)
    return TorchIndex(index, device)
