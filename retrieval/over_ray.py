"""Papers encoded over Ray Data: the vectors that one process makes, bit by bit.

Papers are encoded in batches, and what a batch gives depends on nothing else: so batches are what actors get,
each with a copy of the encoder. Where processors, numbers of threads or devices differ, sums come out in
another order, and vectors differ in their last bits. Actors open the store by its path.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from datasets import ray_cluster
from datasets.atomic import written_whole
from datasets.progress import counting
from datasets.store import Corpus
from retrieval.encode import BATCH, parts_folder, read_part

if TYPE_CHECKING:
    from retrieval.dense import DenseRetriever


def encode_papers(retriever: DenseRetriever, corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """`retriever.encode_papers(rows)` [n, D]; the retriever is prepared for the corpus.

    What is done is kept in the cache, and a run that was cut off and is started again goes on from there.
    Raises InputError if Ray is not installed or cannot be reached.
    """
    parts = parts_folder(corpus, rows, retriever.fingerprint())
    starts = range(0, len(rows), BATCH)
    found = {start: read_part(_file(parts, start)) for start in starts}
    with counting("encoding papers", len(rows)) as advance:
        left = [start for start in starts if found[start] is None]
        advance(len(rows) - sum(len(rows[start : start + BATCH]) for start in left))
        for start, vectors in _encoded(retriever, rows, left) if left else ():
            found[start] = vectors
            if (file := _file(parts, start)) is not None:
                with written_whole(file) as unfinished, unfinished.open("wb") as stream:
                    np.save(stream, vectors)
            advance(len(vectors))
    if parts is not None:
        shutil.rmtree(parts, ignore_errors=True)
    if not rows.size:
        return retriever.encode_papers(rows)
    return np.concatenate([vectors for vectors in found.values() if vectors is not None])


def _encoded(retriever: DenseRetriever, rows: NDArray[np.int64], starts: list[int]) -> Any:
    """(start, vectors) of the batches that start there, in order."""
    with ray_cluster.connected():
        import ray
        from ray.data import ActorPoolStrategy

        threads, there = torch.get_num_threads(), ray.cluster_resources()
        gpus = int(there.get("GPU", 0)) if torch.cuda.is_available() else 0
        actors = min(gpus or max(1, int(there["CPU"]) // threads), len(starts))
        given = copy.copy(retriever)
        given.__dict__.pop("_vectors", None)  # the index of another corpus
        for row in ray_cluster.each(
            [{"start": start} for start in starts],
            _Encoder,
            fn_constructor_args=(ray.put(given), ray.put(rows), threads),
            compute=ActorPoolStrategy(size=actors),
            num_cpus=threads,
            **({"num_gpus": 1} if gpus else {}),
        ):
            vectors = np.frombuffer(row["vectors"].as_buffer(), np.float32)
            yield row["start"].as_py(), vectors.reshape(row["papers"].as_py(), -1)


def _file(parts: Path | None, start: int) -> Path | None:
    return None if parts is None else parts / f"{start}.npy"


class _Encoder:
    """Encodes batches; lives in an actor."""

    def __init__(self, retriever: Any, rows: Any, threads: int) -> None:
        """References to a retriever that is prepared for a corpus, and to the rows that are encoded."""
        import ray

        torch.set_num_threads(threads)
        self._retriever, self._rows = ray.get([retriever, rows])

    def __call__(self, batch: dict[str, NDArray[np.int64]]) -> pa.Table:
        start = int(batch["start"][0])
        vectors = self._retriever.encode_papers(self._rows[start : start + BATCH])
        content = pa.array([vectors.tobytes()], pa.large_binary())
        return pa.table({"start": [start], "papers": [len(vectors)], "vectors": content})
