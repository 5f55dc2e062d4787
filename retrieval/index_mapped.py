"""Exact search of vectors that stay on the disk, mapped, in numbers of 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from datasets.errors import InputError
from retrieval.exact import Scored, nearest_of_blocks
from retrieval.halves import Halves
from retrieval.paper_index import PaperIndex

AT_ONCE = 1 << 26
"""Numbers that are compared at a time, 256 MiB: each block has its own best k, which are then merged."""


class MappedIndex(PaperIndex):
    """Compares with every vector, a block of them in memory at a time.

    With `last`, [N] float32, vectors have one number more, which is not rounded.
    """

    FILE, LAST = "halves.npy", "last.npy"

    def __init__(self, vectors: Halves, last: NDArray[np.float32] | None = None) -> None:
        """vectors: [N, D], finite."""
        self.vectors, self.last = vectors, last
        self.dim = vectors.shape[1] + (last is not None)
        self.precision = torch.float16 if last is None else torch.float32

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote, mapped; InputError if it is damaged."""
        try:
            vectors = np.load(folder / cls.FILE, mmap_mode="c", allow_pickle=False)
            last = None
            if (folder / cls.LAST).is_file():
                last = np.load(folder / cls.LAST, allow_pickle=False)
        except (ValueError, EOFError):
            vectors = np.empty(0)
        if (
            vectors.ndim != 2
            or vectors.dtype != np.float16
            or (last is not None and len(last) != len(vectors))
        ):
            raise InputError(f"{folder / cls.FILE}: damaged; make the index again")
        return cls(Halves([np.asarray(vectors)]), last)

    def save(self, folder: Path) -> None:
        rows, dim = self.vectors.shape
        # The header first: the file is written a block at a time.
        with (folder / self.FILE).open("wb") as file:
            header = {"descr": np.dtype(np.float16).str, "fortran_order": False, "shape": (rows, dim)}
            np.lib.format.write_array_header_1_0(file, header)
            for block in self.vectors.raw_blocks():
                file.write(np.ascontiguousarray(block, np.float16).data)
        if self.last is not None:
            np.save(folder / self.LAST, self.last)

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        rows = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        return nearest_of_blocks(queries, k, rows, self._read, AT_ONCE)

    def _read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        found = self.vectors[rows]
        return found if self.last is None else np.concatenate([found, self.last[rows, None]], axis=1)

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """All vectors, some at a time."""
        start = 0
        for block in self.vectors.blocks():
            yield block if self.last is None else self._read(np.arange(start, start + len(block)))
            start += len(block)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes + (0 if self.last is None else self.last.nbytes)
