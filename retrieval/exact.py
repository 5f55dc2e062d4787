"""Exact search by inner product over dense vectors."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from datasets.errors import InputError
from retrieval.ranking import Ranking, nothing, ordered

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
