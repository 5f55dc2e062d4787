"""A run of an earlier evaluation, or of another tool, as a retriever: nothing is computed again."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from datasets.errors import InputError
from datasets.store import Corpus
from retrieval.base import Retriever
from retrieval.ranking import Ranking, nothing
from retrieval.runs import Run

log = logging.getLogger(__name__)


class CachedRun(Retriever):
    """Gives what TREC files hold for the queries of a corpus.

    files: runs of different queries, as one of the validation split and one of the test split. A search
    deeper than they go finds no more than they have. A query that none of them has gets no papers.
    """

    name = "run"

    def __init__(self, files: str | Path | Sequence[str | Path]) -> None:
        """Raises InputError if no file is named, or one is not there."""
        super().__init__()
        self.files = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
        if not self.files:
            raise InputError("retriever=run needs retriever.files=[RUN,...], files in TREC's format")
        for file in self.files:
            if not file.is_file():
                raise InputError(f"retriever.files: there is no file {file}")

    def settings(self) -> dict[str, Any]:
        return {"files": [_content_hash(file) for file in self.files]}

    @property
    def index_bytes(self) -> int:
        return self._papers.nbytes + self._scores.nbytes + self._place.nbytes

    def has(self, contexts: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which contexts [Q] of the indexed corpus are queries of the files [Q]."""
        return self._place[contexts] >= 0

    def _index(self, corpus: Corpus) -> None:
        self._place = np.full(len(corpus.context_ids), -1, np.int32)
        rankings: list[Ranking] = []
        for file in self.files:
            run = Run.read(file)
            contexts, there = _context_rows(run, file, corpus)
            if (self._place[contexts] >= 0).any():
                twice = corpus.context_ids[int(contexts[np.argmax(self._place[contexts] >= 0)])]
                raise InputError(f"{file}: query {twice!r} is in an earlier file of retriever.files too")
            self._place[contexts] = np.arange(len(contexts)) + sum(map(len, rankings))
            rankings.append(_in_corpus(run, there, file, corpus))
        k = max(ranking.k for ranking in rankings)
        ranking = Ranking.concat([_padded(ranking, k) for ranking in rankings])
        self._papers, self._scores = ranking.papers, ranking.scores
        for split in corpus.splits.values():
            found = int(np.count_nonzero(self._place[split.contexts] >= 0))
            if 0 < found < len(split):
                log.warning(
                    f"{self._named()}: {len(split) - found:,} of the {len(split):,} queries of split "
                    f"{split.name} are not there; they get no papers"
                )

    def _search(
        self, contexts: npt.NDArray[np.int64], k: int, allowed: npt.NDArray[np.bool_] | None
    ) -> Ranking:
        """Raises InputError for a context of a split that the files lack altogether."""
        place = self._place[contexts]
        if (place < 0).any():
            self._check_splits(contexts[place < 0])
        # What is not allowed is dropped afterwards, so all of the run is needed then.
        depth = self._papers.shape[1] if allowed is not None else k
        papers, scores = self._papers[place, :depth], self._scores[place, :depth]
        papers[place < 0], scores[place < 0] = -1, -np.inf
        return Ranking(papers, scores)

    def _check_splits(self, missing: npt.NDArray[np.int64]) -> None:
        corpus = self.corpus
        for split in corpus.splits.values():
            if np.isin(missing, split.contexts).any() and (self._place[split.contexts] < 0).all():
                raise InputError(
                    f"{self._named()}: has no query of split {split.name!r} of {corpus.name}; "
                    "add a run of that split to retriever.files"
                )

    def _named(self) -> str:
        return ", ".join(map(str, self.files))

    def _save(self, folder: Path) -> None:
        for name in ("place", "papers", "scores"):
            np.save(folder / f"{name}.npy", getattr(self, f"_{name}"))

    def _load(self, folder: Path, corpus: Corpus) -> None:
        for name in ("place", "papers", "scores"):
            setattr(self, f"_{name}", np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))


def _context_rows(
    run: Run, file: Path, corpus: Corpus
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Contexts of the corpus that are in a run, and their places in it; InputError if there is none."""
    places = {query: place for place, query in enumerate(run.query_ids)}
    pairs = [(row, places[context]) for row, context in enumerate(corpus.context_ids) if context in places]
    if not pairs:
        raise InputError(
            f"{file}: corpus {corpus.name} has none of the run's {len(run):,} queries (the first is "
            f"{run.query_ids[0]!r}); name a run of this data set"
        )
    if len(pairs) < len(run):
        log.warning(f"{file}: {len(run) - len(pairs):,} of {len(run):,} queries are not in {corpus.name}")
    rows, there = np.array(pairs, np.int64).T
    return rows, there


def _in_corpus(run: Run, there: npt.NDArray[np.int64], file: Path, corpus: Corpus) -> Ranking:
    """The rankings at some places of a run, with the corpus's rows of papers."""
    rows = np.array([corpus.paper_row(p) if corpus.has_paper(p) else -1 for p in run.paper_ids], np.int32)
    papers = run.ranking.papers[there]
    found = np.where(papers >= 0, rows[papers], -1)
    lost = (found < 0) & (papers >= 0)
    if lost.any():
        query, rank = np.argwhere(lost)[0]
        raise InputError(
            f"{file}: query {run.query_ids[there[query]]!r} has the paper "
            f"{run.paper_ids[papers[query, rank]]!r}, which corpus {corpus.name} lacks; "
            "name a run of this data set"
        )
    scores = run.ranking.scores[there]
    endless = np.isinf(scores) & (papers >= 0)
    if endless.any():
        query = run.query_ids[there[np.argmax(endless.any(axis=1))]]
        raise InputError(f"{file}: query {query!r} has an infinite score; write finite ones")
    return Ranking(found, scores)


def _padded(ranking: Ranking, k: int) -> Ranking:
    papers, scores = nothing(len(ranking), k)
    papers[:, : ranking.k], scores[:, : ranking.k] = ranking.papers, ranking.scores
    return Ranking(papers, scores)


def _content_hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
