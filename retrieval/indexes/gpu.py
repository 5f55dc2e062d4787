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

GPU_SCORES = 1 << 26
"""Scores in GPU memory at a time: 256 MiB."""
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
        start = 0
        for block in host.blocks():
            self._vectors[start : start + len(block)] = torch.from_numpy(block)
            start += len(block)

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
    """Faiss on one or all GPUs.

    Searches with a filter, or for more than FAISS_DEPTH papers, are left to torch, or else to the CPU.
    """

    def __init__(self, vectors: Floats, device: int | None = None) -> None:
        """device: number of the GPU; None: all."""
        super().__init__(vectors)
        faiss = load_faiss()
        flat = faiss.IndexFlatIP(self.dim)
        flat.add(vectors)
        if device is None:
            self._gpus = faiss.index_cpu_to_all_gpus(flat)
        else:
            self._resources = faiss.StandardGpuResources()
            self._gpus = faiss.index_cpu_to_gpu(self._resources, device, flat)
        self._device = torch.device("cuda", device or 0)

    @cached_property
    def _torch(self) -> TorchIndex:
        return TorchIndex(FlatIndex(self.vectors), self._device)

    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        if allowed is None and k <= FAISS_DEPTH:
            return self._gpus.search(queries, k)
        if torch.cuda.is_available():
            return self._torch._nearest(queries, k, allowed)
        return super()._nearest(queries, k, allowed)


def gpu_library(kind: str) -> str | None:
    """The library to search an index on a GPU: faiss for `exact` if faiss-gpu is installed, else torch.

    None if neither can.
    """
    if kind == "exact" and load_faiss().get_num_gpus() > 0:
        return "faiss"
    return "torch" if kind in ("exact", "half") and torch.cuda.is_available() else None


def to_gpu(kind: str, index: FlatIndex | FaissIndex) -> PaperIndex:
    """Move an index to a GPU if there is one."""
    library = gpu_library(kind)
    if library == "faiss" and isinstance(index, FlatIndex) and isinstance(index.vectors, np.ndarray):
        return FaissGPUIndex(index.vectors)
    if library is not None and torch.cuda.is_available():
        return TorchIndex(index, torch.device("cuda"))
    return index


def on_device(index: FlatIndex, device: torch.device, filtered: bool) -> PaperIndex:
    """Move an exact index to a device of torch. filtered: for searches with a filter."""
    on_gpu = device.type == "cuda" and load_faiss().get_num_gpus() > 0
    if on_gpu and not filtered and isinstance(index.vectors, np.ndarray):
        return FaissGPUIndex(index.vectors, device.index or 0)
    return TorchIndex(index, device)
