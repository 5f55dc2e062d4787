"""Dense retrieval: `DenseRetriever` finds the nearest papers by an encoder's vectors.

Subclasses provide the encoder: of subwords in retrieval.encoders.article, of words in hatten.retriever.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.indexes.cpu import PaperIndex
from citerec.retrieval.indexes.index import build_index, build_l2_index, check_index, load_index, search_l2
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import IndexConfig
from citerec.retrieval.vectors import BATCH, QueryCache, VectorTable, blocks

NORMALISATION = "unit"
"""Vectors have unit length, so that their inner product is the cosine."""
IDS = "ids.txt"
"""Ids of the papers of an index, line by line."""


class DenseRetriever(Retriever):
    """Finds the nearest papers by cosine, or by `similarity`. Subclasses implement the encoding."""

    encodings = ("local", "ray")
    similarity = "cosine"
    """cosine, or l2: the negative Euclidean distance of vectors that are not normalised"""
    model: Any = None
    """the trained model that encodes, if it can be saved"""

    def __init__(self, index: IndexConfig | None = None) -> None:
        """index: the vector index."""
        super().__init__()
        self.index_config = index or IndexConfig()
        self._cache: QueryCache | None = None
        self._last: tuple[Queries | None, Floats] = None, np.empty((0, 0), np.float32)

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Everything the vectors depend on besides the corpus, as plain values: options, weights hash."""

    @abstractmethod
    def prepare(self, corpus: Corpus) -> None:
        """Prepare to read queries and papers of a corpus."""

    @abstractmethod
    def encode_papers(self, rows: Rows) -> Floats:
        """Rows of papers [n] -> [n, D] of unit length, zeros for papers without known words."""

    @abstractmethod
    def encode_queries(self, queries: Queries | Rows) -> Floats:
        """Queries, or rows of contexts, [Q] -> [Q, D] of unit length, zeros if no word is known."""

    def paper_vectors(self, corpus: Corpus, rows: Rows) -> Floats | VectorTable:
        """Encode papers with the chosen `encoding`, after `prepare`."""
        return encode_over_ray(self, corpus, rows) if self.encoding == "ray" else self.encode_papers(rows)

    def settings(self) -> dict[str, Any]:
        return {
            "normalisation": NORMALISATION if self.similarity == "cosine" else "none",
            **self.fingerprint(),
            "index": self.index_config.asdict(),
        }

    def cache_queries(self) -> None:
        self._cache = QueryCache()

    @property
    def reads_contexts(self) -> bool:
        return False

    @property
    def index_bytes(self) -> int:
        return self._vectors.nbytes

    def _index(self, corpus: Corpus) -> None:
        self._prepare(corpus)
        check_index(self.index_config, len(self._candidates))  # before encoding, which is slow
        vectors = self.paper_vectors(corpus, self._candidates)
        if self.similarity == "l2":
            assert isinstance(vectors, VectorTable)
            self._vectors: PaperIndex = build_l2_index(self.index_config, vectors)
            return
        self._vectors = build_index(self.index_config, vectors)

    def _prepare(self, corpus: Corpus) -> None:
        self._cache, self._last = None, (None, np.empty((0, 0), np.float32))
        self.prepare(corpus)
        self._candidates = np.flatnonzero(corpus.is_candidate)

    def _query_vectors(self, queries: Queries) -> Floats:
        if self._cache is not None:
            return np.stack(self._cache.get(queries, self.encode_queries))
        last, vectors = self._last  # a ranker searches for queries, then scores its candidates for them
        if last is not queries:
            vectors = self.encode_queries(queries)
            self._last = queries, vectors
        return vectors

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        vectors = self._query_vectors(queries)
        mask = None if allowed is None else allowed[self._candidates]
        if self.similarity == "l2":
            ranking = search_l2(self._vectors, vectors, k, mask)
        else:
            ranking = self._vectors.search(vectors, k, mask)
        # A query without a known word is equally near to every paper and gets none.
        valid = (ranking.papers >= 0) & vectors.any(axis=1, keepdims=True)
        papers = np.where(valid, self._candidates[ranking.papers], -1).astype(np.int32)
        return Ranking(papers, np.where(valid, ranking.scores, np.float32(-np.inf)))

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        if self.similarity == "l2":
            return super().score(queries, papers)
        queries = Queries.from_contexts(self.corpus, queries)
        positions, valid = self._positions(papers)
        valid &= ~queries.is_own(papers)
        scores = np.full(papers.shape, -np.inf, np.float32)
        for part in blocks(len(queries), papers.shape[1] * self._vectors.dim):
            whole = part.stop - part.start == len(queries)
            vectors = self._query_vectors(queries if whole else queries[part])
            paper_vectors = self._vectors.read(positions[part].ravel()).reshape(*positions[part].shape, -1)
            products = (paper_vectors @ vectors[:, :, None])[:, :, 0]
            scores[part] = np.where(valid[part] & vectors.any(axis=1, keepdims=True), products, -np.inf)
        return scores

    def indexed_vectors(self, papers: NDArray[np.integer]) -> Floats:
        """The indexed vectors of papers, rows [n] -> [n, D]; zeros for papers that are not candidates."""
        positions, valid = self._positions(papers)
        return np.where(valid[:, None], self._vectors.read(positions), np.float32(0))

    def _positions(self, papers: NDArray[np.integer]) -> tuple[Rows, Mask]:
        """Positions of papers among the candidates, and a mask of those that are candidates."""
        positions = np.searchsorted(self._candidates, papers).clip(max=len(self._candidates) - 1)
        return positions, self._candidates[positions] == papers

    def _save(self, folder: Path) -> None:
        ids = list(self.corpus.paper_ids)
        with (folder / IDS).open("w", encoding="utf-8") as file:
            file.writelines(f"{ids[row]}\n" for row in self._candidates.tolist())
        self._vectors.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._prepare(corpus)
        self._vectors = load_index(self.index_config, folder)


def encode_over_ray(retriever: DenseRetriever, corpus: Corpus, rows: Rows) -> Floats:
    """Encode papers [n, D] over Ray Data, bit for bit as `retriever.encode_papers(rows)`; resumes its work.

    The retriever is prepared for the corpus. Raises InputError if Ray is not installed or cannot be reached.
    """

    from citerec.retrieval.encoders.embeddings import EmbeddingJob, load_or_encode

    def encode(rows: Rows, _: object) -> tuple[Floats, None]:
        return retriever.encode_papers(rows), None

    model = {"retriever": retriever.name, **retriever.fingerprint()}
    dim = retriever.encode_papers(rows[:0]).shape[1]
    shards = partial(ray_shards, retriever, rows)
    job = EmbeddingJob(corpus, rows, model, dim, encode, dtype="float32", encode_shards=shards)
    return load_or_encode(job, shard=BATCH).vectors[:]


def ray_shards(
    retriever: DenseRetriever, rows: Rows, shards: Mapping[int, slice]
) -> Iterator[tuple[int, Floats]]:
    """Encode shards of the rows in Ray actors; yields (number, vectors) in order."""
    from citerec.base import over_ray

    with over_ray.ray_session():
        import ray
        import torch
        from ray.data import ActorPoolStrategy

        threads, resources = torch.get_num_threads(), ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if torch.cuda.is_available() else 0
        actors = min(gpus or max(1, int(resources["CPU"]) // threads), len(shards))
        sent = copy.copy(retriever)
        sent.__dict__.pop("_vectors", None)  # may be the index of an earlier corpus
        for row in over_ray.map_items(
            [{"number": number, "start": part.start, "stop": part.stop} for number, part in shards.items()],
            _EncodingActor,
            fn_constructor_args=(ray.put(sent), ray.put(rows), threads),
            compute=ActorPoolStrategy(size=actors),
            num_cpus=threads,
            **({"num_gpus": 1} if gpus else {}),
        ):
            vectors = np.frombuffer(row["vectors"].as_buffer(), np.float32)
            yield row["number"].as_py(), vectors.reshape(row["papers"].as_py(), -1).copy()


class _EncodingActor:
    """Encodes shards in a Ray actor."""

    def __init__(self, retriever: Any, rows: Any, threads: int) -> None:
        """retriever, rows: Ray references to a prepared retriever and to the rows to encode."""
        import ray
        import torch

        torch.set_num_threads(threads)
        self._retriever, self._rows = ray.get([retriever, rows])

    def __call__(self, batch: dict[str, Rows]) -> pa.Table:
        number, start, stop = (int(batch[name][0]) for name in ("number", "start", "stop"))
        vectors = self._retriever.encode_papers(self._rows[start:stop])
        content = pa.array([vectors.tobytes()], pa.large_binary())
        return pa.table({"number": [number], "papers": [len(vectors)], "vectors": content})
