"""Dense retrieval: `DenseRetriever`, the nearest papers to a query by an encoder's vectors.

Subclasses bring the encoder: of subwords in retrieval.article, of words in hatten.words_retriever.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datasets import over_ray
from datasets.corpus import Corpus
from datasets.errors import InputError
from retrieval.arrays import Floats, Mask, Rows
from retrieval.base import ENCODINGS, Ranking, Retriever
from retrieval.embeddings import EmbeddingJob, load_or_encode
from retrieval.index import PaperIndex, build_index, build_l2_index, check_index, load_index, search_l2
from retrieval.profiles import add_profiles
from retrieval.queries import Queries
from retrieval.settings import IndexConfig, ProfileConfig
from retrieval.vectors import BATCH, QueryCache, VectorTable, blocks

NORMALISATION = "unit"
"""Vectors are of unit length, so that their inner product is the cosine."""


class DenseRetriever(Retriever):
    """Nearest papers to a query by cosine (or `similarity`). Subclasses implement what makes vectors."""

    encodings = ENCODINGS
    similarity = "cosine"
    """or l2: minus the Euclidean distance of vectors that are not normalised"""

    def __init__(self, index: IndexConfig | None = None, profile: ProfileConfig | None = None) -> None:
        """index: how vectors are searched. profile: whether citing contexts enrich the papers' vectors."""
        super().__init__()
        self.index_config = index or IndexConfig()
        self.profile = profile or ProfileConfig()
        self._cache: QueryCache | None = None

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What vectors depend on besides the corpus, as plain values: options, a hash of the weights."""

    @abstractmethod
    def prepare(self, corpus: Corpus) -> None:
        """Get ready to read queries and papers of a corpus."""

    @abstractmethod
    def encode_papers(self, rows: Rows) -> Floats:
        """Papers, rows [n] -> [n, D] of unit length; zeros where there is nothing to encode."""

    @abstractmethod
    def encode_queries(self, queries: Queries | Rows) -> Floats:
        """Queries, or rows of contexts, [Q] -> [Q, D] of unit length; zeros where nothing can be encoded."""

    def paper_vectors(self, corpus: Corpus, rows: Rows) -> Floats | VectorTable:
        """As `encode_papers`, by whoever encodes; the retriever is prepared for the corpus."""
        return encode_over_ray(self, corpus, rows) if self.encoding == "ray" else self.encode_papers(rows)

    def settings(self) -> dict[str, Any]:
        return {
            "normalisation": NORMALISATION if self.similarity == "cosine" else "none",
            **self.fingerprint(),
            "index": self.index_config.asdict(),
            "profile": asdict(self.profile),
        }

    def remember_queries(self) -> None:
        self._cache = QueryCache()

    @property
    def reads_contexts(self) -> bool:
        return self.profile.weight != 0

    @property
    def index_bytes(self) -> int:
        return self._vectors.nbytes

    def _index(self, corpus: Corpus) -> None:
        self._open(corpus)
        check_index(self.index_config, len(self._candidates))  # before the work of encoding
        vectors = self.paper_vectors(corpus, self._candidates)
        if self.similarity == "l2":
            assert isinstance(vectors, VectorTable)
            self._vectors: PaperIndex = build_l2_index(self.index_config, vectors)
            return
        if self.profile.weight != 0:
            vectors, weight = add_profiles(
                np.asarray(vectors), corpus, self._candidates, self.encode_queries, self.profile
            )
            self.tuned = {"profile.weight": weight}
        self._vectors = build_index(self.index_config, vectors)

    def _reindex(self, old: Corpus, corpus: Corpus, kept: Rows, folder: Path) -> None:
        if self.index_config.kind != "exact" or self.similarity == "l2" or self.profile.weight != 0:
            super()._reindex(old, corpus, kept, folder)  # such vectors depend on all papers
            return
        known = load_index(self.index_config, folder)
        self._open(corpus)
        place = np.searchsorted(np.flatnonzero(old.is_candidate), kept)
        new = np.asarray(self.paper_vectors(corpus, self._candidates[len(kept) :]))
        vectors = np.empty((len(self._candidates), new.shape[1]), np.float32)
        vectors[len(kept) :] = new
        for part in blocks(len(kept), new.shape[1]):
            vectors[part] = known.read(place[part])
        self._vectors = build_index(self.index_config, vectors)

    def _open(self, corpus: Corpus) -> None:
        self._cache = None
        self.prepare(corpus)
        self._candidates = np.flatnonzero(corpus.is_candidate)

    def _encoded(self, queries: Queries) -> Floats:
        if self._cache is None:
            return self.encode_queries(queries)
        return np.stack(self._cache.get(queries, self.encode_queries))

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        vectors = self._encoded(queries)
        may = None if allowed is None else allowed[self._candidates]
        l2 = self.similarity == "l2"
        found = search_l2(self._vectors, vectors, k, may) if l2 else self._vectors.search(vectors, k, may)
        # A query without a known word is equally near to every paper: it gets none.
        there = (found.papers >= 0) & vectors.any(axis=1, keepdims=True)
        papers = np.where(there, self._candidates[found.papers], -1).astype(np.int32)
        return Ranking(papers, np.where(there, found.scores, np.float32(-np.inf)))

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        if self.similarity == "l2":
            return super().score(queries, papers)
        asked = Queries.of(self.corpus, queries)
        place, there = self._places(papers)
        there &= papers != asked.citing[:, None]
        scores = np.full(papers.shape, -np.inf, np.float32)
        for part in blocks(len(asked), papers.shape[1] * self._vectors.dim):
            vectors = self._encoded(asked[part])
            found = self._vectors.read(place[part].ravel()).reshape(*place[part].shape, -1)
            products = (found @ vectors[:, :, None])[:, :, 0]
            scores[part] = np.where(there[part] & vectors.any(axis=1, keepdims=True), products, -np.inf)
        return scores

    def stored(self, papers: NDArray[np.integer]) -> Floats:
        """The indexed vectors of papers, rows [n] -> [n, D]; zeros for what is no candidate."""
        place, there = self._places(papers)
        return np.where(there[:, None], self._vectors.read(place), np.float32(0))

    def _places(self, papers: NDArray[np.integer]) -> tuple[Rows, Mask]:
        """Where papers are among the candidates, and whether they are there."""
        place = np.searchsorted(self._candidates, papers).clip(max=len(self._candidates) - 1)
        return place, self._candidates[place] == papers

    def _save(self, folder: Path) -> None:
        ids = list(self.corpus.paper_ids)
        with (folder / "ids.txt").open("w", encoding="utf-8") as file:
            file.writelines(f"{ids[row]}\n" for row in self._candidates.tolist())
        self._vectors.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._open(corpus)
        self._vectors = load_index(self.index_config, folder)
        if len(self._vectors) != len(self._candidates):
            raise InputError(
                f"{folder}: {len(self._vectors):,} vectors for {len(self._candidates):,} candidates; "
                "rebuild the index"
            )


def encode_over_ray(retriever: DenseRetriever, corpus: Corpus, rows: Rows) -> Floats:
    """`retriever.encode_papers(rows)` [n, D] over Ray Data, bit for bit; interrupted work is resumed.

    The retriever is prepared for the corpus. Raises InputError if Ray is not installed or cannot be reached.
    """

    model = {"retriever": retriever.name, **retriever.fingerprint()}
    dim = retriever.encode_papers(rows[:0]).shape[1]
    how: dict[str, Any] = {"dtype": "float32", "spread": partial(ray_shards, retriever, rows)}
    job = EmbeddingJob(corpus, rows, model, dim, lambda some, _: (retriever.encode_papers(some), None), **how)
    return load_or_encode(job, shard=BATCH).vectors[:]


def ray_shards(
    retriever: DenseRetriever, rows: Rows, parts: Mapping[int, slice]
) -> Iterator[tuple[int, Floats]]:
    """`retriever.encode_papers` of parts of the rows, by the numbers of the parts, in order."""
    with over_ray.ray_session():
        import ray
        import torch
        from ray.data import ActorPoolStrategy

        threads, there = torch.get_num_threads(), ray.cluster_resources()
        gpus = int(there.get("GPU", 0)) if torch.cuda.is_available() else 0
        actors = min(gpus or max(1, int(there["CPU"]) // threads), len(parts))
        given = copy.copy(retriever)
        given.__dict__.pop("_vectors", None)  # the index of another corpus
        for row in over_ray.map_items(
            [{"number": number, "start": part.start, "stop": part.stop} for number, part in parts.items()],
            _EncodingActor,
            fn_constructor_args=(ray.put(given), ray.put(rows), threads),
            compute=ActorPoolStrategy(size=actors),
            num_cpus=threads,
            **({"num_gpus": 1} if gpus else {}),
        ):
            vectors = np.frombuffer(row["vectors"].as_buffer(), np.float32)
            yield row["number"].as_py(), vectors.reshape(row["papers"].as_py(), -1).copy()


class _EncodingActor:
    """Encodes batches in a Ray actor."""

    def __init__(self, retriever: Any, rows: Any, threads: int) -> None:
        """References to a retriever that is prepared for a corpus, and to the rows that are encoded."""
        import ray
        import torch

        torch.set_num_threads(threads)
        self._retriever, self._rows = ray.get([retriever, rows])

    def __call__(self, batch: dict[str, Rows]) -> pa.Table:
        number, start, stop = (int(batch[name][0]) for name in ("number", "start", "stop"))
        vectors = self._retriever.encode_papers(self._rows[start:stop])
        content = pa.array([vectors.tobytes()], pa.large_binary())
        return pa.table({"number": [number], "papers": [len(vectors)], "vectors": content})
