"""What the training of a reranker reads: queries, each with a list of papers, step after step.

The papers that training queries are shown with, of what a retriever ranks high.
What a retriever finds for the queries of a training, fetched once and kept on the disk.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.files import written_whole
from rerank.backends import batches
from rerank.pairs import PairReader
from retrieval.base import Retriever
from retrieval.vectors import SAY_EVERY
from training.settings import at_least_1

DRAW, CITED = 11, 13
"""Keep these random numbers apart from others of the same seed."""


class Query(NamedTuple):
    """A training query: its row in the split, the papers cited there, the paper that it stands in, and what
    was found for it, int32 [depth], best first, -1 where there are fewer."""

    row: int
    cited: NDArray[np.integer]
    citing: int
    found: NDArray[np.int32]


class Listing(Protocol):
    """How the list of a query is made."""

    @property
    def most(self) -> int:
        """Papers of a list at most."""

    def choice(self, query: Query) -> int:
        """How many papers there are to list, or to draw negatives from; none: the query has no list."""

    def listed(self, query: Query, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Different papers [n], and which of them are cited; the same whenever it is asked for."""

    @property
    def wanted(self) -> tuple[str, int]:
        """The option that says how large a choice there should be, and its value."""


@dataclass(frozen=True)
class NegativesConfig:
    """Which of a query's prefetched papers it is shown as not cited."""

    count: int = 62
    """papers a query; fewer where fewer are left to draw from"""
    depth: int = 2000
    """papers prefetched for a query"""
    skip: int = 0
    """of those, the best that are left out"""
    weighting: str = "uniform"
    """uniform, or reciprocal: the paper at rank r (from 1) is drawn in proportion to 1 / r"""

    def __post_init__(self) -> None:
        at_least_1(self, "model.negatives", "count", "depth")
        if self.skip >= self.depth:
            raise InputError(
                f"model.negatives.skip={self.skip}: nothing is left of depth={self.depth}; skip fewer"
            )
        if self.weighting not in ("uniform", "reciprocal"):
            raise InputError(
                f"model.negatives.weighting={self.weighting}: choose uniform or reciprocal (1 / rank)"
            )

    @property
    def most(self) -> int:
        return 1 + self.count

    @property
    def wanted(self) -> tuple[str, int]:
        return "model.negatives.count", self.count

    def choice(self, query: Query) -> int:
        return int(np.count_nonzero(self.left(query.found, np.append(query.cited, query.citing))))

    def listed(self, query: Query, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """One of the cited papers, the first, and its negatives."""
        cited = query.cited
        if len(cited) > 1:
            cited = np.random.default_rng((seed, CITED, epoch, query.row)).permutation(cited)
        drawn = self.draw(query.found, np.append(query.cited, query.citing), seed, epoch, query.row)
        papers = np.append(cited[:1], drawn).astype(np.int64)
        return papers, np.arange(len(papers)) == 0

    def left(self, ranked: NDArray[np.int32], barred: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Places of a ranking [depth] (-1: none) that negatives may come from: none of the `barred`."""
        left = (ranked >= 0) & ~np.isin(ranked, barred)
        left[: self.skip] = False
        return left

    def draw(
        self,
        ranked: NDArray[np.int32],
        barred: NDArray[np.integer],
        seed: int,
        epoch: int,
        query: int,
    ) -> NDArray[np.int32]:
        """Different papers for a query, `count` or as many as there are; the same whenever it is asked for.

        ranked: [depth] rows of the corpus, best first, -1 where there are fewer. barred: the papers cited at
        the context, and the citing one.
        """
        places = np.flatnonzero(self.left(ranked, barred))
        rng = np.random.default_rng((seed, DRAW, epoch, query))
        # The least of exponential times, each of its own rate: draws in proportion without putting back.
        times = rng.exponential(size=len(ranked))[places]
        if self.weighting == "reciprocal":
            times *= places + 1
        return ranked[places[np.argsort(times, kind="stable")[: self.count]]]


@dataclass(frozen=True)
class TopPapers:
    """The first `depth` papers that were found, cited or not: most are not, and nothing is balanced."""

    depth: int = 10

    @property
    def most(self) -> int:
        return self.depth

    @property
    def wanted(self) -> tuple[str, int]:
        return "model.negatives.depth", self.depth

    def choice(self, query: Query) -> int:
        return int(np.count_nonzero(query.found >= 0))

    def listed(self, query: Query, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        papers = query.found[query.found >= 0].astype(np.int64)
        return papers, np.isin(papers, query.cited)


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
        """Which contexts [N] the retriever can rank papers for: not all where it is a run."""
        if self.retriever.partial:
            self._open()
        return self.retriever.knows(contexts)

    def key(self, contexts: NDArray[np.int64], depth: int) -> str:
        """The name of what is found: a hash of corpus, retriever, contexts and depth."""
        about = {"retriever": self.retriever.name, "corpus": self.corpus.fingerprint, "depth": depth}
        asking = self.retriever.query_settings()
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
