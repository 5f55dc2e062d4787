"""Indexes search vectors of papers by inner product: exactly, or approximately with Faiss; on CPU or GPU.

`build_index` and `load_index` give the `PaperIndex` that an `IndexConfig` (retrieval.settings) names;
`search_exact` searches arrays without an index.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from retrieval.arrays import Floats, Mask, Rows
from retrieval.base import Ranking, empty_rankings, top_k
from retrieval.settings import IndexConfig
from retrieval.vectors import BLOCK, VectorTable, blocks, first_not_finite

logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # it reports every build that it looks for
import faiss as faiss  # noqa: E402

# Numbers in a batch of queries from which Faiss multiplies matrices. Its own 128,000 is 640 queries of 200
# dimensions; multiplying is faster from 8 on, several times so for a few hundred (benchmarks/indexes.py), and
# the same holds for the short vectors of product quantisers.
faiss.cvar.distance_compute_blas_threshold = 1600

CHUNK = 1024
"""Queries searched at a time."""
AT_ONCE = 1 << 26
"""Numbers of mapped vectors compared at a time, 256 MiB: each block has its own best k, which are merged."""
SPARE = 256
"""Up to this many papers that may not be found, a search fetches as many more and drops them."""
FEW = 32
"""Up to this many queries, comparing with codes is faster than decoding them for a matrix product."""
MULTIPLIED = 5
"""How much faster a matrix product compares, for more than FEW queries."""
SLACK = 10
"""Papers that the searched lists should hold for each one that is wanted."""
VISITS = 4
"""Vectors in a row that are compared in the time of a candidate in a graph, for each of its links."""
CODES = 256
"""Codes of a subvector of product quantisation: one byte."""

IP = faiss.METRIC_INNER_PRODUCT
Found = tuple[Floats, Rows]
"""Scores and rows [Q, k]."""


def search_exact(
    queries: Floats,
    papers: Floats,
    k: int,
    exclude: NDArray[np.integer] | None = None,
    candidates: Mask | None = None,
) -> Ranking:
    """The k papers of the highest inner product with each query, without the excluded ones.

    queries: float32 [Q, D]; papers: float32 [P, D]; normalise both for the cosine.
    exclude, candidates: as `exclude` and `allowed` of PaperIndex.search; errors as there.
    Which of several papers of equal score takes the last place is left to Faiss.
    """
    return FlatIndex(check_vectors(papers, "papers")).search(queries, k, candidates, exclude)


def nearest(queries: Floats, papers: Floats, k: int, rows: Rows | None) -> Found:
    """The k best of some rows of an array, or of all; k is at most their number."""
    if rows is None:
        scores, found = faiss.knn(queries, papers, k, metric=IP)
        return scores, found
    return nearest_in_blocks(queries, k, rows, lambda part: papers[part])


def nearest_in_blocks(
    queries: Floats, k: int, rows: Rows, read: Callable[[Rows], Floats], block: int | None = None
) -> Found:
    """As `nearest`, of vectors that `read` gives for some of the rows; block: numbers read at a time."""
    best = faiss.ResultHeap(len(queries), k, keep_max=True)
    step = max(1, (block or BLOCK) // queries.shape[1])
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        scores, places = faiss.knn(queries, read(part), min(k, len(part)), metric=IP)
        best.add_result(scores, part[places])
    best.finalize()
    return best.D, best.I


def check_vectors(vectors: Floats, name: str) -> Floats:
    """The vectors [N, D] as an array that Faiss takes; InputError names the first that is not finite."""
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if vectors.ndim != 2:
        raise ValueError(f"{name}: expected [rows, dimensions], got shape {vectors.shape}")
    if (bad := first_not_finite(vectors)) is not None:
        raise InputError(
            f"{name}: vector {bad} is not finite; the model that made it has diverged, train it with a lower "
            "learning rate"
        )
    return vectors


class PaperIndex(ABC):
    """Vectors [N, dim]; papers are known by their place, 0 to N - 1."""

    dim: int

    def search(
        self,
        queries: Floats,
        k: int,
        allowed: Mask | None = None,
        exclude: NDArray[np.integer] | None = None,
    ) -> Ranking:
        """The k nearest of the allowed places [N] to each query [Q, dim]; -1 where there are fewer.

        exclude: places that a query must not get, int [Q] or [Q, E]; -1 excludes nothing.
        Memory besides the result is about 40 bytes times CHUNK * (k + E), and a BLOCK of vectors where only
        some are allowed; Q x N scores are never held.

        Finds k papers wherever k are allowed: a query for which an approximate index finds fewer is compared
        with all of them. InputError for queries that are not finite, ValueError for shapes that disagree.
        """
        queries = check_vectors(queries, "queries")
        if queries.shape[1] != self.dim:
            raise ValueError(f"queries have {queries.shape[1]} dimensions, papers {self.dim}")
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        out = 0 if allowed is None else len(self) - int(np.count_nonzero(allowed))
        left_out = None
        if out <= SPARE:  # to search without a filter and drop them is faster
            left_out, allowed = (None if allowed is None or out == 0 else ~allowed), None
        excluded = np.empty((len(queries), 0), np.int32) if exclude is None else exclude
        excluded = excluded[:, None] if excluded.ndim == 1 else excluded
        if excluded.ndim != 2 or len(excluded) != len(queries):
            raise ValueError(f"exclude has shape {excluded.shape} for {len(queries)} queries")
        # Whatever is excluded may take one of the first places, so ask for as many more.
        depth = k + excluded.shape[1] + (out if left_out is not None else 0)
        depth = min(depth, len(self) if allowed is None else int(np.count_nonzero(allowed)))
        if depth == 0 or len(queries) == 0:
            return Ranking(*empty_rankings(len(queries), k))
        parts = []
        for start in range(0, len(queries), CHUNK):
            scores, found = self._nearest(queries[start : start + CHUNK], depth, allowed)
            drop = np.zeros(found.shape, np.bool_) if left_out is None else left_out[found]
            for column in excluded[start : start + CHUNK].T:
                drop |= found == column[:, None]
            parts.append(top_k(found, scores, k, drop))
        return Ranking.concat(parts)

    @abstractmethod
    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        """Scores and places [Q, k] for a chunk of queries; k papers are allowed, and found."""

    @abstractmethod
    def read(self, rows: Rows) -> Floats:
        """The vectors at some places [n] -> [n, dim], as the index keeps them."""

    def blocks(self) -> Iterator[Floats]:
        """All vectors, some at a time."""
        return (self.read(np.arange(part.start, part.stop)) for part in blocks(len(self), self.dim))

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


class FlatIndex(PaperIndex):
    """Compares with every vector: of an array, or of a table whose blocks are read one by one.

    last: [N] float32, one more number of each vector, kept out of the table's rounding.
    """

    ARRAY, TABLE, LAST = "vectors.npy", "halves.npy", "last.npy"

    def __init__(self, vectors: Floats | VectorTable, last: Floats | None = None) -> None:
        """vectors: [N, D], finite."""
        self.vectors, self.last, self.dim = vectors, last, vectors.shape[1] + (last is not None)
        self._mapped = isinstance(vectors, VectorTable)
        self.precision = "float16" if self._mapped and last is None else "float32"

    @classmethod
    def load(cls, folder: Path) -> FlatIndex:
        """What `save` wrote, mapped; InputError if it is damaged."""
        mapped, last = (folder / cls.TABLE).is_file(), None
        path = folder / (cls.TABLE if mapped else cls.ARRAY)
        try:
            vectors = np.load(path, mmap_mode="c" if mapped else "r", allow_pickle=False)
            if mapped and (folder / cls.LAST).is_file():
                last = np.load(folder / cls.LAST, allow_pickle=False)
        except (ValueError, EOFError):
            vectors = np.empty(0)
        good = vectors.ndim == 2 and vectors.dtype == (np.float16 if mapped else np.float32)
        if not good or (last is not None and len(last) != len(vectors)):
            raise InputError(f"{path}: damaged; rebuild the index")
        return cls(VectorTable([np.asarray(vectors)]) if mapped else vectors, last)

    def save(self, folder: Path) -> None:
        if not isinstance(self.vectors, VectorTable):
            np.save(folder / self.ARRAY, self.vectors)
            return
        self.vectors.save(folder / self.TABLE)
        if self.last is not None:
            np.save(folder / self.LAST, self.last)

    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        rows = None if allowed is None else np.flatnonzero(allowed)
        if not isinstance(self.vectors, VectorTable):
            return nearest(queries, self.vectors, k, rows)
        return nearest_in_blocks(
            queries, k, np.arange(len(self)) if rows is None else rows, self.read, AT_ONCE
        )

    def read(self, rows: Rows) -> Floats:
        found = self.vectors[rows]
        return found if self.last is None else np.concatenate([found, self.last[rows, None]], axis=1)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes + (0 if self.last is None else self.last.nbytes)


FAISS_TYPES: dict[str, type] = {
    "half": faiss.IndexScalarQuantizer,
    "ivf": faiss.IndexIVFFlat,
    "hnsw": faiss.IndexHNSWFlat,
    "pq": faiss.IndexPQ,
    "ivfpq": faiss.IndexIVFPQ,
}


class FaissIndex(PaperIndex):
    """An index of Faiss; mapped when it is read from its file.

    It searches approximately only where that is faster than comparing with everything that is allowed: a
    query with too few results is compared with everything as well. Two HNSW graphs of the same vectors, built
    with several threads, differ in a few links.
    """

    FILE = "vectors.faiss"
    precision = "float16"
    """of half, the only kind that is searched on a GPU"""

    def __init__(self, config: IndexConfig, index: faiss.Index) -> None:
        self._config, self._index, self.dim = config, index, int(index.d)

    @classmethod
    def build(cls, config: IndexConfig, vectors: Floats | VectorTable) -> FaissIndex:
        """An index of finite vectors [N, D], of which some are read at a time."""
        index = _trained(config, vectors)
        for part in blocks(len(vectors), index.d):
            index.add(vectors[part])
        return cls(config, index)

    @classmethod
    def load(cls, config: IndexConfig, folder: Path) -> FaissIndex:
        """What `save` wrote, mapped; InputError if it is damaged or of another kind."""
        path = folder / cls.FILE
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except (RuntimeError, MemoryError):
            raise InputError(f"{path}: damaged; rebuild the index") from None
        if not isinstance(index, FAISS_TYPES[config.kind]):
            raise InputError(f"{path}: not an index of the kind {config.kind}; rebuild the index")
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

    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        count = len(self) if allowed is None else int(np.count_nonzero(allowed))
        settings, cost = self._plan(k, count, len(queries), allowed)
        if count <= cost:
            return self._compared(queries, k, allowed)
        scores, found = self._index.search(queries, k, params=settings)
        short = (found < 0).any(axis=1)
        if short.any():
            scores[short], found[short] = self._compared(queries[short], k, allowed)
        return scores, found

    def _plan(
        self, k: int, count: int, queries: int, allowed: Mask | None
    ) -> tuple[faiss.SearchParameters | None, float]:
        """How to search for k of `count` papers, and how many could be compared meanwhile."""
        kind, few = self._config.kind, queries <= FEW
        select = None if allowed is None else faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        if kind == "half":
            return faiss.SearchParameters(sel=select), 0 if few else math.inf
        if kind == "pq":  # Faiss takes no filter here
            return None, 0 if few and allowed is None else math.inf
        faster = 1 if few else MULTIPLIED
        if kind == "hnsw":  # more candidates under a filter and where k is large
            ef = math.ceil(max(self._config.ef_search, 2 * k) * len(self) / count)
            settings = faiss.SearchParametersHNSW(efSearch=ef, sel=select)
            return settings, VISITS * self._config.links * ef * faster
        # Lists enough to hold SLACK * k allowed papers.
        lists = self._index.nlist
        usual = self._config.probes or round(2 * math.sqrt(lists))
        probes = min(lists, max(usual, math.ceil(SLACK * k / count * lists)))
        return faiss.SearchParametersIVF(nprobe=probes, sel=select), len(self) * probes / lists * faster

    def _compared(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        """As `_nearest`, by comparing with everything that is allowed."""
        rows = None if allowed is None else np.flatnonzero(allowed)
        if self._config.kind == "hnsw":
            storage = faiss.downcast_index(self._index.storage)
            vectors = faiss.rev_swig_ptr(storage.get_xb(), len(self) * self.dim)
            return nearest(queries, vectors.reshape(len(self), self.dim), k, rows)
        return nearest_in_blocks(queries, k, np.arange(len(self)) if rows is None else rows, self.read)

    def read(self, rows: Rows) -> Floats:
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            return self._index.reconstruct_n(int(rows[0]), len(rows))
        return self._index.reconstruct_batch(rows)


def _trained(config: IndexConfig, vectors: Floats | VectorTable) -> faiss.Index:
    """An index without vectors that has learned from these; InputError where D does not suit the settings."""
    papers, dim = vectors.shape
    # 39 vectors per list is what Faiss wants at least.
    lists = config.lists or max(1, min(round(4 * math.sqrt(papers)), papers // 39))
    codes = 1
    if "pq" in config.kind:
        codes = config.subvectors or max(m for m in range(1, max(1, dim // 2) + 1) if dim % m == 0)
        if dim % codes:
            raise InputError(f"index.subvectors={codes}: must divide the vectors' {dim} dimensions")
    factory = {  # np: no polysemous training, which takes a minute and is of no use here
        "half": "SQfp16",
        "ivf": f"IVF{lists},Flat",
        "hnsw": f"HNSW{config.links},Flat",
        "pq": f"PQ{codes}x8np",
        "ivfpq": f"IVF{lists},PQ{codes}x8np",
    }
    index = faiss.index_factory(dim, factory[config.kind], IP)
    if config.kind == "hnsw":
        index.hnsw.efConstruction = config.ef_construction
    if config.kind in ("half", "hnsw"):
        return index
    enough = max(64 * lists if "ivf" in config.kind else 0, CODES * CODES if "pq" in config.kind else 0)
    for part in (getattr(index, "cp", None), index.pq.cp if "pq" in config.kind else None):
        if part is not None:
            part.seed = config.seed
            part.min_points_per_centroid = 1  # no warning
    size = enough if config.sample is None else config.sample
    if size < papers:
        rows = np.random.default_rng(config.seed).choice(papers, size, replace=False)
        vectors = vectors[np.sort(rows)]
    index.train(np.asarray(vectors))
    if "ivf" in config.kind:
        index.make_direct_map()  # where a paper's vector is
    return index


def check_index(config: IndexConfig, papers: int | None = None) -> None:
    """InputError where there is no such device, or so many vectors cannot be indexed like this."""
    if config.device == "gpu":
        from retrieval.gpu_index import gpu_library

        if gpu_library(config.kind) is None:
            raise InputError(
                "index.device=gpu: there is no GPU to use; install torch with CUDA (or, for index=exact, "
                "faiss-gpu), or choose index.device=cpu"
            )
    if papers is None or config.kind not in ("ivf", "pq", "ivfpq"):
        return
    needed = max(config.lists or 1, CODES if "pq" in config.kind else 1)
    if (learned := min(papers, config.sample or papers)) < needed:
        raise InputError(
            f"index={config.kind}: must learn from {needed:,} papers, and there are {learned:,}; "
            "choose fewer index.lists, a larger index.sample, or index=exact"
        )


def on_device(config: IndexConfig, index: FlatIndex | FaissIndex) -> PaperIndex:
    """The index, or one that searches its vectors on a GPU where there is one and the settings allow it."""
    if config.device == "cpu" or config.kind not in ("exact", "half"):
        return index
    from retrieval.gpu_index import on_gpu  # torch

    return on_gpu(config.kind, index)


def build_index(config: IndexConfig, vectors: Floats | VectorTable) -> PaperIndex:
    """An index of vectors [N, D]; InputError if one is not finite or they do not suit the settings.

    Tables are known to be finite and never read as a whole; those of an exact index stay where they are.
    """
    check_index(config, len(vectors))
    given: Any = vectors if isinstance(vectors, VectorTable) else check_vectors(vectors, "papers")
    return on_device(config, FlatIndex(given) if config.kind == "exact" else FaissIndex.build(config, given))


def build_l2_index(config: IndexConfig, vectors: VectorTable) -> PaperIndex:
    """An exact index whose inner products with (query, 1) fall with the Euclidean distance (`search_l2`).

    Vectors v become (v, -|v|^2 / 2), since |q - v|^2 = |q|^2 - 2 (q.v - |v|^2 / 2).
    """
    norms = [np.square(block).sum(axis=1) for block in vectors.blocks()]
    last = (np.concatenate([np.empty(0, np.float32), *norms]) / -2).astype(np.float32)
    return on_device(config, FlatIndex(vectors, last))


def search_l2(index: PaperIndex, queries: Floats, k: int, allowed: Mask | None) -> Ranking:
    """The k nearest of the allowed places of a `build_l2_index`; scores are minus the distances."""
    ones = np.ones((len(queries), 1), np.float32)
    found = index.search(np.concatenate([queries, ones], axis=1), k, allowed)
    squares = np.square(queries).sum(axis=1, keepdims=True) - 2 * found.scores
    return Ranking(found.papers, -np.sqrt(np.maximum(squares, 0)))


def load_index(config: IndexConfig, folder: Path) -> PaperIndex:
    """An index that `PaperIndex.save` wrote, its vectors mapped; InputError if it is damaged."""
    check_index(config)
    exact = config.kind == "exact"
    return on_device(config, FlatIndex.load(folder) if exact else FaissIndex.load(config, folder))
