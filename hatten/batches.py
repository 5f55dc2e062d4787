"""Training batches: which queries, with which cited, mined and random papers. All of it follows from (seed, round)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datasets.store import Corpus, Split
from hatten.documents import DocumentReader, Documents
from hatten.losses import CITED, EXCLUDED, OTHER, OTHER_QUERY, RELEVANT
from hatten.mining import Pool


@dataclass(frozen=True)
class BatchConfig:
    """What a batch is made of."""

    queries: int = 17
    mined: int = 3
    """papers for each query drawn from what was prefetched for it"""
    random: int = 1
    """papers for each query drawn from all candidates"""
    contexts_per_paper: int = 1
    """contexts of one citing paper that stand together in a batch; its title and abstract are encoded once"""
    steps_per_round: int = 5000
    """batches between two minings"""


@dataclass(frozen=True)
class Batch:
    """Q queries, N distinct papers, and the irrelevance level of each paper to each query [Q, N]."""

    queries: Documents
    papers: Documents
    levels: NDArray[np.int64]


class Batches(Dataset[Batch]):
    """The batches of one round. Item i is the same whatever was read before it."""

    def __init__(
        self,
        reader: DocumentReader,
        split: Split,
        pool: Pool | None,
        config: BatchConfig,
        seed: int,
        round: int,
    ) -> None:
        self.reader, self.split, self.pool, self.config = reader, split, pool, config
        self.seed, self.round = seed, round
        self.candidates = np.flatnonzero(reader.corpus.is_candidate)
        self.order = self._order()

    def __len__(self) -> int:
        return self.config.steps_per_round

    def __getitem__(self, step: int) -> Batch:
        size = self.config.queries
        queries = self.order[step * size : (step + 1) * size]  # rows of the split
        contexts = self.split.contexts[queries]
        citing = self.reader.corpus.citing[contexts]
        cited = self.split.positives.take(queries)
        rng = np.random.default_rng((self.seed, self.round, step))
        extra = [(rng.choice(self.candidates, (len(queries), self.config.random)), OTHER)]
        if self.pool is not None and self.config.mined:
            mined, relevant = self.pool.draw(queries, self.config.mined, rng)
            extra.append((mined, np.where(relevant, RELEVANT, OTHER)))
        drawn = np.concatenate([papers.ravel() for papers, _ in extra] + [cited.values])
        papers = np.unique(drawn[drawn >= 0])

        levels = np.full((len(queries), len(papers)), OTHER_QUERY)
        rows = np.arange(len(queries))[:, None]
        for found, level in extra:
            there = found >= 0
            levels[np.broadcast_to(rows, found.shape)[there], np.searchsorted(papers, found[there])] = (
                np.broadcast_to(level, found.shape)[there]
            )
        owner = np.repeat(np.arange(len(queries)), cited.lengths)
        levels[papers[None] == citing[:, None]] = EXCLUDED
        levels[owner, np.searchsorted(papers, cited.values)] = CITED
        return Batch(self.reader.queries(contexts), self.reader.papers(papers), levels)

    def _order(self) -> NDArray[np.int64]:
        """Queries of this round, rows of the split: passes over all of them are cut into rounds."""
        size = self.config.queries * self.config.steps_per_round
        first = self.round * size
        parts, start = [], first - first % len(self.split)
        while start < first + size:
            parts.append(self._one_pass(start // len(self.split)))
            start += len(self.split)
        return np.concatenate(parts)[first % len(self.split) :][:size]

    def _one_pass(self, number: int) -> NDArray[np.int64]:
        """Every query once, in groups of contexts of one citing paper."""
        rng = np.random.default_rng((self.seed, 1, number))
        shuffled = rng.permutation(len(self.split))
        group = self.config.contexts_per_paper
        if group == 1:
            return shuffled
        citing = self.reader.corpus.citing[self.split.contexts[shuffled]]
        by_paper = np.argsort(citing, kind="stable")  # contexts of a paper together, in random order
        _, starts = np.unique(citing[by_paper], return_index=True)
        place = np.arange(len(by_paper)) - np.repeat(starts, np.diff(np.append(starts, len(by_paper))))
        piece = np.cumsum((place % group) == 0) - 1
        rank = rng.permutation(piece[-1] + 1)
        return shuffled[by_paper[np.argsort(rank[piece], kind="stable")]]
