"""Large JSON files cut between their records, so that several processes can read one.

Commas between records are found by the brackets and quotation marks before them, not by guessing. A file that
is not well-formed may be cut anywhere: then one piece of it at least is not well-formed either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numba
import numpy as np
from numpy.typing import NDArray

QUOTE, BACKSLASH, COMMA = (ord(sign) for sign in '"\\,')
OPEN_MAP, CLOSE_MAP, OPEN_LIST, CLOSE_LIST = (ord(sign) for sign in "{}[]")
COPIED = 1 << 24
"""Bytes that are copied at a time."""


@dataclass(frozen=True)
class Piece:
    """The bytes from `start` to before `stop` of a file that is not compressed: whole records."""

    path: str
    start: int
    stop: int
    last: bool


def cut(path: Path, size: int) -> list[Piece]:
    """A file that holds an object of objects, in pieces of at least `size` bytes but for the last one."""
    if path.stat().st_size == 0:
        return [Piece(str(path), 0, 0, True)]
    data = np.memmap(path, np.uint8, "r")
    commas = np.empty(len(data) // size + 1, np.int64)
    commas = commas[: _commas(data, size, commas)]
    ends = [*commas.tolist(), len(data)]
    starts = [0, *(comma + 1 for comma in ends[:-1])]
    place = str(path.resolve())
    return [Piece(place, start, end, end == len(data)) for start, end in zip(starts, ends, strict=True)]


@contextmanager
def as_file(piece: Piece) -> Iterator[Path]:
    """The records of a piece as a file of their own."""
    with TemporaryDirectory() as folder:
        part = Path(folder) / "records.json"
        with open(piece.path, "rb") as source, part.open("wb") as target:
            source.seek(piece.start)
            if piece.start:
                target.write(b"{")
            for first, stop in pairwise([*range(piece.start, piece.stop, COPIED), piece.stop]):
                target.write(source.read(stop - first))
            if not piece.last:
                target.write(b"}")
        yield part


@numba.njit(cache=True, nogil=True)
def _commas(data: NDArray[np.uint8], size: int, found: NDArray[np.int64]) -> int:
    """Places of commas between records, at least `size` bytes apart, into `found`; gives their number."""
    count, depth, wanted, place = 0, 0, size, 0
    inside = False
    while place < len(data):
        sign = data[place]
        if inside:
            if sign == BACKSLASH:
                place += 1
            elif sign == QUOTE:
                inside = False
        elif sign == QUOTE:
            inside = True
        elif sign in (OPEN_MAP, OPEN_LIST):
            depth += 1
        elif sign in (CLOSE_MAP, CLOSE_LIST):
            depth -= 1
        elif sign == COMMA and depth == 1 and place >= wanted:
            found[count] = place
            count += 1
            wanted = place + 1 + size
        place += 1
    return count
