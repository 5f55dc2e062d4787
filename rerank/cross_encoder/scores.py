"""Pair scores cached on disk, so that no pair is scored twice and interrupted runs resume; and the top
candidates of a ranking in the order of their scores (Gu et al. 2022, section 3).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from citerec.base.errors import InputError
from citerec.base.files import atomic_write, digest_json
from citerec.base.progress import count_progress
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats
from citerec.retrieval.base import Ranking

if TYPE_CHECKING:
    from citerec.rerank.cross_encoder.reranker import Reranker

FORMAT = 1
CHUNK = 512
"""Pairs passed to the scorer together.

Batches are formed within a chunk, and the last bits of a score depend on its batch: with a fixed chunk size,
a resumed run computes exactly the scores of an uninterrupted one."""


@dataclass(frozen=True)
class ScoredPairs:
    """Scores [N], seconds spent on them (now or earlier), and the number that was computed now."""

    scores: Floats
    seconds: float
    new: int

    @property
    def pairs_per_second(self) -> float:
        """The speed; 0 without pairs."""
        return len(self.scores) / self.seconds if self.seconds else 0.0


class PairScores:
    """Pair scores of one scorer on one corpus, read from their folder below `root` or computed.

    chunk: pairs scored at a time; write_every: seconds of work between writes.
    """

    def __init__(
        self,
        root: str | Path,
        scorer: Reranker,
        corpus: Corpus,
        chunk: int = CHUNK,
        write_every: float = 30.0,
    ) -> None:
        self.folder = Path(root) / digest_json([FORMAT, scorer.fingerprint, corpus.fingerprint])
        self.scorer, self.corpus, self.chunk, self.write_every = scorer, corpus, chunk, write_every
        self._papers = len(corpus.paper_ids)

    def get(self, contexts: NDArray[np.integer], papers: NDArray[np.integer]) -> ScoredPairs:
        """Return the scores of pairs [N], which may repeat.

        Raises InputError if a score is not finite.
        """
        pairs, place = np.unique(contexts.astype(np.int64) * self._papers + papers, return_inverse=True)
        scores, seconds = self._read(pairs)
        missing = pairs[np.isnan(scores)]
        if len(missing):
            self._compute(missing)
            scores, seconds = self._read(pairs)
        # A repeated pair counts each time, so that the speed is that of all N pairs.
        return ScoredPairs(scores[place], float(seconds[place].sum()), len(missing))

    def candidate_scores(
        self, contexts: NDArray[np.int64], papers: NDArray[np.int32]
    ) -> tuple[Floats, ScoredPairs]:
        """Return scores [Q, K] of each query's candidates, and the scored pairs with their speed.

        contexts: [Q]; papers: [Q, K], padded with -1, which scores -inf.
        """
        mask = papers >= 0
        scored = self.get(np.repeat(contexts, mask.sum(axis=1)), papers[mask])
        out = np.full(papers.shape, -np.inf, np.float32)
        out[mask] = scored.scores
        return out, scored

    def _read(self, wanted: NDArray[np.int64]) -> tuple[Floats, NDArray[np.float64]]:
        """Read scores (NaN if missing) and seconds of ascending keys [N]."""
        scores, seconds = np.full(len(wanted), np.nan, np.float32), np.zeros(len(wanted))
        for path in sorted(self.folder.glob("*.safetensors")):
            with safe_open(path, framework="np") as shard:
                metadata = shard.metadata()
                ends = [int(metadata["first"]), int(metadata["last"]) + 1]
                part = slice(*np.searchsorted(wanted, ends).tolist())
                if part.start == part.stop:
                    continue
                keys, values = shard.get_tensor("keys"), shard.get_tensor("scores")
                duration = float(metadata["seconds"])
            places = np.searchsorted(keys, wanted[part])
            new = (keys[places] == wanted[part]) & np.isnan(scores[part])
            scores[part][new], seconds[part][new] = values[places[new]], duration / len(keys)
        return scores, seconds

    def _compute(self, keys: NDArray[np.int64]) -> None:
        """Score ascending keys [N] and write the scores."""
        unwritten: list[tuple[NDArray[np.int64], Floats]] = []
        seconds = 0.0
        self.scorer.prepare(self.corpus)  # not counted in the pairs per second
        with count_progress(f"{self.scorer.name}: scoring", len(keys)) as advance:
            try:
                for first in range(0, len(keys), self.chunk):
                    chunk = keys[first : first + self.chunk]
                    chunk_start = time.perf_counter()
                    scores = self._score(chunk, advance)
                    seconds += time.perf_counter() - chunk_start
                    unwritten.append((chunk, scores))
                    if seconds >= self.write_every:
                        self._write(unwritten, seconds)
                        unwritten, seconds = [], 0.0
            finally:  # an interrupt loses only the current chunk
                if unwritten:
                    self._write(unwritten, seconds)

    def _score(self, keys: NDArray[np.int64], advance: Callable[[int], None]) -> Floats:
        contexts, papers = np.divmod(keys, self._papers)
        scores = self.scorer.score(self.corpus, contexts, papers, advance)
        invalid = ~np.isfinite(scores)
        if invalid.any():
            first = int(np.argmax(invalid))
            query = self.corpus.context_ids[int(contexts[first])]
            paper = self.corpus.paper_ids[int(papers[first])]
            raise InputError(
                f"{self.scorer.name}: the score of query {query!r} and paper {paper!r} is {scores[first]}; "
                "the model is damaged, or scoring.precision too low"
            )
        return scores

    def _write(self, chunks: list[tuple[NDArray[np.int64], Floats]], seconds: float) -> None:
        keys = np.concatenate([keys for keys, _ in chunks])
        scores = np.concatenate([scores for _, scores in chunks]).astype(np.float32)
        metadata = {
            "scorer": self.scorer.name,
            "corpus": self.corpus.name,
            "first": str(keys[0]),
            "last": str(keys[-1]),
            "seconds": str(seconds),
        }
        # The oldest shard comes first by name.
        name = f"{time.time_ns()}-{uuid4().hex[:8]}.safetensors"
        with atomic_write(self.folder / name) as file:
            save_file({"keys": keys, "scores": scores}, file, metadata)


def first_k(ranking: Ranking, k: int) -> Ranking:
    """Return the first k papers of each query, or all if there are fewer."""
    return Ranking(ranking.papers[:, :k], ranking.scores[:, :k])


def reorder(ranking: Ranking, scores: NDArray[np.floating]) -> Ranking:
    """Sort the first K papers of each query by scores [Q, K]; the others follow in their order.

    scores: -inf where `ranking` has no paper. Ties keep the order of `ranking`. The result has no ties, so
    that every tool sees the same order: a tied score is lowered by the last bit, and after the first K papers
    each score is 1 below the previous one.
    """
    queries, k = scores.shape
    order = np.argsort(-scores, axis=1, kind="stable")
    papers, values = ranking.papers.copy(), np.full(ranking.papers.shape, -np.inf, np.float32)
    papers[:, :k] = np.take_along_axis(ranking.papers[:, :k], order, axis=1)
    best = np.take_along_axis(scores, order, axis=1).astype(np.float32)
    last = np.full(queries, np.inf, np.float32)
    for column in range(ranking.k):
        below = np.nextafter(last, np.float32(-np.inf))
        last = np.minimum(best[:, column], below) if column < k else np.minimum(last - 1, below)
        values[:, column] = last
    return Ranking(papers, np.where(papers >= 0, values, np.float32(-np.inf)))
