"""Making vectors and holding them: what all encoders share, whether of words or of subwords.

An *encoder* is a net that turns documents into vectors; a *reader* makes the documents of a corpus's rows.
`encode` makes vectors of many rows; a `VectorTable` holds those that lie in files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus
from retrieval.arrays import Floats, Rows
from retrieval.queries import Queries

log = logging.getLogger(__name__)

BATCH = 1024
"""Documents that are read, and sorted by length, together."""
BLOCK = 1 << 24
"""Numbers of vectors that are gathered, decoded or compared at a time: 64 MiB."""
SAY_EVERY = 20.0
"""Seconds between two lines on the progress of long work."""


class Reader(Protocol):
    """Makes what an encoder takes of rows of a corpus."""

    corpus: Corpus

    def papers(self, rows: NDArray[np.integer]) -> Any:
        """Papers, rows [B] -> B documents."""

    def queries(self, queries: Queries | NDArray[np.integer]) -> Any:
        """Queries, or rows of contexts, [B] -> B documents."""


class EncodingProgress:
    """Logs every SAY_EVERY seconds how far a long encoding is, and how long it will take."""

    def __init__(
        self, what: str, total: int, done: int = 0, bar: Callable[[int], None] | None = None
    ) -> None:
        """done: documents that need not be encoded. bar: is told how many more are (datasets.progress)."""
        self.what, self.total, self.done, self.found = what, total, float(done), done
        self._bar, self._shown = bar, 0
        self._start = self._said = time.monotonic()
        self.advance(0)

    def advance(self, more: float) -> None:
        """So many more documents are done, or parts of one."""
        self.done += more
        if self._bar is not None:
            self._bar(round(self.done) - self._shown)
            self._shown = round(self.done)
        if time.monotonic() - self._said > SAY_EVERY and self.done > self.found:
            self._said = time.monotonic()
            left = (self.total - self.done) / self.rate
            log.info(
                f"encoded {self.done:,.0f} of {self.total:,} {self.what}, {self.rate:,.0f}/s, "
                f"{left:.0f} s left"
            )

    @property
    def seconds(self) -> float:
        """Elapsed so far."""
        return time.monotonic() - self._start

    @property
    def rate(self) -> float:
        """Documents per second."""
        return (self.done - self.found) / max(self.seconds, 1e-9)


def encode(
    forward: Callable[[Any], Floats],
    read: Callable[[Any], Any],
    rows: Rows | Queries,
    dim: int,
    what: str = "documents",
    normalise: bool = True,
) -> Floats:
    """Papers (rows) or queries to vectors [len(rows), dim] of unit length (zeros where no word is known).

    read: `papers` or `queries` of a reader. forward: documents -> [B, dim] (retrieval.nets.as_numpy of a
    torch net).
    """
    out = np.empty((len(rows), dim), np.float32)
    pace = EncodingProgress(what, len(rows))
    for first in range(0, len(rows), BATCH):
        part = rows[first : first + BATCH]
        vectors = forward(read(part))
        out[first : first + BATCH] = to_unit_length(vectors) if normalise else vectors
        pace.advance(len(part))
    return out


def encode_queries(
    forward: Callable[[Any], Floats],
    reader: Reader,
    queries: Queries | Rows,
    dim: int,
    what: str = "queries",
    normalise: bool = True,
) -> Floats:
    """Queries, or rows of contexts, [Q] to vectors [Q, dim]; those of one citing paper are read together."""
    queries = Queries.of(reader.corpus, queries)
    order = np.argsort(queries.citing, kind="stable")
    out = np.empty((len(queries), dim), np.float32)
    out[order] = encode(forward, reader.queries, queries[order], dim, what, normalise=normalise)
    return out


class QueryCache:
    """Vectors of queries that are searched more than once, as in one pool after the other."""

    def __init__(self) -> None:
        self._known: dict[int, Floats] = {}

    def get(self, queries: Queries, make: Callable[[Queries], Iterable[Floats]]) -> list[Floats]:
        """What `make` gives for each of a corpus's contexts, or gave before."""
        rows = queries.contexts.tolist()
        new = {row: place for place, row in enumerate(rows) if row not in self._known}
        if new:
            self._known.update(zip(new, make(queries[np.array(list(new.values()))]), strict=True))
        return [self._known[row] for row in rows]


def blocks(count: int, dim: int) -> Iterator[slice]:
    """Runs of `count` vectors, a BLOCK of numbers each."""
    step = max(1, BLOCK // max(1, dim))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


class VectorTable:
    """Vectors [N, D] of 16 (or 32) bits per number in one or several arrays, perhaps mapped, read as float32.

    Nothing is held in memory: what is asked for is read from the arrays.
    """

    def __init__(self, arrays: Sequence[NDArray[np.floating]], order: Rows | None = None) -> None:
        """arrays: [n, D] each, one after the other. order: which of all rows are meant, in which order."""
        self._arrays = list(arrays)
        self._starts = np.cumsum([0] + [len(array) for array in arrays])
        self._order = order
        self.shape = (int(self._starts[-1]) if order is None else len(order), arrays[0].shape[1])
        self.dtype = arrays[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Of the vectors, wherever they are."""
        return len(self) * self.shape[1] * self.dtype.itemsize

    def take(self, rows: Rows) -> VectorTable:
        """These rows alone, in this order."""
        return VectorTable(self._arrays, rows if self._order is None else self._order[rows])

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Floats:
        """Vectors of some rows [n, D]."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        wanted = np.asarray(rows, np.int64)
        if self._order is not None:
            wanted = self._order[wanted]
        step = np.diff(wanted)
        contiguous = bool((step == 1).all())
        order = None if (step >= 0).all() else np.argsort(wanted, kind="stable")
        ascending = wanted if order is None else wanted[order]
        import torch  # which converts with several threads

        out = torch.empty((len(wanted), self.shape[1]))
        for number, (first, last) in enumerate(pairwise(np.searchsorted(ascending, self._starts))):
            if first == last:
                continue
            own = ascending[first:last] - self._starts[number]
            part = self._arrays[number][own[0] : own[-1] + 1] if contiguous else self._arrays[number][own]
            if order is None:
                out[first:last] = torch.from_numpy(part)
            else:
                out[torch.from_numpy(order[first:last])] = torch.from_numpy(part).float()
        return out.numpy()

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Floats:
        """All of them, in memory."""
        return self[:]

    def blocks(self) -> Iterator[Floats]:
        """All vectors, some at a time."""
        return (self[part] for part in blocks(len(self), self.shape[1]))

    def save(self, path: Path) -> None:
        """Write the vectors as one array of NumPy's format, block by block."""
        with path.open("wb") as file:
            header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
            np.lib.format.write_array_header_1_0(file, header)
            for block in self.blocks():
                file.write(np.ascontiguousarray(as_dtype(block, self.dtype)).data)


def as_dtype(vectors: NDArray[np.floating], dtype: np.dtype[Any] | str) -> NDArray[np.floating]:
    """Vectors in float16 or float32; infinite where they are too large for it."""
    import torch  # which converts several times as fast as numpy

    kind = {"float16": torch.float16, "float32": torch.float32}[str(dtype)]
    found: NDArray[np.floating] = torch.from_numpy(np.ascontiguousarray(vectors)).to(kind).numpy()
    return found


_INFINITE = {np.dtype(np.float16): (np.uint16, 0x7C00), np.dtype(np.float32): (np.uint32, 0x7F800000)}
"""Numbers as integers: without their signs, finite ones are smaller than this."""


def first_not_finite(vectors: NDArray[np.floating]) -> int | None:
    """The first row of vectors [n, D] that is not finite, None if all are."""
    kind, infinite = _INFINITE[vectors.dtype]
    for part in blocks(*vectors.shape):
        bits = vectors[part].view(kind) & kind(infinite | (infinite - 1))
        if bits.max(initial=0) >= infinite:
            return part.start + int(np.argmax((bits >= infinite).any(axis=1)))
    return None


def to_unit_length(vectors: Floats) -> Floats:
    """Vectors [n, D] of unit length; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def padded_length(length: int) -> int:
    """Few different lengths, because the matrix library sets up a kernel for each shape it meets."""
    return -(-length // 8) * 8


def chunks(lengths: Rows, tokens: int) -> Iterator[slice]:
    """Cut rows of falling lengths into runs of at most `tokens` tokens after padding (one row at least)."""
    start = 0
    while start < len(lengths):
        size = max(1, tokens // padded_length(int(lengths[start])))
        yield slice(start, start + size)
        start += size
