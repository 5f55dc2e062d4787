"""Encoding and storing vectors, shared by all encoders of words and of subwords.

An *encoder* is a network that turns documents into vectors; a *reader* turns corpus rows into documents.
`encode` encodes many rows; a `VectorTable` holds vectors on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from citerec.base.progress import count_progress
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Rows, to_unit_length
from citerec.retrieval.queries import Queries

BATCH = 1024
"""Documents that are read and sorted by length together."""
BLOCK = 1 << 24
"""Vector components that are gathered, decoded or compared at a time: 64 MiB."""


class Reader(Protocol):
    """Turns corpus rows into encoder inputs."""

    corpus: Corpus

    def papers(self, rows: NDArray[np.integer]) -> Any:
        """Rows of papers [B] -> B documents."""

    def queries(self, queries: Queries | NDArray[np.integer]) -> Any:
        """Queries, or rows of contexts, [B] -> B documents."""


def encode(
    forward: Callable[[Any], Floats],
    read: Callable[[Any], Any],
    rows: Rows | Queries,
    dim: int,
    what: str = "documents",
    normalise: bool = True,
    batch: int = BATCH,
    ahead: bool = False,
) -> Floats:
    """Encode papers (rows) or queries as vectors [len(rows), dim] of unit length (zeros if no word is known).

    read: `papers` or `queries` of a reader. forward: documents -> [B, dim] (retrieval.encoders.nets.as_numpy
    of a torch module). batch: documents read together. ahead: read the next ones while a device computes.
    """
    out = np.empty((len(rows), dim), np.float32)
    parts = [rows[first : first + batch] for first in range(0, len(rows), batch)]
    first, texts = 0, _read_ahead(read, parts) if ahead else map(read, parts)
    long = len(rows) > BATCH
    with count_progress(f"encoding {what}", len(rows)) if long else nullcontext(lambda done: None) as advance:
        for part, documents in zip(parts, texts, strict=True):
            vectors = forward(documents)
            out[first : first + len(part)] = to_unit_length(vectors) if normalise else vectors
            first += len(part)
            advance(len(part))
    return out


def _read_ahead(read: Callable[[Any], Any], parts: Sequence[Any]) -> Iterator[Any]:
    """Map `read` to parts in a thread that is one part ahead."""
    from citerec.retrieval.encoders.nets import one_behind  # torch

    with ThreadPoolExecutor(1) as thread:
        for done in one_behind(thread.submit(read, part) for part in parts):
            yield done.result()


def encode_queries(
    forward: Callable[[Any], Floats],
    reader: Reader,
    queries: Queries | Rows,
    dim: int,
    what: str = "queries",
    normalise: bool = True,
) -> Floats:
    """Encode queries, or rows of contexts, [Q] as vectors [Q, dim], sorted to read citing papers once."""
    queries = Queries.from_contexts(reader.corpus, queries)
    order = np.argsort(queries.citing, kind="stable")
    out = np.empty((len(queries), dim), np.float32)
    out[order] = encode(forward, reader.queries, queries[order], dim, what, normalise=normalise)
    return out


def blocks(count: int, dim: int) -> Iterator[slice]:
    """Split `count` vectors into slices of at most BLOCK components."""
    step = max(1, BLOCK // max(1, dim))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


class VectorTable:
    """Vectors [N, D] in one or several float16 or float32 arrays, usually memory-mapped, read as float32.

    Rows are read from the arrays on access; nothing is kept in memory.
    """

    def __init__(self, arrays: Sequence[NDArray[np.floating]]) -> None:
        """arrays: [n, D] each, concatenated."""
        self._arrays = list(arrays)
        self._starts = np.cumsum([0] + [len(array) for array in arrays])
        self.shape = int(self._starts[-1]), arrays[0].shape[1]
        self.dtype = arrays[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Size of the vectors in bytes, in memory or on disk."""
        return len(self) * self.shape[1] * self.dtype.itemsize

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Floats:
        """Vectors of some rows [n, D]."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        wanted = np.asarray(rows, np.int64)
        step = np.diff(wanted)
        contiguous = bool((step == 1).all())
        order = None if (step >= 0).all() else np.argsort(wanted, kind="stable")
        ascending = wanted if order is None else wanted[order]
        import torch  # converts with several threads

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
        """All vectors, in memory."""
        return self[:]

    def save(self, path: Path) -> None:
        """Write the vectors block by block as one .npy array."""
        with path.open("wb") as file:
            header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
            np.lib.format.write_array_header_1_0(file, header)
            for part in blocks(*self.shape):
                file.write(np.ascontiguousarray(as_dtype(self[part], self.dtype)).data)


def as_dtype(vectors: NDArray[np.floating], dtype: np.dtype[Any] | str) -> NDArray[np.floating]:
    """Convert vectors to float16 or float32; values out of range become infinite."""
    import torch  # converts several times as fast as numpy

    kind = {"float16": torch.float16, "float32": torch.float32}[str(dtype)]
    converted: NDArray[np.floating] = torch.from_numpy(np.ascontiguousarray(vectors)).to(kind).numpy()
    return converted


def first_not_finite(vectors: NDArray[np.floating]) -> int | None:
    """The first row of vectors [n, D] that is not finite; None if all are."""
    for part in blocks(*vectors.shape):
        finite = np.isfinite(vectors[part]).all(axis=1)
        if not finite.all():
            return part.start + int(finite.argmin())
    return None
