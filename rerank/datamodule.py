"""What the training of a reranker reads: queries, each with a list of papers, step after step."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from datasets.errors import InputError
from datasets.store import Corpus, Split
from hatten.options import at_least_1
from rerank.batching import batches
from rerank.negatives import Listing, Query
from rerank.pairs import PairReader
from rerank.prefetching import Prefetched

log = logging.getLogger(__name__)

ORDER = 12
"""Keeps these random numbers apart from others of the same seed."""


@dataclass(frozen=True)
class BatchConfig:
    """What a step of the optimiser is made of."""

    queries: int = 1
    """of a backward pass, over all processes"""
    accumulate: int = 1
    """backward passes of a step"""
    tokens: int = 4096
    """of pairs of about equal length that go through the net together, after padding"""

    def __post_init__(self) -> None:
        at_least_1(self, "model.batch", "queries", "accumulate", "tokens")

    def share(self, processes: int) -> int:
        """Queries of a backward pass in each process; InputError where they cannot be divided."""
        if self.queries % processes:
            raise InputError(
                f"model.batch.queries={self.queries}: cannot be divided among {processes} processes; "
                f"set it to a multiple of {processes}"
            )
        return self.queries // processes


@dataclass(frozen=True)
class Queries:
    """Queries of a whole training in their order: rows [T] of the split, and the epoch of each [T]."""

    rows: NDArray[np.int64]
    epochs: NDArray[np.int64]

    @classmethod
    def sample(cls, rows: NDArray[np.int64], per_epoch: int, epochs: int, seed: int) -> Queries:
        """`per_epoch` of the given rows an epoch, or all where there are fewer; none comes again before all
        have been there."""
        size = min(per_epoch, len(rows))
        total, passes = size * epochs, -(-size * epochs // max(len(rows), 1))
        generators = (np.random.default_rng((seed, ORDER, number)) for number in range(passes))
        order = np.concatenate([*(one.permutation(rows) for one in generators), np.empty(0, np.int64)])[
            :total
        ]
        return cls(order, np.arange(total) // max(size, 1))


@dataclass(frozen=True)
class Lists:
    """Q queries, each with up to n papers.

    there, relevant: bool [Q, n], which pairs are there, and are of a cited paper. chunks: input_ids,
    token_type_ids, attention_mask [b, L] of pairs of about equal length. place: int64 [pairs], of the pairs
    as they come in the chunks, in the flattened [Q, n].
    """

    there: Tensor
    relevant: Tensor
    chunks: list[tuple[Tensor, Tensor, Tensor]]
    place: Tensor


class TrainingLists(Dataset[Lists]):
    """The lists of all backward passes of a training. Item i is the same whatever was read before it."""

    def __init__(
        self,
        reader: PairReader,
        split: Split,
        queries: Queries,
        prefetched: Prefetched,
        batch: BatchConfig,
        listing: Listing,
        seed: int,
    ) -> None:
        """prefetched: of the distinct rows of `queries` in ascending order. Queries with nothing to list are
        left out with a warning; InputError where that are all."""
        self.reader, self.split, self.batch = reader, split, batch
        self.listing, self.seed, self._prefetched = listing, seed, prefetched
        self._distinct = np.unique(queries.rows)
        self.rank, self.processes = 0, 1
        self.queries = self._listed(queries, reader.corpus)

    def __len__(self) -> int:
        whole = self.batch.queries * self.batch.accumulate
        return len(self.queries.rows) // whole * self.batch.accumulate  # steps are whole

    def __getitem__(self, item: int) -> Lists:
        size = self.batch.queries
        own = slice(item * size + self.rank, (item + 1) * size, self.processes)
        rows, epochs = self.queries.rows[own], self.queries.epochs[own]
        papers = np.full((len(rows), self.listing.most), -1, np.int64)
        relevant = np.zeros(papers.shape, np.bool_)
        for line, (row, epoch) in enumerate(zip(rows.tolist(), epochs.tolist(), strict=True)):
            listed, cited = self.listing.listed(self.query(row), self.seed, epoch)
            papers[line, : len(listed)], relevant[line, : len(listed)] = listed, cited
        there = papers >= 0
        contexts = np.repeat(self.split.contexts[rows], there.sum(1))
        pairs = self.reader.pairs(contexts, papers[there])
        parts = list(batches(pairs.lengths, self.batch.tokens))
        place = np.flatnonzero(there)[np.concatenate(parts)]
        chunks = [pairs.padded(part) for part in parts]
        return Lists(torch.from_numpy(there), torch.from_numpy(relevant), chunks, torch.from_numpy(place))

    def cited_share(self) -> float:
        """The share of cited papers in the lists of the first epoch."""
        lists = (
            self.listing.listed(self.query(row), self.seed, 0)[1]
            for row in np.unique(self.queries.rows).tolist()
        )
        return float(np.concatenate(list(lists)).mean())

    def query(self, row: int) -> Query:
        """What is known of a row of the split that is among the queries."""
        found = self._prefetched[int(np.searchsorted(self._distinct, row))]
        citing = int(self.reader.corpus.citing[self.split.contexts[row]])
        return Query(row, self.split.positives[row], citing, found)

    def _listed(self, queries: Queries, corpus: Corpus) -> Queries:
        left = np.array([self.listing.choice(self.query(row)) for row in self._distinct.tolist()])
        option, wanted = self.listing.wanted
        few, none = int(((left > 0) & (left < wanted)).sum()), int((left == 0).sum())
        if none == len(left):
            raise InputError(
                f"corpus {corpus.name}: for none of {len(left):,} training queries is there a paper to draw "
                "negatives from; choose another retriever, or other model.negatives"
            )
        if few or none:
            log.warning(
                f"of {len(left):,} training queries, {few:,} have fewer than {option}={wanted} papers to draw"
                f" from, and {none:,} have none and are left out"
            )
        keep = (left > 0)[np.searchsorted(self._distinct, queries.rows)]
        return Queries(queries.rows[keep], queries.epochs[keep])


class RerankData(pl.LightningDataModule):
    """Lists in rounds of `every` steps: what lies between two validations is an epoch for Lightning."""

    def __init__(self, lists: TrainingLists, every: int, seed: int, workers: int = 0) -> None:
        """workers: processes that read ahead."""
        super().__init__()
        self.lists, self.seed, self.workers = lists, seed, workers
        self.steps = len(lists) // lists.batch.accumulate
        if self.steps == 0:
            raise InputError(
                f"{len(lists.queries.rows):,} training queries are fewer than a step takes "
                f"({lists.batch.queries * lists.batch.accumulate:,}); lower model.batch.queries or accumulate"
            )
        if workers > (os.cpu_count() or 1):
            raise InputError(f"model.workers={workers}: this machine has {os.cpu_count()} cores")
        self.every = min(every, self.steps)
        self.rounds = -(-self.steps // self.every)

    def setup(self, stage: str) -> None:
        assert self.trainer is not None
        self.lists.rank, self.lists.processes = self.trainer.global_rank, self.trainer.world_size

    def train_dataloader(self) -> DataLoader[Lists]:
        current = self.trainer.current_epoch if self.trainer is not None else 0
        size = self.every * self.lists.batch.accumulate
        items = range(current * size, min((current + 1) * size, len(self.lists)))
        own = torch.Generator().manual_seed(self.seed)  # or it would draw of torch's own numbers
        return DataLoader(
            torch.utils.data.Subset(self.lists, items),
            batch_size=None,
            shuffle=False,
            num_workers=self.workers,
            generator=own,
        )

    def transfer_batch_to_device(self, batch: Lists, device: torch.device, dataloader_idx: int) -> Lists:
        chunks = [tuple(part.to(device) for part in chunk) for chunk in batch.chunks]
        return replace(
            batch,
            there=batch.there.to(device),
            relevant=batch.relevant.to(device),
            chunks=chunks,  # type: ignore[arg-type]
            place=batch.place.to(device),
        )
