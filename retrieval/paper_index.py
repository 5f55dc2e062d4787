"""What an index of paper vectors is: its settings, and what it can be asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from datasets.errors import InputError
from retrieval.exact import CHUNK, Scored, faiss, finite
from retrieval.ranking import Ranking, nothing, ordered

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
