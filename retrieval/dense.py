"""Retrieval by vectors: what HAtten, averaged word vectors and article encoders share.

Context profiles: papers enriched by the training contexts that cite them. Not in the HAtten paper.
Papers encoded over Ray Data: the vectors that one process makes, bit by bit.
"""

from __future__ import annotations

import copy
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from datasets import over_ray as ray_cluster
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.records import TRAIN
from retrieval.base import Ranking, Retriever, check_encoding
from retrieval.embeddings import Advance, Place, Vectors, Work, embedded
from retrieval.index import Halves, IndexConfig, PaperIndex, build_index, load_index, search_exact
from retrieval.tuning import recall_cutoff, sampled
from retrieval.vectors import BATCH, Remembered

log = logging.getLogger(__name__)

Encode = Callable[[NDArray[np.int64]], NDArray[np.float32]]

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""What `weight=auto` chooses from."""

PROFILES_BATCH = 8192
"""Contexts encoded at a time."""


@dataclass(frozen=True)
class ProfileConfig:
    """How much the training contexts that cite a paper count in its vector."""

    weight: float | str = 0.0
    """0 (no profiles) to 1 (contexts alone), or `auto`: what is best on the validation split"""
    split: str = "val"
    """the split that `auto` looks at"""
    queries: int = 2000
    """its queries that `auto` looks at, a sample where there are more"""
    measure: str = "recall@10"
    """what `auto` wants to be high: recall@k"""
    seed: int = 0

    def __post_init__(self) -> None:
        number = isinstance(self.weight, int | float) and not isinstance(self.weight, bool)
        if not (self.weight == "auto" or (number and 0 <= float(self.weight) <= 1)):
            raise InputError(f"profile.weight={self.weight}: choose auto, or a number from 0 to 1")
        if self.queries < 1:
            raise InputError(f"profile.queries={self.queries}: must be at least 1")
        self.cutoff()

    def cutoff(self) -> int:
        """The k of recall@k."""
        return recall_cutoff(self.measure, "profile.measure")

    def asdict(self) -> dict[str, object]:
        return asdict(self)


def with_profiles(
    vectors: NDArray[np.float32],
    corpus: Corpus,
    candidates: NDArray[np.int64],
    encode_queries: Encode,
    config: ProfileConfig,
) -> tuple[NDArray[np.float32], float]:
    """Vectors of candidates [n, D], of unit length, moved towards their training contexts; and the weight.

    encode_queries: contexts, rows [Q] -> [Q, D] of unit length.
    Raises InputError if the corpus has no training split, or for weight=auto no validation split.
    """
    means = profiles(corpus, candidates, encode_queries, vectors.shape[1])
    weight = config.weight
    if weight == "auto":
        weight = tuned_weight(vectors, means, corpus, candidates, encode_queries, config)
    return combined(vectors, means, float(weight)), float(weight)


def profiles(
    corpus: Corpus, candidates: NDArray[np.int64], encode_queries: Encode, dim: int
) -> NDArray[np.float32]:
    """Mean of the training contexts that cite each candidate [n, D], of unit length; zeros without any."""
    if TRAIN not in corpus.splits:
        raise InputError(
            f"profile: corpus {corpus.name} has no split {TRAIN!r}, whose contexts make profiles; "
            "set profile.weight=0"
        )
    split = corpus.split(TRAIN)
    place = np.full(len(corpus.paper_ids), -1, np.int64)
    place[candidates] = np.arange(len(candidates))
    sums = np.zeros((len(candidates), dim), np.float32)
    for start in range(0, len(split), PROFILES_BATCH):
        rows = np.arange(start, min(start + PROFILES_BATCH, len(split)))
        cited = split.positives.take(rows)
        of_query = np.repeat(np.arange(len(rows)), cited.lengths)
        to = place[cited.values]
        encoded = encode_queries(split.contexts[rows])
        np.add.at(sums, to[to >= 0], encoded[of_query[to >= 0]])
    return _unit(sums)


def combined(vectors: NDArray[np.float32], means: NDArray[np.float32], weight: float) -> NDArray[np.float32]:
    """(1 - weight) * vector + weight * profile, of unit length; a vector without a profile stays."""
    if weight == 0:
        return vectors
    mixed = (1 - weight) * vectors + weight * means
    return np.where(means.any(axis=1, keepdims=True), _unit(mixed), vectors)


def tuned_weight(
    vectors: NDArray[np.float32],
    means: NDArray[np.float32],
    corpus: Corpus,
    candidates: NDArray[np.int64],
    encode_queries: Encode,
    config: ProfileConfig,
) -> float:
    """The weight of WEIGHTS with the best recall on the validation split; the smaller of equals."""
    k = config.cutoff()
    contexts, cited = sampled(corpus, config.split, config.queries, config.seed)
    encoded = encode_queries(contexts)
    place = np.full(len(corpus.paper_ids), -1, np.int64)
    place[candidates] = np.arange(len(candidates))
    own = place[corpus.citing[contexts]]
    of_query, wanted = np.repeat(np.arange(len(contexts)), cited.lengths), place[cited.values]
    found: dict[float, float] = {}
    for weight in WEIGHTS:
        papers = search_exact(encoded, combined(vectors, means, weight), k, exclude=own).papers
        hit = ((papers[of_query] == wanted[:, None]) & (wanted >= 0)[:, None]).any(axis=1)
        found[weight] = float((np.bincount(of_query, hit, len(contexts)) / cited.lengths).mean())
    best = max(found, key=lambda weight: (found[weight], -weight))
    log.info(
        f"profiles: weight {best} ({config.measure} {found[best]:.4f} on {len(contexts):,} queries of "
        f"{config.split}, {found[0.0]:.4f} without)"
    )
    return best


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


if TYPE_CHECKING:
    pass


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


NORMALISATION = "unit"
"""Vectors are of unit length, so that their inner product is the cosine."""


class DenseRetriever(Retriever):
    """Nearest papers to a query by cosine. Subclasses fill in what makes vectors.

    index: how vectors are searched (retrieval.index). profile: whether papers are enriched by the training
    contexts that cite them (retrieval.dense).
    """

    def __init__(self, index: IndexConfig | None = None, profile: ProfileConfig | None = None) -> None:
        super().__init__()
        self.index_config = index or IndexConfig()
        self.profile = profile or ProfileConfig()
        self.encoding = "local"
        self._remembered: Remembered | None = None

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What vectors depend on beside the corpus, as plain values: options, a hash of the weights."""

    @abstractmethod
    def prepare(self, corpus: Corpus) -> None:
        """Get ready to read queries and papers of a corpus."""

    @abstractmethod
    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Papers, rows [n] -> [n, D] of unit length; zeros where there is nothing to encode."""

    @abstractmethod
    def encode_queries(self, contexts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Contexts, rows [Q] -> [Q, D] of unit length; zeros where there is nothing to encode."""

    def paper_vectors(self, corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.float32] | Halves:
        """As `encode_papers`, by whoever encodes; the retriever is prepared for the corpus."""
        if self.encoding == "ray":
            pass

            return encode_papers(self, corpus, rows)
        return self.encode_papers(rows)

    def settings(self) -> dict[str, Any]:
        return {
            "normalisation": NORMALISATION,
            **self.fingerprint(),
            "index": self.index_config.asdict(),
            "profile": self.profile.asdict(),
        }

    def encode_with(self, encoding: str) -> None:
        check_encoding(encoding)
        self.encoding = encoding

    def remember_queries(self) -> None:
        """Keep the vectors of queries from now on, until another corpus is indexed."""
        self._remembered = Remembered()

    @property
    def index_bytes(self) -> int:
        return self._vectors.nbytes

    def _index(self, corpus: Corpus) -> None:
        self._remembered = None
        self.prepare(corpus)
        self._candidates = np.flatnonzero(corpus.is_candidate)
        self.index_config.check(len(self._candidates))  # before the work of encoding
        vectors = self.paper_vectors(corpus, self._candidates)
        if self.profile.weight != 0:
            vectors, weight = with_profiles(
                np.asarray(vectors), corpus, self._candidates, self.encode_queries, self.profile
            )
            self.tuned = {"profile.weight": weight}
        self._vectors: PaperIndex = build_index(self.index_config, vectors)

    def _search(self, contexts: NDArray[np.int64], k: int, allowed: NDArray[np.bool_] | None) -> Ranking:
        if self._remembered is None:
            queries = self.encode_queries(contexts)
        else:
            queries = np.stack(self._remembered.of(contexts, self.encode_queries))
        found = self._vectors.search(queries, k, None if allowed is None else allowed[self._candidates])
        # A query without a known word is as near to every paper as to any other: it gets none.
        there = (found.papers >= 0) & queries.any(axis=1, keepdims=True)
        papers = np.where(there, self._candidates[found.papers], -1).astype(np.int32)
        return Ranking(papers, np.where(there, found.scores, np.float32(-np.inf)))

    def _save(self, folder: Path) -> None:
        ids = self.corpus.paper_ids
        with (folder / "ids.txt").open("w", encoding="utf-8") as file:
            file.writelines(f"{ids[row]}\n" for row in self._candidates.tolist())
        self._vectors.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._remembered = None
        self.prepare(corpus)
        self._candidates = np.flatnonzero(corpus.is_candidate)
        self._vectors = load_index(self.index_config, folder)
        if len(self._vectors) != len(self._candidates):
            raise InputError(
                f"{folder}: {len(self._vectors):,} vectors for {len(self._candidates):,} candidates; "
                "make the index again"
            )
