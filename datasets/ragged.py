"""Rows of different lengths in two flat arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer]


@dataclass(frozen=True)
class Ragged:
    """`values` [total] int32 and `offsets` [rows + 1] int64: row i is values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int] | Ints]) -> Ragged:
        """
        >>> Ragged.from_rows([[1, 2], [], [3]]).lengths.tolist()
        [2, 0, 1]
        """
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        parts = [np.asarray(row, np.int32) for row in rows]
        values = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return cls(values, offsets_of(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        return (self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[rows]"""
        return np.diff(self.offsets)

    def take(self, rows: Ints) -> Ragged:
        """The given rows (any order, repeats allowed) as a new Ragged."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise IndexError(f"rows must be in 0..{len(self) - 1}")
        index, offsets = ranges(self.offsets[rows], self.offsets[rows + 1])
        return Ragged(self.values[index], offsets)


def offsets_of(lengths: Ints) -> NDArray[np.int64]:
    """Lengths [rows] -> offsets [rows + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of ranges one after the other, and where those of each range [n] are among them [n + 1].

    >>> [part.tolist() for part in ranges(np.array([5, 0, 2]), np.array([7, 0, 3]))]
    [[5, 6, 2], [0, 2, 2, 3]]
    """
    offsets = offsets_of(ends - starts)
    numbers = np.repeat(starts - offsets[:-1], np.diff(offsets))
    numbers += np.arange(len(numbers))
    return numbers, offsets
