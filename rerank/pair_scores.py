"""Scores of pairs on the disk: none is computed twice, and what is cut off goes on where it was.

A folder holds shards, safetensors files that are whole or not there: `keys` int64 [N], ascending, `scores`
float32 [N], and how long that took. A key is context row * papers + paper row. Jobs may share a folder: each
writes files of its own, and at worst both score the same pair.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from datasets.atomic import written_whole
from datasets.errors import InputError
from datasets.progress import counting
from datasets.store import Corpus
from rerank.processes import Processes
from retrieval.encode import SAY_EVERY

log = logging.getLogger(__name__)

FORMAT = 1
CHUNK = 512
"""Pairs that are handed to the scorer together.

Batches are made within a chunk, and the last bits of a score depend on the batch: chunks of one size give a
resumed run the very scores of an uninterrupted one."""

Floats = NDArray[np.float32]


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
    """Scores [N], the seconds that they took whenever they were computed, and how many were computed now."""

    scores: Floats
    seconds: float
    new: int

    @property
    def pairs_per_second(self) -> float:
        """By all processes together; 0 if there are no pairs."""
        return len(self.scores) / self.seconds if self.seconds else 0.0


class PairScores:
    """Scores of pairs of one corpus by one scorer, from the folder of that name below `root` or computed.

    chunk: pairs scored at a time; write_every: seconds of work after which they are written.
    processes: those that share the work, alone without.
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
        self.scorer, self.corpus = scorer, corpus
        self.chunk, self.write_every = chunk, write_every
        self.processes = processes or Processes()
        self._papers = len(corpus.paper_ids)

    def of(self, contexts: NDArray[np.integer], papers: NDArray[np.integer]) -> Scored:
        """The scores of pairs [N]; a pair may stand there many times.

        Raises InputError if a score is not a finite number, or a shard is damaged.
        """
        pairs, place = np.unique(contexts.astype(np.int64) * self._papers + papers, return_inverse=True)
        scores, seconds = self._read(pairs)
        missing = pairs[np.isnan(scores)]
        if len(missing):
            self.processes.announce(missing)
            self.compute(missing)
            scores, seconds = self._read(pairs)
        # Of pairs that stand there twice each counts, so that speed is that of all.
        return Scored(scores[place], float(seconds[place].sum()), len(missing))

    def _read(self, wanted: NDArray[np.int64]) -> tuple[Floats, NDArray[np.float64]]:
        """Scores, NaN where there is none yet, and seconds of ascending keys [N]."""
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
                raise InputError(
                    f"{path}: damaged ({error}); remove it, then its pairs are scored again"
                ) from None
            at = np.searchsorted(keys, wanted[part])
            new = (keys[at] == wanted[part]) & np.isnan(scores[part])
            scores[part][new], seconds[part][new] = values[at[new]], took / len(keys)
        return scores, seconds

    def compute(self, keys: NDArray[np.int64]) -> None:
        """Score this process's share of ascending keys [N], and write it; all processes end together."""
        chunks = [keys[start : start + self.chunk] for start in range(0, len(keys), self.chunk)]
        chunks = chunks[self.processes.rank :: self.processes.count]
        done: list[tuple[NDArray[np.int64], Floats]] = []
        total, seconds = sum(map(len, chunks)), 0.0
        with self.processes.together(), counting(f"{self.scorer.name}: scoring", total) as advance:
            if chunks:
                self.scorer.prepare(self.corpus)  # of pairs per second, the time that this takes is no part
            report = _Progress(self.scorer.name, total)
            try:
                for chunk in chunks:
                    started = time.perf_counter()
                    scores = self._scored(chunk, advance)
                    seconds += time.perf_counter() - started
                    done.append((chunk, scores))
                    if seconds >= self.write_every:
                        self._write(done, seconds)
                        done, seconds = [], 0.0
                    report(len(chunk))
            finally:  # an interrupt loses the chunk that it came in
                if done:
                    self._write(done, seconds)

    def _scored(self, keys: NDArray[np.int64], advance: Callable[[int], None]) -> Floats:
        contexts, papers = np.divmod(keys, self._papers)
        scores = self.scorer.score(self.corpus, contexts, papers, advance)
        wrong = ~np.isfinite(scores)
        if wrong.any():
            context, paper = (int(rows[np.argmax(wrong)]) for rows in (contexts, papers))
            raise InputError(
                f"{self.scorer.name}: the score of query {self.corpus.context_ids[context]!r} and paper "
                f"{self.corpus.paper_ids[paper]!r} is {scores[np.argmax(wrong)]}; the model is damaged, or "
                "its precision too low for it (scoring.precision)"
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
        with written_whole(self.folder / name) as part:
            save_file({"keys": keys, "scores": scores}, part, about)


class _Progress:
    """A line on how far the scoring is, every few seconds."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0
        self._started = self._said = time.monotonic()

    def __call__(self, more: int) -> None:
        self.done += more
        now = time.monotonic()
        if now - self._said < SAY_EVERY:
            return
        self._said, rate = now, self.done / (now - self._started)
        log.info(
            f"{self.name}: scored {self.done:,} of {self.total:,} pairs, {rate:,.1f}/s, about "
            f"{(self.total - self.done) / rate / 60:.1f} min left"
        )
