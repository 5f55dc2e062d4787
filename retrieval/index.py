"""Indexes of paper vectors by name: making them, and reading them again.

Exact search by inner product over dense vectors.
Vectors in numbers of 16 bits, in one or several arrays that may be mapped from files, as one table.
What an index of paper vectors is: its settings, and what it can be asked for.
Exact search of vectors as they are.
Indexes of Faiss: half precision, product quantisation, inverted files, graphs of neighbours.
Exact search of vectors that stay on the disk, mapped, in numbers of 16 bits.
Exact search on GPUs, by torch or by Faiss.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import NDArray

from datasets.errors import InputError
from retrieval.base import Ranking, nothing, ordered

logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # it reports every build that it looks for
import faiss as faiss  # noqa: E402

# Numbers in a batch of queries from which Faiss multiplies matrices. Its own 128,000 is 640 queries of 200
# dimensions; multiplying is faster from 8 on, several times so for a few hundred (benchmarks/indexes.py), and
# the same holds for the short vectors of product quantisers.
faiss.cvar.distance_compute_blas_threshold = 1600

CHUNK = 1024
"""Queries searched at a time."""
BLOCK = 1 << 24
"""Numbers of the papers' vectors that are gathered or decoded at a time: 64 MiB."""

Scored = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def search_exact(
    queries: npt.NDArray[np.float32],
    papers: npt.NDArray[np.float32],
    k: int,
    exclude: npt.NDArray[np.integer] | None = None,
    candidates: npt.NDArray[np.bool_] | None = None,
    chunk: int = CHUNK,
) -> Ranking:
    """The k papers of the highest inner product with each query, without the excluded ones.

    queries: float32 [Q, D]; papers: float32 [P, D]; normalise both beforehand for the cosine.
    exclude: paper rows that a query must not get, int [Q] or [Q, E]; -1 excludes nothing.
    candidates: bool [P], the papers that may be returned at all (default: every one).
    chunk: queries searched at a time. Memory beside the result is about chunk * (k + E) * 40 bytes, with
    candidates another BLOCK.

    Never holds scores of Q x P: Faiss multiplies blocks and keeps the best of each row. Which of several
    papers of equal score stands at place k, where only some of them fit, is left to Faiss.
    Raises InputError when a vector is not finite, ValueError when the shapes do not agree.
    """
    queries, papers = finite(queries, "queries"), finite(papers, "papers")
    if queries.shape[1] != papers.shape[1]:
        raise ValueError(f"queries have {queries.shape[1]} dimensions, papers {papers.shape[1]}")
    if k < 1 or chunk < 1:
        raise ValueError(f"k ({k}) and chunk ({chunk}) must be at least 1")
    rows = None if candidates is None or candidates.all() else np.flatnonzero(candidates)
    excluded = np.empty((len(queries), 0), np.int32) if exclude is None else _columns(exclude, len(queries))

    # Whatever is excluded may take one of the first places, so ask for as many more.
    depth = min(k + excluded.shape[1], len(papers) if rows is None else len(rows))
    if depth == 0 or len(queries) == 0:
        return Ranking(*nothing(len(queries), k))
    parts = []
    for start in range(0, len(queries), chunk):
        scores, found = nearest(queries[start : start + chunk], papers, depth, rows)
        drop = np.zeros(found.shape, np.bool_)
        for column in excluded[start : start + chunk].T:
            drop |= found == column[:, None]
        parts.append(ordered(found, scores, k, drop))
    return Ranking.concat(parts)


def nearest(
    queries: npt.NDArray[np.float32],
    papers: npt.NDArray[np.float32],
    k: int,
    rows: npt.NDArray[np.int64] | None,
) -> Scored:
    """Scores and rows [Q, k] of the k best of some rows of `papers`, or of all; k is at most their number.

    Nothing is checked, and all queries are searched at once.
    """
    if rows is None:
        scores, found = faiss.knn(queries, papers, k, metric=faiss.METRIC_INNER_PRODUCT)
        return scores, found
    return nearest_of_blocks(queries, k, rows, lambda part: papers[part])


def nearest_of_blocks(
    queries: npt.NDArray[np.float32],
    k: int,
    rows: npt.NDArray[np.int64],
    read: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]],
    block: int = BLOCK,
) -> Scored:
    """As `nearest`, of papers whose vectors `read` gives for some of the rows, ascending, at a time.

    block: numbers of these vectors that are read at a time.
    """
    best = faiss.ResultHeap(len(queries), k, keep_max=True)
    step = max(1, block // queries.shape[1])
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        scores, places = faiss.knn(queries, read(part), min(k, len(part)), metric=faiss.METRIC_INNER_PRODUCT)
        best.add_result(scores, part[places])
    best.finalize()
    return best.D, best.I


def finite(vectors: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.float32]:
    """The vectors [N, D] as an array that Faiss takes; InputError names the first that is not finite."""
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if vectors.ndim != 2:
        raise ValueError(f"{name}: expected [rows, dimensions], got shape {vectors.shape}")
    # In blocks, so that the check needs no second array of the same size.
    for start in range(0, len(vectors), 65536):
        good = np.isfinite(vectors[start : start + 65536]).all(axis=1)
        if not good.all():
            raise InputError(
                f"{name}: vector {start + int(np.argmin(good))} is not finite; "
                "the model that made it has diverged, train it with a lower learning rate"
            )
    return vectors


def _columns(exclude: npt.NDArray[np.integer], queries: int) -> npt.NDArray[np.integer]:
    columns = exclude[:, None] if exclude.ndim == 1 else exclude
    if columns.ndim != 2 or len(columns) != queries:
        raise ValueError(f"exclude has shape {exclude.shape} for {queries} queries")
    return columns


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


_TRAINED = ("sample", "seed")
SHAPING = {
    "exact": (),
    "half": (),
    "ivf": ("lists", *_TRAINED),
    "hnsw": ("links", "ef_construction"),
    "pq": ("subvectors", *_TRAINED),
    "ivfpq": ("lists", "subvectors", *_TRAINED),
}
"""Kinds, and the settings that a finished index depends on."""
SEARCHING = {
    "exact": ("device",),
    "half": ("device",),
    "ivf": ("probes",),
    "hnsw": ("ef_search",),
    "pq": (),
    "ivfpq": ("probes",),
}
"""Settings of the search alone: a saved index takes any."""

CODES = 256
"""Codes of a subvector of product quantisation: a byte."""


def gpu_library(kind: str) -> str | None:
    """What can search such an index on a GPU of this machine: torch, which takes filters, or else faiss."""
    if "device" not in SEARCHING[kind]:
        return None
    if torch.cuda.is_available():
        return "torch"
    return "faiss" if kind == "exact" and faiss.get_num_gpus() > 0 else None


@dataclass(frozen=True)
class IndexConfig:
    """Which index, and its settings (conf/index); null where one follows from the number N of the vectors.

    kind: exact; half (exact, numbers of 16 bits); ivf (inverted file: vectors in lists around the centres of
    k-means); hnsw (a graph of neighbours: Malkov and Yashunin 2020); pq (product quantisation: Jegou et al.
    2011); ivfpq (both).
    device: of exact and half: auto (a GPU where there is one), cpu or gpu.
    lists: of ivf; 4 sqrt(N). probes: the lists that are searched, at least; null: 2 sqrt(lists).
    links: neighbours of a vector in hnsw, twice as many at the bottom. ef_construction, ef_search: candidates
    that are kept while adding and, at least, while searching; more is slower and better.
    subvectors: of pq, a byte each; null: the most that leave 2 dimensions to each.
    sample: vectors that k-means learns from; null: 64 a list or 256 a code, if there are so many.
    seed: of the sample and of k-means.
    """

    kind: str = "exact"
    device: str = "auto"
    lists: int | None = None
    probes: int | None = None
    links: int = 16
    ef_construction: int = 80
    ef_search: int = 128
    subvectors: int | None = None
    sample: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises InputError for an unknown kind, a setting that it does not have, and values out of range."""
        if self.kind not in SHAPING:
            raise InputError(f"index.kind={self.kind}: choose one of {', '.join(SHAPING)}")
        known = {"kind", *SHAPING[self.kind], *SEARCHING[self.kind]}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in known and value != field.default:
                raise InputError(f"index.{field.name}={value}: index={self.kind} has no such setting")
            if field.name in ("kind", "device") or value is None is field.default:
                continue
            least = {"links": 2, "seed": 0}.get(field.name, 1)
            if type(value) is not int or value < least:
                raise InputError(f"index.{field.name}={value}: give a whole number, {least} or more")
        if self.device not in ("auto", "cpu", "gpu"):
            raise InputError(f"index.device={self.device}: choose one of auto, cpu, gpu")

    def check(self, papers: int | None = None) -> None:
        """Raises InputError where there is no such device, or so many vectors cannot be indexed like this."""
        if self.device == "gpu" and gpu_library(self.kind) is None:
            raise InputError(
                "index.device=gpu: there is no GPU to use; install torch with CUDA (or, for index=exact, "
                "faiss-gpu), or choose index.device=cpu"
            )
        if papers is None or "sample" not in SHAPING[self.kind]:
            return
        needed = max(self.lists or 1, CODES if "subvectors" in SHAPING[self.kind] else 1)
        if (learned := min(papers, self.sample or papers)) < needed:
            raise InputError(
                f"index={self.kind}: must learn from {needed:,} papers, and there are {learned:,}; "
                "choose fewer index.lists, a larger index.sample, or index=exact"
            )

    def asdict(self) -> dict[str, object]:
        """The kind and what an index of it depends on, as plain values."""
        return {name: asdict(self)[name] for name in ("kind", *SHAPING[self.kind])}


class PaperIndex(ABC):
    """Vectors [N, dim] of unit length; papers are known by their place, 0 to N - 1."""

    dim: int

    def search(
        self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> Ranking:
        """The k nearest of the allowed places [N] to each query [Q, dim]; -1 where there are fewer.

        What is found is always allowed, and always k papers where k are allowed: a query for which an
        approximate index finds fewer is compared with all of them. Memory beside the result does not grow
        with Q. InputError for queries that are not finite.
        """
        queries = finite(queries, "queries")
        if queries.shape[1] != self.dim:
            raise ValueError(f"queries have {queries.shape[1]} dimensions, papers {self.dim}")
        if allowed is not None and allowed.all():
            allowed = None
        depth = min(k, len(self) if allowed is None else int(np.count_nonzero(allowed)))
        if depth == 0 or len(queries) == 0:
            return Ranking(*nothing(len(queries), k))
        parts = []
        for start in range(0, len(queries), CHUNK):
            scores, found = self._nearest(queries[start : start + CHUNK], depth, allowed)
            parts.append(ordered(found, scores, k))
        return Ranking.concat(parts)

    @abstractmethod
    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        """Scores and places [Q, k] for at most CHUNK queries; k papers are allowed, and found."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of vectors."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory of what is searched."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the index into an existing folder."""


class ExactIndex(PaperIndex):
    """Compares with every vector, of 32 bits a number."""

    FILE = "vectors.npy"
    precision = torch.float32

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        """vectors: [N, D], finite."""
        self.vectors, self.dim = vectors, vectors.shape[1]

    @classmethod
    def build(cls, config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> Self:
        """An index of vectors [N, D], finite, which it holds in memory."""
        return cls(np.asarray(vectors))

    @classmethod
    def load(cls, config: IndexConfig, folder: Path) -> Self:
        """What `save` wrote, mapped; InputError if it is damaged."""
        try:
            vectors = np.load(folder / cls.FILE, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            vectors = np.empty(0)
        if vectors.ndim != 2 or vectors.dtype != np.float32:
            raise InputError(f"{folder / cls.FILE}: damaged; make the index again")
        return cls(vectors)

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        return nearest(queries, self.vectors, k, None if allowed is None else np.flatnonzero(allowed))

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """All vectors, some at a time."""
        step = max(1, BLOCK // self.dim)
        for start in range(0, len(self), step):
            yield np.array(self.vectors[start : start + step])

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes

    def save(self, folder: Path) -> None:
        np.save(folder / self.FILE, self.vectors)


FEW = 32
"""Queries up to which comparing with codes is faster than decoding them for a matrix product."""
SLACK = 10
"""Papers that the searched lists should hold for each one that is wanted."""
VISITS = 4
"""Vectors in a row that are compared in the time of a candidate in a graph, for each of its links."""
MULTIPLIED = 5
"""How much faster a matrix product compares, for more than FEW queries."""
IP = faiss.METRIC_INNER_PRODUCT


class FaissIndex(PaperIndex):
    """An index of Faiss, mapped when it is read from its file."""

    FILE = "vectors.faiss"
    TYPES: tuple[type, ...]

    def __init__(self, config: IndexConfig, index: faiss.Index) -> None:
        self._config, self._index, self.dim = config, index, int(index.d)

    @classmethod
    def build(cls, config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> Self:
        """An index of vectors [N, D], finite; InputError where D does not suit the settings."""
        index = cls._empty(config, vectors)
        for part in _slices(len(vectors), index.d):
            index.add(vectors[part])
        return cls(config, index)

    @staticmethod
    @abstractmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> faiss.Index:
        """An index without vectors that has learned from these."""

    @classmethod
    def load(cls, config: IndexConfig, folder: Path) -> Self:
        """What `save` wrote, mapped; InputError if it is damaged."""
        path = folder / cls.FILE
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except (RuntimeError, MemoryError):
            raise InputError(f"{path}: damaged; make the index again") from None
        if not isinstance(index, cls.TYPES):
            raise InputError(f"{path}: not an index of the kind {config.kind}; make the index again")
        return cls(config, index)

    def save(self, folder: Path) -> None:
        with (folder / self.FILE).open("wb") as file:  # Python's own error when the disk is full
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def nbytes(self) -> int:
        sizes: list[int] = []
        faiss.write_index(self._index, faiss.PyCallbackIOWriter(lambda data: sizes.append(len(data))))
        return sum(sizes)

    def _all(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        """As `_nearest`, by comparing with all that is allowed."""
        rows = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        return nearest_of_blocks(queries, k, rows, self._decoded)

    def _decoded(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        if rows[-1] - rows[0] + 1 == len(rows):
            return self._index.reconstruct_n(int(rows[0]), len(rows))
        return self._index.reconstruct_batch(rows)


class HalfIndex(FaissIndex):
    """Exact but for the rounding of the vectors to 16 bits a number."""

    TYPES = (faiss.IndexScalarQuantizer,)
    precision = torch.float16

    @staticmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> faiss.Index:
        return faiss.IndexScalarQuantizer(vectors.shape[1], faiss.ScalarQuantizer.QT_fp16, IP)

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        if len(queries) > FEW:
            return self._all(queries, k, allowed)
        return self._index.search(queries, k, params=faiss.SearchParameters(sel=_selector(allowed)))

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """All vectors, some at a time."""
        for part in _slices(len(self), self.dim):
            yield self._index.reconstruct_n(part.start, part.stop - part.start)


class PQIndex(FaissIndex):
    """Product quantisation: a byte for each part of a vector (Jegou et al. 2011)."""

    TYPES = (faiss.IndexPQ,)

    @staticmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> faiss.Index:
        dim = vectors.shape[1]
        index = faiss.IndexPQ(dim, _subvectors(config, dim), 8, IP)
        _train(index, [index.pq.cp], config, vectors, CODES * CODES)
        return index

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        if len(queries) > FEW or allowed is not None:  # Faiss takes no filter here
            return self._all(queries, k, allowed)
        return self._index.search(queries, k)


class ApproximateIndex(FaissIndex):
    """Compares with some of the vectors: with all that are allowed where that takes no longer.

    It also does so for a query for which too few were found.
    """

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        count = len(self) if allowed is None else int(np.count_nonzero(allowed))
        selector = _selector(allowed)
        settings, cost = self._plan(k, count, selector)
        if count <= cost * (1 if len(queries) <= FEW else MULTIPLIED):
            return self._all(queries, k, allowed)
        scores, found = self._index.search(queries, k, params=settings)
        short = (found < 0).any(axis=1)
        if short.any():
            scores[short], found[short] = self._all(queries[short], k, allowed)
        return scores, found

    @abstractmethod
    def _plan(
        self, k: int, count: int, selector: faiss.IDSelector | None
    ) -> tuple[faiss.SearchParameters, float]:
        """How to search for k of `count` papers, and what a query costs: as much as to compare so many."""


class IVFIndex(ApproximateIndex):
    """Vectors in lists around centres, or codes of their differences from these (Jegou et al. 2011, IV).

    Searches the lists next to a query, so many that they may hold SLACK * k allowed papers.
    """

    TYPES = (faiss.IndexIVFFlat, faiss.IndexIVFPQ)

    @staticmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> faiss.Index:
        papers, dim = vectors.shape
        # 39 vectors a list is what Faiss wants at least.
        lists = config.lists or max(1, min(round(4 * math.sqrt(papers)), papers // 39))
        if config.kind == "ivf":
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, lists, IP)
            _train(index, [index.cp], config, vectors, 64 * lists)
        else:
            parts = _subvectors(config, dim)
            index = faiss.IndexIVFPQ(faiss.IndexFlatIP(dim), dim, lists, parts, 8, IP)
            _train(index, [index.cp, index.pq.cp], config, vectors, max(64 * lists, CODES * CODES))
        index.make_direct_map()  # where a paper's vector is
        return index

    def _plan(
        self, k: int, count: int, selector: faiss.IDSelector | None
    ) -> tuple[faiss.SearchParameters, float]:
        lists = self._index.nlist
        usual = self._config.probes or round(2 * math.sqrt(lists))
        probes = min(lists, max(usual, math.ceil(SLACK * k / count * lists)))
        settings = faiss.SearchParametersIVF(nprobe=probes, sel=selector)
        return settings, len(self) * probes / lists


class HNSWIndex(ApproximateIndex):
    """A graph in which a search walks from neighbour to neighbour (Malkov and Yashunin 2020).

    It keeps ef_search candidates, more under a filter and where k is large. Built with several threads, two
    graphs of the same vectors differ in a few links.
    """

    TYPES = (faiss.IndexHNSWFlat,)

    @staticmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> faiss.Index:
        index = faiss.IndexHNSWFlat(vectors.shape[1], config.links, IP)
        index.hnsw.efConstruction = config.ef_construction
        return index

    def _plan(
        self, k: int, count: int, selector: faiss.IDSelector | None
    ) -> tuple[faiss.SearchParameters, float]:
        ef = math.ceil(max(self._config.ef_search, 2 * k) * len(self) / count)
        settings = faiss.SearchParametersHNSW(efSearch=ef, sel=selector)
        return settings, VISITS * self._config.links * ef

    def _all(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        storage = faiss.downcast_index(self._index.storage)
        vectors = faiss.rev_swig_ptr(storage.get_xb(), len(self) * self.dim).reshape(len(self), self.dim)
        return nearest(queries, vectors, k, None if allowed is None else np.flatnonzero(allowed))


def _slices(count: int, dim: int) -> Iterator[slice]:
    step = max(1, BLOCK // dim)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def _selector(allowed: NDArray[np.bool_] | None) -> faiss.IDSelector | None:
    return None if allowed is None else faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))


def _subvectors(config: IndexConfig, dim: int) -> int:
    if config.subvectors is None:
        return max(parts for parts in range(1, max(1, dim // 2) + 1) if dim % parts == 0)
    if dim % config.subvectors:
        raise InputError(f"index.subvectors={config.subvectors}: must divide the vectors' {dim} dimensions")
    return config.subvectors


def _train(
    index: faiss.Index,
    clusterings: list[faiss.ClusteringParameters],
    config: IndexConfig,
    vectors: NDArray[np.float32] | Halves,
    enough: int,
) -> None:
    for clustering in clusterings:
        clustering.seed = config.seed
        clustering.min_points_per_centroid = 1  # no warning
    size = enough if config.sample is None else config.sample
    if size < len(vectors):
        rows = np.random.default_rng(config.seed).choice(len(vectors), size, replace=False)
        vectors = vectors[np.sort(rows)]
    index.train(np.asarray(vectors))


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


__all__ = ["IndexConfig", "PaperIndex", "build_index", "load_index"]

KINDS: dict[str, type[ExactIndex | FaissIndex]] = {
    "exact": ExactIndex,
    "half": HalfIndex,
    "ivf": IVFIndex,
    "hnsw": HNSWIndex,
    "pq": PQIndex,
    "ivfpq": IVFIndex,
}


def build_index(config: IndexConfig, vectors: NDArray[np.float32] | Halves) -> PaperIndex:
    """An index of vectors [N, D] of unit length; InputError if one is not finite or they do not suit.

    Halves are known to be finite. Those of an exact index stay where they are; none reads all at once.
    """
    config.check(len(vectors))
    if isinstance(vectors, Halves):
        if config.kind == "exact":
            return on_device(config, MappedIndex(vectors))
        return on_device(config, KINDS[config.kind].build(config, vectors))
    return on_device(config, KINDS[config.kind].build(config, finite(vectors, "papers")))


def load_index(config: IndexConfig, folder: Path) -> PaperIndex:
    """An index that `PaperIndex.save` wrote, its vectors mapped; InputError if it is damaged."""
    config.check()
    if config.kind == "exact" and (folder / MappedIndex.FILE).is_file():
        return on_device(config, MappedIndex.load(folder))
    return on_device(config, KINDS[config.kind].load(config, folder))
