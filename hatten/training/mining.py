"""Mines negatives and positives for training (Gu et al. 2022, section 4.3): before a round, the `Miner`
prefetches papers for its queries into a `Pool`, from which batches are drawn.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import atomic_write, digest_file
from citerec.base.progress import count_progress
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.hatten.settings import MiningSettings
from citerec.hatten.training.word_overlap import WordSets
from citerec.retrieval.base import top_k
from citerec.retrieval.indexes.index import search_exact
from citerec.training.processes import WHOLE, Share
from citerec.training.queries import DataSets

PAIR_CHUNK = 200_000
QUERY_CHUNK = 1000


@dataclass(frozen=True)
class Pool:
    """Papers prefetched for the training queries, without the cited and citing papers of each query.

    row: [queries of the split] int32, row in `papers`, -1 for a query outside the sample
    papers: [rows, depth] int32 rows of the corpus, best first, padded with -1
    relevant: [rows, depth] bool, True for as much word overlap with the query as a cited paper has
    """

    row: NDArray[np.int32]
    papers: NDArray[np.int32]
    relevant: NDArray[np.bool_]

    def draw(
        self, queries: NDArray[np.integer], size: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Draw `size` distinct papers from the pool of each query (row of the split): (papers, relevant).

        Papers are -1 for a query outside the sample, or if its pool is too small.
        """
        row = self.row[queries]
        columns = np.argsort(rng.random((len(queries), self.papers.shape[1])), axis=1)[:, :size]
        papers = self.papers[row[:, None], columns]
        papers = np.where(row[:, None] >= 0, papers, -1)
        return papers, self.relevant[row[:, None], columns] & (papers >= 0)

    def save(self, path: Path) -> str:
        """Write a .npz file atomically; return its SHA-256."""
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, row=self.row, papers=self.papers, relevant=self.relevant)
        return digest_file(path, "sha256")

    @classmethod
    def load(cls, path: Path, sha256: str) -> Pool:
        """Load a saved pool; InputError if the file is missing or has another hash."""
        if not path.is_file():
            raise InputError(
                f"{path}: the mined pool of this run is missing; restart the training (resume=false)"
            )
        if digest_file(path, "sha256") != sha256:
            raise InputError(f"{path}: not the pool that this run mined; restart the training (resume=false)")
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls(file["row"], file["papers"], file["relevant"])
        except (ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(f"{path}: not a mined pool ({error})") from None


@dataclass(frozen=True)
class MiningPlan:
    """What to mine for a round: rows of the training split, the papers to search [P], and how, by the
    `encoder` or by `bm25`."""

    queries: NDArray[np.int64]
    candidates: NDArray[np.bool_]
    source: str


class Miner:
    """Plans the mining of each round."""

    def __init__(self, settings: MiningSettings, corpus: Corpus, seed: int) -> None:
        self.settings, self.corpus, self.seed = settings, corpus, seed

    @cached_property
    def words(self) -> WordSets | None:
        """To mine positives as well; None if only negatives are mined."""
        return WordSets(self.corpus) if self.settings.positives else None

    def source(self, done: int) -> str:
        """How to mine after `done` rounds: encoder, bm25 or none."""
        if done < self.settings.skip:
            return "none"
        return self.settings.first if done == self.settings.skip else "encoder"

    def plan(self, done: int, queries: NDArray[np.int64]) -> MiningPlan:
        """Sample the queries of the round after `done` rounds, and the candidates to search."""
        rng = np.random.default_rng((self.seed, 3, done))
        sampled = sample_rows(queries, self.settings.queries, rng)
        candidates = self.corpus.is_candidate
        if 0 < self.settings.papers < candidates.sum():
            rows = rng.choice(np.flatnonzero(candidates), self.settings.papers, replace=False)
            candidates = np.isin(np.arange(len(candidates)), rows)
        return MiningPlan(sampled, candidates, self.source(done))


def sample_rows(queries: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sample at most `size` queries; keeps their order."""
    if size >= len(queries):
        return queries
    return queries[np.sort(rng.choice(len(queries), size, replace=False))]


@dataclass(frozen=True)
class Mining:
    """What a process mines: for its share of some queries, rows of a split.

    words: if given, prefetched papers are marked whose Jaccard index with the query reaches a cited paper's.
    allowed: the papers to search [P], by default all candidates. sets: of the split's queries, which are
    searched for in their own one.
    """

    corpus: Corpus
    split: Split
    queries: NDArray[np.int64]
    depth: int
    words: WordSets | None = None
    allowed: NDArray[np.bool_] | None = None
    share: Share = WHOLE
    sets: DataSets | None = None

    @cached_property
    def own(self) -> NDArray[np.int64]:
        """The queries of this process."""
        return self.queries[self.share.part(len(self.queries))]

    @cached_property
    def excluded(self) -> NDArray[np.int32]:
        """The cited papers of its queries, padded with -1, and the citing paper: [own, most + 1]."""
        return pad_positives(
            self.split.positives.take(self.own), self.corpus.citing[self.split.contexts[self.own]]
        )

    def by_vectors(self, query_vectors: NDArray[np.float32], paper_vectors: NDArray[np.float32]) -> Pool:
        """Prefetch by cosine; vectors [own, D] and [P, D] of unit length."""
        papers = np.full((len(self.own), self.depth), -1, np.int32)
        for rows, mask in self._own_papers():
            given = query_vectors[rows], paper_vectors, self.depth, self.excluded[rows], mask
            papers[rows] = search_exact(*given, self.share.device).papers
        return self._pool(papers)

    def by_bm25(self) -> Pool:
        """Prefetch by the BM25 of Gu et al. (retriever=bm25_gu); needs no trained encoder."""
        from citerec.retrieval.lexical.bm25 import BM25

        query = ("title", "abstract", "context")
        bm25 = BM25("okapi", stopwords=None, query=query, threads=os.cpu_count() or 1)
        bm25.index(self.corpus)
        contexts, cited = self.split.contexts[self.own], self.excluded[:, :-1]
        papers = np.full((len(contexts), self.depth), -1, np.int32)
        with count_progress("BM25 of training queries", len(contexts)) as bar:
            for group, mask in self._own_papers():
                for start in range(0, len(group), QUERY_CHUNK):
                    rows = group[start : start + QUERY_CHUNK]
                    # Retrieve extra papers, since cited ones are dropped.
                    found = bm25.search_allowed(contexts[rows], self.depth + cited.shape[1], mask)
                    drop = (found.papers[:, :, None] == cited[rows, None]).any(2)
                    papers[rows] = top_k(found.papers, found.scores, self.depth, drop).papers
                    bar(len(found))
        return self._pool(papers)

    def _own_papers(self) -> Iterable[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """Places of this process's queries, with the papers [P] that they are searched in."""
        allowed = self.corpus.is_candidate if self.allowed is None else self.allowed
        return (
            [(np.arange(len(self.own)), allowed)] if self.sets is None else self.sets.own(self.own, allowed)
        )

    def _pool(self, papers: NDArray[np.int32]) -> Pool:
        """Build the pool of all queries, given the papers [own, depth] prefetched by this process."""
        contexts, cited = self.split.contexts[self.own], self.excluded[:, :-1]
        relevant = np.zeros(papers.shape, np.bool_)
        if (words := self.words) is not None:
            for start in range(0, len(contexts), max(1, PAIR_CHUNK // self.depth)):
                rows = slice(start, start + max(1, PAIR_CHUNK // self.depth))
                sets = words.queries(contexts[rows])
                threshold = words.jaccard(sets, cited[rows]).max(1, keepdims=True)
                overlap = words.jaccard(sets, papers[rows])
                relevant[rows] = (overlap >= threshold) & (overlap > 0)  # the threshold can be 0
        row, count = np.full(len(self.split), -1, np.int32), len(self.queries)
        row[self.queries] = np.arange(count, dtype=np.int32)
        return Pool(row, self.share.collect(papers, count), self.share.collect(relevant, count))


def pad_positives(cited: Ragged, citing: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the cited papers padded with -1, and the citing paper as the last column: [Q, max cited + 1]."""
    lengths = cited.lengths
    out = np.full((len(cited), int(lengths.max(initial=0)) + 1), -1, np.int32)
    out[:, :-1][np.arange(out.shape[1] - 1) < lengths[:, None]] = cited.values
    out[:, -1] = citing
    return out
