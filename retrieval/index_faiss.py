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
from retrieval.paper_index import CODES, IndexConfig, PaperIndex

FEW = 32
"""Queries up to which comparing with codes is faster than decoding them for a matrix product."""
SLACK = 10
"""Papers that the searched lists should hold for each one that is wanted."""
VISITS = 3
"""What a candidate of the search in a graph costs, a link: as much as so many vectors that lie in a row."""
IP = faiss.METRIC_INNER_PRODUCT


class FaissIndex(PaperIndex):
    """An index of Faiss, mapped when it is read from its file."""

    FILE = "vectors.faiss"
    TYPES: tuple[type, ...]

    def __init__(self, config: IndexConfig, index: faiss.Index) -> None:
        self._config, self._index, self.dim = config, index, int(index.d)

    @classmethod
    def build(cls, config: IndexConfig, vectors: NDArray[np.float32]) -> Self:
        """An index of vectors [N, D], finite; InputError where D does not suit the settings."""
        index = cls._empty(config, vectors)
        for part in _slices(len(vectors), index.d):
            index.add(vectors[part])
        return cls(config, index)

    @staticmethod
    @abstractmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32]) -> faiss.Index:
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
        faiss.write_index(self._index, str(folder / self.FILE))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def nbytes(self) -> int:
        sizes: list[int] = []
        faiss.write_index(self._index, faiss.PyCallbackIOWriter(lambda data: sizes.append(len(data))))
        return sum(sizes)


class CodesIndex(FaissIndex):
    """Codes of one size in the order of the papers: every one is compared."""

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        rows = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        return nearest_of_blocks(queries, k, rows, self._decoded)

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """All vectors, some at a time."""
        for part in _slices(len(self), self.dim):
            yield self._index.reconstruct_n(part.start, part.stop - part.start)

    def _decoded(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        if rows[-1] - rows[0] + 1 == len(rows):
            return self._index.reconstruct_n(int(rows[0]), len(rows))
        return self._index.reconstruct_batch(rows)


class HalfIndex(CodesIndex):
    """Exact but for the rounding of the vectors to 16 bits a number."""

    TYPES = (faiss.IndexScalarQuantizer,)
    precision = torch.float16

    @staticmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32]) -> faiss.Index:
        return faiss.IndexScalarQuantizer(vectors.shape[1], faiss.ScalarQuantizer.QT_fp16, IP)

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        if len(queries) > FEW:
            return super()._nearest(queries, k, allowed)
        return self._index.search(queries, k, params=faiss.SearchParameters(sel=_selector(allowed)))


class PQIndex(CodesIndex):
    """Product quantisation: a byte for each part of a vector (Jegou et al. 2011)."""

    TYPES = (faiss.IndexPQ,)

    @staticmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32]) -> faiss.Index:
        dim = vectors.shape[1]
        index = faiss.IndexPQ(dim, _subvectors(config, dim), 8, IP)
        _train(index, [index.pq.cp], config, vectors, CODES * CODES)
        return index

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        if len(queries) > FEW or allowed is not None:  # Faiss takes no filter here
            return super()._nearest(queries, k, allowed)
        return self._index.search(queries, k)


class IVFIndex(FaissIndex):
    """Vectors in lists around centres, or codes of their differences from these (Jegou et al. 2011, IV).

    Searches the lists next to a query: so many that they may hold SLACK * k allowed papers, and all where
    that compares no more than usual.
    """

    TYPES = (faiss.IndexIVFFlat, faiss.IndexIVFPQ)

    def __init__(self, config: IndexConfig, index: faiss.Index) -> None:
        super().__init__(config, index)
        self._probes = config.probes or max(1, round(2 * math.sqrt(index.nlist)))

    @staticmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32]) -> faiss.Index:
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
        return index

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        lists, count = self._index.nlist, len(self) if allowed is None else int(np.count_nonzero(allowed))
        probes = max(self._probes, math.ceil(SLACK * k / count * lists))
        if probes >= lists or count <= len(self) * probes / lists:
            return self._probed(queries, k, allowed, lists)
        scores, found = self._probed(queries, k, allowed, probes)
        short = (found < 0).any(axis=1)
        if short.any():
            scores[short], found[short] = self._probed(queries[short], k, allowed, lists)
        return scores, found

    def _probed(
        self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None, probes: int
    ) -> Scored:
        wanted = faiss.SearchParametersIVF(nprobe=probes, sel=_selector(allowed))
        return self._index.search(queries, k, params=wanted)


class HNSWIndex(FaissIndex):
    """A graph in which a search walks from neighbour to neighbour (Malkov and Yashunin 2020).

    It keeps ef_search candidates, more under a filter and where k is larger; where that takes longer than
    comparing with all allowed papers, those are compared. Built with several threads, two graphs of the same
    vectors differ in a few links.
    """

    TYPES = (faiss.IndexHNSWFlat,)

    @staticmethod
    def _empty(config: IndexConfig, vectors: NDArray[np.float32]) -> faiss.Index:
        index = faiss.IndexHNSWFlat(vectors.shape[1], config.links, IP)
        index.hnsw.efConstruction = config.ef_construction
        return index

    def _nearest(self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Scored:
        count = len(self) if allowed is None else int(np.count_nonzero(allowed))
        ef = math.ceil(max(self._config.ef_search, 2 * k) * len(self) / count)
        if count <= VISITS * self._config.links * ef:
            return self._all(queries, k, allowed)
        wanted = faiss.SearchParametersHNSW(efSearch=ef, sel=_selector(allowed))
        scores, found = self._index.search(queries, k, params=wanted)
        short = (found < 0).any(axis=1)
        if short.any():
            scores[short], found[short] = self._all(queries[short], k, allowed)
        return scores, found

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
        return max(parts for parts in range(1, max(1, dim // 4) + 1) if dim % parts == 0)
    if dim % config.subvectors:
        raise InputError(f"index.subvectors={config.subvectors}: must divide the vectors' {dim} dimensions")
    return config.subvectors


def _train(
    index: faiss.Index,
    clusterings: list[faiss.ClusteringParameters],
    config: IndexConfig,
    vectors: NDArray[np.float32],
    enough: int,
) -> None:
    for clustering in clusterings:
        clustering.seed = config.seed
        clustering.min_points_per_centroid = 1  # no warning
    size = enough if config.sample is None else config.sample
    if size < len(vectors):
        rows = np.random.default_rng(config.seed).choice(len(vectors), size, replace=False)
        vectors = vectors[np.sort(rows)]
    index.train(vectors)
