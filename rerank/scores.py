"""Scores of pairs, kept on disk: none is computed twice, and an interrupted scoring resumes.

Several processes share the work, as `torchrun --nproc-per-node N evaluate.py ...` starts them. And a
ranking's first candidates in the order of their scores (Gu et al. 2022, section 3).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import atomic_write
from datasets.progress import count_progress
from retrieval.base import Ranking
from retrieval.vectors import SAY_EVERY

log = logging.getLogger(__name__)

FORMAT = 1
CHUNK = 512
"""Pairs passed to the scorer together.

Batches are made within a chunk, and the last bits of a score depend on the batch: with chunks of one size a
resumed run gets the very scores of an uninterrupted one."""

Floats = NDArray[np.float32]

_DONE = -1
_PATIENCE = timedelta(days=30)
"""How long the others may wait for pairs: the first one may have to index and search millions of papers."""


class Processes:
    """The processes of one evaluation, of which this is number `rank` of `count`."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count
        self._failed = False

    @classmethod
    def of_torchrun(cls) -> Processes:
        """Those that torchrun started together; this one alone without torchrun."""
        found = cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
        if found.count > 1:
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
            if not dist.is_initialized():
                dist.init_process_group("gloo", timeout=_PATIENCE)  # carries keys of pairs, no weights
        return found

    def announce(self, keys: NDArray[np.int64] | None) -> None:
        """By the first, to all others: pairs to score [N]; None: there will be no more."""
        if self.count > 1 and not self._failed:
            dist.broadcast(torch.tensor([_DONE if keys is None else len(keys)]), 0)
            if keys is not None:
                dist.broadcast(torch.from_numpy(keys.copy()), 0)

    def announced(self) -> NDArray[np.int64] | None:
        """By the others: waits for what the first one announces."""
        size = torch.empty(1, dtype=torch.int64)
        dist.broadcast(size, 0)
        if int(size) == _DONE:
            return None
        keys = torch.empty(int(size), dtype=torch.int64)
        dist.broadcast(keys, 0)
        return keys.numpy()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Ends for all at once; after an error nobody waits, and torchrun ends the others."""
        try:
            yield
        except BaseException:
            self._failed = True
            raise
        if self.count > 1:
            dist.barrier()


class Scorer(Protocol):
    """What scores pairs, as rerank.reranker.Reranker; `fingerprint`: all that a score depends on."""

    name: str
    fingerprint: str

    def prepare(self, corpus: Corpus) -> object:
        """Get ready for pairs of a corpus, which may take a while."""

    def score(
        self,
        corpus: Corpus,
        contexts: NDArray[np.int64],
        papers: NDArray[np.int64],
        advance: Callable[[int], None] | None = None,
    ) -> Floats: ...


@dataclass(frozen=True)
class Scored:
    """Scores [N], the seconds they took whenever they were computed, and how many were computed now."""

    scores: Floats
    seconds: float
    new: int

    @property
    def pairs_per_second(self) -> float:
        """By all processes together; 0 if there are no pairs."""
        return len(self.scores) / self.seconds if self.seconds else 0.0


class PairScores:
    """Scores of pairs of one corpus by one scorer, read from a folder of their own below `root` or computed.

    chunk: pairs scored at a time; write_every: seconds of work after which they are written; processes:
    those that share the work, None for this one alone.
    """

    def __init__(
        self,
        root: str | Path,
        scorer: Scorer,
        corpus: Corpus,
        chunk: int = CHUNK,
        write_every: float = 30.0,
        processes: Processes | None = None,
    ) -> None:
        about = json.dumps([FORMAT, scorer.fingerprint, corpus.fingerprint])
        self.folder = Path(root) / hashlib.blake2b(about.encode(), digest_size=8).hexdigest()
        self.scorer, self.corpus, self.chunk, self.write_every = scorer, corpus, chunk, write_every
        self.processes = processes or Processes()
        self._papers = len(corpus.paper_ids)

    def of(self, contexts: NDArray[np.integer], papers: NDArray[np.integer]) -> Scored:
        """The scores of pairs [N], which may repeat.

        InputError if a score is not a finite number, or a shard is damaged.
        """
        pairs, place = np.unique(contexts.astype(np.int64) * self._papers + papers, return_inverse=True)
        scores, seconds = self._read(pairs)
        missing = pairs[np.isnan(scores)]
        if len(missing):
            self.processes.announce(missing)
            self.compute(missing)
            scores, seconds = self._read(pairs)
        # A repeated pair counts each time, so that the speed is that of all.
        return Scored(scores[place], float(seconds[place].sum()), len(missing))

    def _read(self, wanted: NDArray[np.int64]) -> tuple[Floats, NDArray[np.float64]]:
        """Scores (NaN: none yet) and seconds of ascending keys [N]."""
        scores, seconds = np.full(len(wanted), np.nan, np.float32), np.zeros(len(wanted))
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                with safe_open(path, framework="np") as shard:
                    about = shard.metadata()
                    ends = [int(about["first"]), int(about["last"]) + 1]
                    part = slice(*np.searchsorted(wanted, ends).tolist())
                    if part.start == part.stop:
                        continue
                    keys, values = shard.get_tensor("keys"), shard.get_tensor("scores")
                    took = float(about["seconds"])
            except (SafetensorError, KeyError, TypeError, ValueError) as error:
                raise InputError(f"{path}: damaged ({error}); remove it to score its pairs again") from None
            at = np.searchsorted(keys, wanted[part])
            new = (keys[at] == wanted[part]) & np.isnan(scores[part])
            scores[part][new], seconds[part][new] = values[at[new]], took / len(keys)
        return scores, seconds

    def compute(self, keys: NDArray[np.int64]) -> None:
        """Score this process's share of ascending keys [N] and write it; all processes end together."""
        chunks = [keys[start : start + self.chunk] for start in range(0, len(keys), self.chunk)]
        chunks = chunks[self.processes.rank :: self.processes.count]
        unwritten: list[tuple[NDArray[np.int64], Floats]] = []
        name, total, done, seconds = self.scorer.name, sum(map(len, chunks)), 0, 0.0
        with self.processes.together(), count_progress(f"{name}: scoring", total) as advance:
            if chunks:
                self.scorer.prepare(self.corpus)  # its time is no part of the pairs per second
            begin = said = time.monotonic()
            try:
                for chunk in chunks:
                    started = time.perf_counter()
                    scores = self._scored(chunk, advance)
                    seconds += time.perf_counter() - started
                    unwritten.append((chunk, scores))
                    if seconds >= self.write_every:
                        self._write(unwritten, seconds)
                        unwritten, seconds = [], 0.0
                    done += len(chunk)
                    if (now := time.monotonic()) - said >= SAY_EVERY:
                        said, rate = now, done / (now - begin)
                        log.info(
                            f"{name}: scored {done:,} of {total:,} pairs, {rate:,.1f}/s, about "
                            f"{(total - done) / rate / 60:.1f} min left"
                        )
            finally:  # an interrupt loses only the chunk that it came in
                if unwritten:
                    self._write(unwritten, seconds)

    def _scored(self, keys: NDArray[np.int64], advance: Callable[[int], None]) -> Floats:
        contexts, papers = np.divmod(keys, self._papers)
        scores = self.scorer.score(self.corpus, contexts, papers, advance)
        wrong = ~np.isfinite(scores)
        if wrong.any():
            first = int(np.argmax(wrong))
            query = self.corpus.context_ids[int(contexts[first])]
            paper = self.corpus.paper_ids[int(papers[first])]
            raise InputError(
                f"{self.scorer.name}: the score of query {query!r} and paper {paper!r} is {scores[first]}; "
                "the model is damaged, or its precision too low for it (scoring.precision)"
            )
        return scores

    def _write(self, done: list[tuple[NDArray[np.int64], Floats]], seconds: float) -> None:
        keys = np.concatenate([keys for keys, _ in done])
        scores = np.concatenate([scores for _, scores in done]).astype(np.float32)
        about = {
            "scorer": self.scorer.name,
            "corpus": self.corpus.name,
            "first": str(keys[0]),
            "last": str(keys[-1]),
            "seconds": str(seconds / self.processes.count),  # of the work of all, if the others were as fast
        }
        # Sorted by name, the oldest comes first.
        name = f"{time.time_ns()}-{uuid4().hex[:8]}.safetensors"
        with atomic_write(self.folder / name) as part:
            save_file({"keys": keys, "scores": scores}, part, about)


def candidate_scores(
    scores: PairScores, contexts: NDArray[np.int64], papers: NDArray[np.int32]
) -> tuple[NDArray[np.float32], Scored]:
    """Scores [Q, K] of each query's candidates, and what they took.

    contexts: [Q], papers: [Q, K], -1 (a score of -inf) where there are fewer than K.
    """
    there = papers >= 0
    scored = scores.of(np.repeat(contexts, there.sum(axis=1)), papers[there])
    found = np.full(papers.shape, -np.inf, np.float32)
    found[there] = scored.scores
    return found, scored


def to_logits(scores: NDArray[np.float32], head: str) -> NDArray[np.float32]:
    """What scores were before the sigmoid of a head that has one; 0 and 1 as far as float32 can tell."""
    if head != "sigmoid":
        return scores
    least = np.finfo(np.float32).eps
    inside = np.clip(scores, least, 1 - least)
    return np.log(inside) - np.log1p(-inside)


def first_k(ranking: Ranking, k: int) -> Ranking:
    """The first k papers of each query, or all where there are fewer."""
    return Ranking(ranking.papers[:, :k], ranking.scores[:, :k])


def reorder(ranking: Ranking, scores: NDArray[np.floating]) -> Ranking:
    """The first K papers of each query by their scores [Q, K], the others behind them in their order.

    scores: -inf where `ranking` has no paper. Papers of equal score keep the order of `ranking`. Every tool
    sees this order, because no two scores of the result are equal: an equal one is lowered by the last bit,
    and below the first K each is 1 less than the one before.
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
