"""Indexes of Faiss: half precision, product quantisation, inverted files, graphs of neighbours."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from datasets.errors import InputError
from retrieval.exact import BLOCK, Scored, faiss, nearest, nearest_of_blocks
from retrieval.halves import Halves
from retrieval.paper_index import CODES, IndexConfig, PaperIndex

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
