"""Training batches: queries with cited, mined and random papers, drawn from (seed, round, step) alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from datasets.corpus import Split
from datasets.errors import InputError
from datasets.records import TRAIN
from hatten.losses import CITED, EXCLUDED, OTHER, OTHER_QUERY, RELEVANT
from hatten.mining import Pool
from hatten.settings import EncoderBatchSettings
from retrieval.vectors import Reader


@dataclass(frozen=True)
class Batch:
    """Q queries, N distinct papers (first those that are cited) and the level of each paper to each query.

    Documents are what the reader gives.
    """

    queries: Any
    cited: Any
    others: Any
    other_rows: NDArray[np.int64]
    """rows of `others` in the corpus"""
    levels: NDArray[np.int64]
    """[Q, N]"""
    log_rate: NDArray[np.float32]
    """[N] logarithm of how often a paper comes into a batch as another query's cited paper or by random draw
    (at most once); of mined papers also by the draw from their query's pool"""


def steps_per_round(config: EncoderBatchSettings, contexts: int) -> int:
    """Batches in a round over so many training contexts."""
    return config.steps_per_round or -(-contexts // config.queries)


class Batches(Dataset[Batch]):
    """The batches of one round. Item i is the same whatever was read before it."""

    def __init__(
        self,
        reader: Reader,
        split: Split,
        pool: Pool | None,
        config: EncoderBatchSettings,
        seed: int,
        round: int,
    ) -> None:
        self.reader, self.split, self.pool, self.config = reader, split, pool, config
        self.seed, self.round = seed, round
        self.candidates = np.flatnonzero(reader.corpus.is_candidate)
        self.order = self._order()
        times_cited = np.bincount(split.positives.values, minlength=len(reader.corpus.paper_ids))
        self.rate = times_cited * (config.queries / max(len(split.positives.values), 1))
        self.rate[self.candidates] += config.random * config.queries / max(len(self.candidates), 1)

    def __len__(self) -> int:
        return steps_per_round(self.config, len(self.split))

    def __getitem__(self, step: int) -> Batch:
        queries = self.rows(step)
        contexts = self.split.contexts[queries]
        citing = self.reader.corpus.citing[contexts]
        cited = self.split.positives.take(queries)
        rng = np.random.default_rng((self.seed, self.round, step))
        random = rng.choice(self.candidates, (len(queries), self.config.random))
        extra = [(random, np.full(random.shape, OTHER))]
        if self.pool is not None and self.config.mined:
            mined, relevant = self.pool.draw(queries, self.config.mined, rng)
            extra.append((mined, np.where(relevant, RELEVANT, OTHER)))
        drawn = np.concatenate([papers.ravel() for papers, _ in extra]).astype(np.int64)
        first = np.unique(cited.values).astype(np.int64)
        others = np.setdiff1d(drawn[drawn >= 0], first)
        papers = np.concatenate([first, others])
        sorter = np.argsort(papers)

        def column(of: NDArray[np.integer]) -> NDArray[np.int64]:
            return sorter[np.searchsorted(papers, of, sorter=sorter)]

        levels = np.full((len(queries), len(papers)), OTHER_QUERY)
        rows = np.arange(len(queries))[:, None]
        for found, level in extra:
            there = found >= 0
            levels[np.broadcast_to(rows, found.shape)[there], column(found[there])] = level[there]
        owner = np.repeat(np.arange(len(queries)), cited.lengths)
        levels[papers[None] == citing[:, None]] = EXCLUDED
        levels[owner, column(cited.values)] = CITED
        rate = self.rate[papers]
        if self.pool is not None and self.config.mined:
            rate[np.isin(papers, mined)] += self.config.mined / self.pool.papers.shape[1]
        log_rate = np.log(np.clip(rate, 1e-12, 1.0))
        read = self.reader
        return Batch(
            read.queries(contexts),
            read.papers(first),
            read.papers(others),
            others,
            levels,
            log_rate.astype("f4"),
        )

    def rows(self, step: int) -> NDArray[np.int64]:
        """Rows of the split that are a step's queries."""
        size = self.config.queries
        return self.order[step * size : (step + 1) * size]

    def _order(self) -> NDArray[np.int64]:
        """Queries of this round, rows of the split: passes over all of them are cut into rounds.

        Where the pool has but a sample of them, the round is passes over that sample.
        """
        size = self.config.queries * len(self)
        first = self.round * size
        parts, start = [], first - first % len(self.split)
        while start < first + size:
            rng = np.random.default_rng((self.seed, 1, start // len(self.split)))
            parts.append(self._one_pass(rng.permutation(len(self.split)), rng))
            start += len(self.split)
        order = np.concatenate(parts)[first % len(self.split) :][:size]
        if self.pool is None or (self.pool.row[order] >= 0).all():
            return order
        sampled, parts = np.flatnonzero(self.pool.row >= 0), []
        for number in range(-(-size // len(sampled))):
            rng = np.random.default_rng((self.seed, 4, self.round, number))
            parts.append(self._one_pass(rng.permutation(sampled), rng))
        return np.concatenate(parts)[:size]

    def _one_pass(self, shuffled: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Every query once, in groups of contexts of one citing paper."""
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


class TrainingData(pl.LightningDataModule):
    """Batches of the training split. The trainer asks for a new loader each round.

    about: what weights depend on beside the configuration, as plain values; a resumed run must have the same.
    """

    def __init__(
        self,
        reader: Reader,
        batch: EncoderBatchSettings,
        seed: int,
        workers: int = 0,
    ) -> None:
        """workers: processes that read ahead; a batch takes milliseconds, so 0 is right on few cores."""
        super().__init__()
        self.reader, self.batch, self.seed, self.workers = reader, batch, seed, workers
        self.corpus = corpus = reader.corpus
        self.split = corpus.split(TRAIN)
        if len(self.split) == 0:
            raise InputError(f"corpus {corpus.name}: its train split is empty, there is nothing to train on")
        if workers > (os.cpu_count() or 1):
            raise InputError(f"model.workers={workers}: this machine has {os.cpu_count()} cores")
        self.pool: Pool | None = None
        self.about: dict[str, Any] = {}

    def train_dataloader(self) -> DataLoader[Batch]:
        current = self.trainer.current_epoch if self.trainer is not None else 0
        batches = self._batches(current)
        # An iterator draws a seed for its workers, and Lightning makes that of a run's first round at another
        # time than later ones: drawn from torch's own numbers it would shift the dropout of a resumed round.
        own = torch.Generator().manual_seed(self.seed)
        return DataLoader(batches, batch_size=None, shuffle=False, num_workers=self.workers, generator=own)

    def queries_of(self, round: int) -> NDArray[np.int64]:
        """Rows of the split to mine a round's sample from, ascending; all if it is a pass or more."""
        if steps_per_round(self.batch, len(self.split)) * self.batch.queries >= len(self.split):
            return np.arange(len(self.split))
        # Without the pool, which is that of the round before.
        return np.unique(Batches(self.reader, self.split, None, self.batch, self.seed, round).order)

    def _batches(self, round: int) -> Batches:
        return Batches(self.reader, self.split, self.pool, self.batch, self.seed, round)

    def transfer_batch_to_device(self, batch: Batch, device: object, dataloader_idx: int) -> Batch:
        return batch  # the encoder moves what it needs
