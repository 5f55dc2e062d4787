"""Indexes of vectors for inner-product search on the CPU: exact, or approximate with Faiss."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import load_array
from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.base import Ranking, empty_rankings, top_k
from citerec.retrieval.settings import IndexConfig
from citerec.retrieval.vectors import BLOCK, VectorTable, blocks, first_not_finite

if TYPE_CHECKING:
    import faiss

CHUNK = 1024
"""Queries searched at a time."""
MAPPED_BLOCK = 1 << 26
"""Components of mapped vectors compared at a time, 256 MiB; the best k of all blocks are merged."""
MAX_OVERFETCH = 256
"""If at most this many papers are filtered out, a search fetches as many more and drops them."""
FEW_QUERIES = 32
"""Up to this many queries, comparing with codes is faster than decoding them for a matrix product."""
MATMUL_SPEEDUP = 5
"""Speedup of comparisons by matrix products, for more than FEW_QUERIES queries."""
SLACK = 10
"""Minimum number of papers in the searched lists, per paper to return."""
COMPARISONS = 1 << 22
"""Comparisons of a query and a paper up to which NumPy takes as long as importing Faiss."""
Found = tuple[Floats, Rows]
"""Scores and rows, [Q, k] each."""


@cache
def load_faiss() -> Any:
    """Import Faiss, of the extra `train`."""
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # it logs every build it tries
    import faiss

    # Batch size (queries * dimensions) from which Faiss uses matrix products. The default of 128,000 means
    # 640 queries of 200 dimensions; products are faster from 8 queries on, several times so for a few hundred
    # (speed/retrieval.py).
    faiss.cvar.distance_compute_blas_threshold = 1600
    return faiss


def nearest(queries: Floats, papers: Floats, k: int) -> Found:
    """The k best rows of an array; k is at most their number."""
    if len(queries) * len(papers) > COMPARISONS and find_spec("faiss"):
        faiss = load_faiss()
        scores, places = faiss.knn(queries, papers, k, metric=faiss.METRIC_INNER_PRODUCT)
        return scores, places
    return nearest_in_numpy(queries, papers, k)


def nearest_in_numpy(queries: Floats, papers: Floats, k: int) -> Found:
    """The k best of all rows of an array, as Faiss finds them; of equal ones, the first come first."""
    step = max(1, COMPARISONS // max(len(papers), 1))
    parts = [_best(queries[start : start + step] @ papers.T, k) for start in range(0, len(queries), step)]
    scores, places = zip(*parts, strict=True)
    return np.concatenate(scores), np.concatenate(places)


def _best(scores: Floats, k: int) -> Found:
    """The k largest of scores [Q, N] and their columns, [Q, k] each."""
    columns = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    if k < scores.shape[1]:
        columns = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
        scores = np.take_along_axis(scores, columns, 1)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(scores, order, 1), np.take_along_axis(columns, order, 1)


def check_vectors(vectors: Floats, name: str) -> Floats:
    """Convert vectors [N, D] to an array for Faiss; InputError names the first that is not finite."""
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if (bad := first_not_finite(vectors)) is not None:
        raise InputError(
            f"{name}: vector {bad} is not finite; the model has diverged: train it with a lower learning rate"
        )
    return vectors


class PaperIndex(ABC):
    """An index of vectors [N, dim], numbered from 0 to N - 1."""

    dim: int

    def search(
        self, queries: Floats, k: int, allowed: Mask | None = None, exclude: NDArray[np.integer] | None = None
    ) -> Ranking:
        """The k nearest of the allowed vectors (mask [N]) to each query [Q, dim], padded with -1.

        exclude: vectors to leave out for each query, int [Q] or [Q, E]; -1 excludes nothing.
        Memory besides the result is about 40 bytes times CHUNK * (k + E), plus a BLOCK of vectors if only
        some are allowed; Q x N scores are never in memory.

        Always finds k papers if k are allowed: if an approximate index finds fewer for a query, the query is
        compared with all of them. InputError for queries that are not finite.
        """
        queries = check_vectors(queries, "queries")
        out = 0 if allowed is None else len(self) - int(np.count_nonzero(allowed))
        left_out = None
        if out <= MAX_OVERFETCH:  # searching without a filter and dropping them is faster
            left_out, allowed = (None if allowed is None or out == 0 else ~allowed), None
        excluded = np.empty((len(queries), 0), np.int32) if exclude is None else exclude
        excluded = excluded[:, None] if excluded.ndim == 1 else excluded
        # Excluded vectors may be among the first k, so fetch as many more.
        depth = k + excluded.shape[1] + (out if left_out is not None else 0)
        depth = min(depth, len(self) if allowed is None else int(np.count_nonzero(allowed)))
        if depth == 0 or len(queries) == 0:
            return Ranking(*empty_rankings(len(queries), k))
        parts = []
        for start in range(0, len(queries), CHUNK):
            scores, rows = self._nearest(queries[start : start + CHUNK], depth, allowed)
            drop = np.zeros(rows.shape, np.bool_) if left_out is None else left_out[rows]
            for column in excluded[start : start + CHUNK].T:
                drop |= rows == column[:, None]
            parts.append(top_k(rows, scores, k, drop))
        return Ranking.concat(parts)

    @abstractmethod
    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        """Scores and rows [Q, k] for a chunk of queries; at least k vectors are allowed, and k are found."""

    def _search_exhaustively(
        self, queries: Floats, k: int, allowed: Mask | None, block: int | None = None
    ) -> Found:
        """Like `_nearest`, by comparing with all allowed vectors; block: components read at a time."""
        rows = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        best, chosen = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
        step = max(1, (block or BLOCK) // self.dim)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            scores, places = nearest(queries, self.read(part), min(k, len(part)))
            total = best.shape[1] + scores.shape[1]
            best, order = _best(np.concatenate([best, scores], axis=1), min(k, total))
            chosen = np.take_along_axis(np.concatenate([chosen, part[places]], axis=1), order, 1)
        return best, chosen

    @abstractmethod
    def read(self, rows: Rows) -> Floats:
        """Vectors [n] -> [n, dim], decoded if the index stores codes."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of vectors."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Size of the searched data in bytes."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the index into an existing folder."""


class FlatIndex(PaperIndex):
    """Exact search in an array, or block by block in a table."""

    ARRAY, TABLE = "vectors.npy", "halves.npy"

    def __init__(self, vectors: Floats | VectorTable) -> None:
        """vectors: [N, D], finite."""
        self.vectors, self.dim, self.precision = vectors, vectors.shape[1], str(vectors.dtype)

    @classmethod
    def load(cls, folder: Path) -> FlatIndex:
        """Memory-map an index written by `save`."""
        if not (folder / cls.TABLE).is_file():
            return cls(load_array(folder, Path(cls.ARRAY).stem))
        return cls(VectorTable([np.asarray(np.load(folder / cls.TABLE, mmap_mode="c"))]))

    def save(self, folder: Path) -> None:
        if not isinstance(self.vectors, VectorTable):
            np.save(folder / self.ARRAY, self.vectors)
        else:
            self.vectors.save(folder / self.TABLE)

    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        if isinstance(self.vectors, VectorTable):
            return self._search_exhaustively(queries, k, allowed, MAPPED_BLOCK)
        if allowed is None:
            return nearest(queries, self.vectors, k)
        return self._search_exhaustively(queries, k, allowed)

    def read(self, rows: Rows) -> Floats:
        return self.vectors[rows]

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes


class FaissIndex(PaperIndex):
    """A Faiss index, memory-mapped when loaded.

    It searches approximately only if that is faster than an exhaustive search of the allowed vectors; queries
    with too few results are searched exhaustively.
    """

    FILE = "vectors.faiss"
    precision = "float16"
    """precision of `half`, the only kind that is searched on a GPU"""

    def __init__(self, config: IndexConfig, index: faiss.Index) -> None:
        self._config, self._index, self.dim = config, index, int(index.d)

    @classmethod
    def build(cls, config: IndexConfig, vectors: Floats | VectorTable) -> FaissIndex:
        """Build an index of finite vectors [N, D], reading them in blocks."""
        index = _train(config, vectors)
        for part in blocks(len(vectors), index.d):
            index.add(vectors[part])
        return cls(config, index)

    @classmethod
    def load(cls, config: IndexConfig, folder: Path) -> FaissIndex:
        """Memory-map an index written by `save`."""
        faiss = load_faiss()
        return cls(config, faiss.read_index(str(folder / cls.FILE), faiss.IO_FLAG_MMAP_IFC))

    def save(self, folder: Path) -> None:
        faiss = load_faiss()
        with (folder / self.FILE).open("wb") as file:  # raises OSError when the disk is full
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def nbytes(self) -> int:
        sizes: list[int] = []
        faiss = load_faiss()
        faiss.write_index(self._index, faiss.PyCallbackIOWriter(lambda data: sizes.append(len(data))))
        return sum(sizes)

    def _nearest(self, queries: Floats, k: int, allowed: Mask | None) -> Found:
        count = len(self) if allowed is None else int(np.count_nonzero(allowed))
        settings, cost = self._plan(k, count, len(queries), allowed)
        if count <= cost:
            return self._search_exhaustively(queries, k, allowed)
        scores, rows = self._index.search(queries, k, params=settings)
        short = (rows < 0).any(axis=1)
        if short.any():
            scores[short], rows[short] = self._search_exhaustively(queries[short], k, allowed)
        return scores, rows

    def _plan(
        self, k: int, count: int, queries: int, allowed: Mask | None
    ) -> tuple[faiss.SearchParameters | None, float]:
        """Parameters to search for k of `count` papers, and the cost in exhaustive comparisons."""
        faiss, few = load_faiss(), queries <= FEW_QUERIES
        select = None if allowed is None else faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        if self._config.kind == "half":
            return faiss.SearchParameters(sel=select), 0 if few else math.inf
        # Enough lists to contain SLACK * k allowed papers.
        lists = self._index.nlist
        usual = self._config.probes or round(2 * math.sqrt(lists))
        probes = min(lists, max(usual, math.ceil(SLACK * k / count * lists)))
        cost = len(self) * probes / lists * (1 if few else MATMUL_SPEEDUP)
        return faiss.SearchParametersIVF(nprobe=probes, sel=select), cost

    def read(self, rows: Rows) -> Floats:
        if len(rows) and (np.diff(rows) == 1).all():
            return self._index.reconstruct_n(int(rows[0]), len(rows))
        return self._index.reconstruct_batch(rows)


def _train(config: IndexConfig, vectors: Floats | VectorTable) -> faiss.Index:
    """Train an empty index on vectors."""
    faiss, (papers, dim) = load_faiss(), vectors.shape
    # Faiss recommends at least 39 vectors per list.
    lists = config.lists or max(1, min(round(4 * math.sqrt(papers)), papers // 39))
    factory = {"half": "SQfp16", "ivf": f"IVF{lists},Flat"}
    index = faiss.index_factory(dim, factory[config.kind], faiss.METRIC_INNER_PRODUCT)
    if config.kind != "ivf":
        return index
    index.cp.seed = config.seed
    index.cp.min_points_per_centroid = 1  # silences a warning
    size = config.sample or 64 * lists
    if size < papers:
        rows = np.random.default_rng(config.seed).choice(papers, size, replace=False)
        vectors = vectors[np.sort(rows)]
    index.train(np.asarray(vectors))
    index.make_direct_map()  # to read single vectors
    return index
