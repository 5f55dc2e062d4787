"""Papers encoded over Ray Data: the vectors that one process makes, bit by bit.

Papers are encoded in batches, and what a batch gives depends on nothing else: so batches are what actors get,
each with a copy of the encoder. Where processors, numbers of threads or devices differ, sums come out in
another order, and vectors differ in their last bits. Actors open the store by its path.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from datasets import ray_cluster
from datasets.store import Corpus
from retrieval.embedder import Advance, Place, Vectors, Work, embedded
from retrieval.encode import BATCH

if TYPE_CHECKING:
    from retrieval.dense import DenseRetriever


def encode_papers(retriever: DenseRetriever, corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """`retriever.encode_papers(rows)` [n, D]; the retriever is prepared for the corpus.

    What is done is kept in the cache, and a run that was cut off and is started again goes on from there.
    Raises InputError if Ray is not installed or cannot be reached.
    """
    empty = retriever.encode_papers(rows[:0])

    def here(rows: NDArray[np.int64], advance: Advance) -> Vectors:
        return retriever.encode_papers(rows), None

    spread = partial(encoded, retriever, rows)
    model = {"retriever": retriever.name, **retriever.fingerprint()}
    work = Work(corpus, rows, model, empty.shape[1], here, dtype="float32", spread=spread)
    return embedded(work, Place(shard=BATCH)).vectors[:]


def encoded(
    retriever: DenseRetriever, rows: NDArray[np.int64], parts: Mapping[int, slice]
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """`retriever.encode_papers` of some of the rows, by the numbers of the parts, in order."""
    with ray_cluster.connected():
        import ray
        from ray.data import ActorPoolStrategy

        threads, there = torch.get_num_threads(), ray.cluster_resources()
        gpus = int(there.get("GPU", 0)) if torch.cuda.is_available() else 0
        actors = min(gpus or max(1, int(there["CPU"]) // threads), len(parts))
        given = copy.copy(retriever)
        given.__dict__.pop("_vectors", None)  # the index of another corpus
        for row in ray_cluster.each(
            [{"number": number, "start": part.start, "stop": part.stop} for number, part in parts.items()],
            _Encoder,
            fn_constructor_args=(ray.put(given), ray.put(rows), threads),
            compute=ActorPoolStrategy(size=actors),
            num_cpus=threads,
            **({"num_gpus": 1} if gpus else {}),
        ):
            vectors = np.frombuffer(row["vectors"].as_buffer(), np.float32)
            yield row["number"].as_py(), vectors.reshape(row["papers"].as_py(), -1).copy()


class _Encoder:
    """Encodes batches; lives in an actor."""

    def __init__(self, retriever: Any, rows: Any, threads: int) -> None:
        """References to a retriever that is prepared for a corpus, and to the rows that are encoded."""
        import ray

        torch.set_num_threads(threads)
        self._retriever, self._rows = ray.get([retriever, rows])

    def __call__(self, batch: dict[str, NDArray[np.int64]]) -> pa.Table:
        number, start, stop = (int(batch[name][0]) for name in ("number", "start", "stop"))
        vectors = self._retriever.encode_papers(self._rows[start:stop])
        content = pa.array([vectors.tobytes()], pa.large_binary())
        return pa.table({"number": [number], "papers": [len(vectors)], "vectors": content})
