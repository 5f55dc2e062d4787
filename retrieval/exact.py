"""Exact search by inner product over dense vectors."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from datasets.errors import InputError
from retrieval.ranking import Ranking, ordered

logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # it reports every build that it looks for
import faiss  # noqa: E402


def search_exact(
    queries: npt.NDArray[np.float32],
    papers: npt.NDArray[np.float32],
    k: int,
    exclude: npt.NDArray[np.integer] | None = None,
    candidates: npt.NDArray[np.bool_] | None = None,
    chunk: int = 1024,
) -> Ranking:
    """The k papers of the highest inner product with each query, without the excluded ones.

    queries: float32 [Q, D]; papers: float32 [P, D]; normalise both beforehand for the cosine.
    exclude: paper rows that a query must not get, int [Q] or [Q, E]; -1 excludes nothing.
    candidates: bool [P], the papers that may be returned at all (default: every one).
    chunk: queries searched at a time. Memory beside the result is about chunk * (k + E) * 40 bytes.

    Never holds scores of Q x P: Faiss multiplies blocks and keeps the best of each row. Which of several
    papers of equal score stands at place k, where only some of them fit, is left to Faiss.
    Raises InputError when a vector is not finite, ValueError when the shapes do not agree.
    """
    queries, papers = _matrix(queries, "queries"), _matrix(papers, "papers")
    if queries.shape[1] != papers.shape[1]:
        raise ValueError(f"queries have {queries.shape[1]} dimensions, papers {papers.shape[1]}")
    if k < 1 or chunk < 1:
        raise ValueError(f"k ({k}) and chunk ({chunk}) must be at least 1")
    rows: npt.NDArray[np.int32] | None = None
    if candidates is not None and not candidates.all():
        rows = np.flatnonzero(candidates).astype(np.int32)
        papers = papers[rows]
    excluded = np.empty((len(queries), 0), np.int32) if exclude is None else _columns(exclude, len(queries))

    # Whatever is excluded may take one of the first places, so ask for as many more.
    depth = min(k + excluded.shape[1], len(papers))
    if depth == 0 or len(queries) == 0:
        shape = (len(queries), k)
        return Ranking(np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32))
    parts = []
    for start in range(0, len(queries), chunk):
        scores, found = faiss.knn(
            queries[start : start + chunk], papers, depth, metric=faiss.METRIC_INNER_PRODUCT
        )
        if rows is not None:
            found = rows[found].astype(np.int64)
        drop = np.zeros(found.shape, np.bool_)
        for column in excluded[start : start + chunk].T:
            drop |= found == column[:, None]
        parts.append(ordered(found, scores, k, drop))
    return Ranking.concat(parts)


def _matrix(vectors: npt.NDArray[np.float32], name: str) -> npt.NDArray[np.float32]:
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
