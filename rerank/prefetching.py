"""What a retriever finds for the queries of a training, fetched once and kept on the disk."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.atomic import written_whole
from datasets.errors import InputError
from datasets.store import Corpus
from retrieval.base import Retriever
from retrieval.cached import CachedRun
from retrieval.encode import SAY_EVERY

log = logging.getLogger(__name__)

PART = 512
"""Queries that are searched for, and kept in a file, together."""


class Prefetched:
    """The papers of N queries, best first: row i is int32 [depth], -1 where fewer were found."""

    def __init__(self, files: list[Path], size: int) -> None:
        """files: arrays [PART, depth] of the rows one after the other, the last with what is left."""
        self._parts = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return np.asarray(self._parts[row // PART][row % PART])

    def all(self) -> NDArray[np.int32]:
        """[N, depth], in memory"""
        return np.concatenate(self._parts) if self._parts else np.empty((0, 0), np.int32)


class Prefetcher:
    """Searches for what is not in its folder yet, and indexes the corpus only then."""

    def __init__(
        self, retriever: Retriever, corpus: Corpus, folder: Path, index_dir: str | Path | None = None
    ) -> None:
        """folder: may be shared by trainings; what another retriever found stays beside.

        index_dir: where the retriever's index is, or is to be, kept.
        """
        self.retriever, self.corpus, self.folder, self._index_dir = retriever, corpus, folder, index_dir
        self._opened = False

    def knows(self, contexts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which contexts [N] can be asked for: those that it has, where the retriever is a run."""
        if not isinstance(self.retriever, CachedRun):
            return np.ones(len(contexts), np.bool_)
        self._open()
        return self.retriever.has(contexts)

    def key(self, contexts: NDArray[np.int64], depth: int) -> str:
        """The name of what is found: a hash of corpus, retriever, contexts and depth."""
        about = {"retriever": self.retriever.name, "corpus": self.corpus.fingerprint, "depth": depth}
        asking = self.retriever.asking()
        parts = [about, self.retriever.settings(), *([asking] if asking else [])]
        text = json.dumps(parts, sort_keys=True).encode()
        digest = hashlib.blake2b(text + np.ascontiguousarray(contexts).tobytes(), digest_size=10)
        return digest.hexdigest()

    def __call__(self, contexts: NDArray[np.int64], depth: int, what: str) -> Prefetched:
        """The best papers of contexts [N], never the citing one; what: their name in lines on the progress.

        InputError where the corpus has fewer candidates than `depth`.
        """
        pool = int(np.count_nonzero(self.corpus.is_candidate))
        if depth > pool:
            raise InputError(
                f"corpus {self.corpus.name} has {pool:,} candidates: {depth:,} of them cannot be prefetched "
                "for a query; set model.negatives.depth and model.validation.candidates to fewer"
            )
        folder = self.folder / self.key(contexts, depth)
        starts = range(0, len(contexts), PART)
        files = [folder / f"{start}.npy" for start in starts]
        missing = [(file, start) for file, start in zip(files, starts, strict=True) if not file.is_file()]
        if missing:
            self._open()
        begin = said = time.monotonic()
        for done, (file, start) in enumerate(missing, 1):
            found = self.retriever.search(contexts[start : start + PART], depth)
            with written_whole(file) as unfinished, unfinished.open("wb") as stream:
                np.save(stream, found.papers)
            now = time.monotonic()
            if now - said > SAY_EVERY:
                said, left = now, (now - begin) / done * (len(missing) - done)
                log.info(
                    f"prefetched {self.retriever.name}'s best {depth:,} for "
                    f"{min(start + PART, len(contexts)):,} of {len(contexts):,} {what}, {left:.0f} s left"
                )
        return Prefetched(files, len(contexts))

    def _open(self) -> None:
        if not self._opened:
            self.retriever.open(self.corpus, self._index_dir)
            self._opened = True
