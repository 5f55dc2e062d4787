"""Vectors in numbers of 16 bits, in one or several arrays that may be mapped from files, as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from retrieval.exact import BLOCK

_INFINITE = {np.dtype(np.float16): (np.uint16, 0x7C00), np.dtype(np.float32): (np.uint32, 0x7F800000)}
"""Numbers as integers: without their signs, finite ones are smaller than this."""


class Halves:
    """Vectors [N, D], float16 (or float32), read as float32.

    Nothing of them is held: what is asked for is read from the arrays, `BLOCK` numbers at a time by those who
    go through all of it.
    """

    def __init__(
        self, arrays: Sequence[NDArray[np.floating]], order: NDArray[np.int64] | None = None
    ) -> None:
        """arrays: [n, D] each, one after the other. order: which of all rows are meant, in which order."""
        self._arrays = list(arrays)
        self._starts = np.cumsum([0] + [len(array) for array in arrays])
        self._order = order
        rows = int(self._starts[-1]) if order is None else len(order)
        self.shape = (rows, arrays[0].shape[1])
        self.dtype = arrays[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Of the vectors, wherever they are."""
        return len(self) * self.shape[1] * self.dtype.itemsize

    def take(self, rows: NDArray[np.int64]) -> Halves:
        """These rows alone, in this order."""
        return Halves(self._arrays, rows if self._order is None else self._order[rows])

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """Vectors of some rows [n, D]."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            assert step == 1
            if self._order is None:
                return self._run(start, stop)
            rows = np.arange(start, stop)
        wanted = np.asarray(rows, np.int64) if self._order is None else self._order[rows]
        if len(wanted) and wanted[-1] - wanted[0] + 1 == len(wanted) and (np.diff(wanted) == 1).all():
            return self._run(int(wanted[0]), int(wanted[-1]) + 1)
        return self._gathered(wanted)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[np.float32]:
        """All of them, in memory."""
        return self[:]

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """All vectors, some at a time."""
        step = max(1, BLOCK // max(1, self.shape[1]))
        for start in range(0, len(self), step):
            yield self[start : start + step]

    def raw_blocks(self) -> Iterator[NDArray[np.floating]]:
        """The same in the numbers that they are kept in."""
        for block in self.blocks():
            yield rounded(block, self.dtype)

    def _run(self, start: int, stop: int) -> NDArray[np.float32]:
        out = torch.empty((max(0, stop - start), self.shape[1]))
        for number in range(*self._between(start, stop)):
            begin = int(self._starts[number])
            first, last = max(start, begin), min(stop, int(self._starts[number + 1]))
            # torch converts several times as fast as numpy.
            part = torch.from_numpy(self._arrays[number][first - begin : last - begin])
            out[first - start : last - start] = part
        return out.numpy()

    def _gathered(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        order = None if (np.diff(rows) >= 0).all() else np.argsort(rows, kind="stable")
        ascending = rows if order is None else rows[order]
        cuts = np.searchsorted(ascending, self._starts)
        for number, (first, last) in enumerate(pairwise(cuts)):
            if first < last:
                found = self._arrays[number][ascending[first:last] - self._starts[number]]
                out[slice(first, last) if order is None else order[first:last]] = found
        return torch.from_numpy(out).float().numpy()

    def _between(self, start: int, stop: int) -> tuple[int, int]:
        """The arrays that hold some rows."""
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        return max(0, first), int(np.searchsorted(self._starts, stop, side="left"))


def rounded(vectors: NDArray[np.floating], dtype: np.dtype[Any] | str) -> NDArray[np.floating]:
    """Vectors in another kind of numbers; infinite where they are too large for it."""
    kind = {"float16": torch.float16, "float32": torch.float32}[str(dtype)]
    found: NDArray[np.floating] = torch.from_numpy(np.ascontiguousarray(vectors)).to(kind).numpy()
    return found


def not_finite(vectors: NDArray[np.floating]) -> int | None:
    """The first row of vectors [n, D] that is not finite, None if all are."""
    kind, infinite = _INFINITE[vectors.dtype]
    step = max(1, BLOCK // max(1, vectors.shape[1]))
    for start in range(0, len(vectors), step):
        bits = vectors[start : start + step].view(kind) & kind(infinite | (infinite - 1))
        if bits.max(initial=0) >= infinite:
            return start + int(np.argmax((bits >= infinite).any(axis=1)))
    return None
