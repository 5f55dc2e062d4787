"""What a reranker is trained on: prefetched candidates, and the lists of papers made of them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.files import atomic_write
from rerank.backends import batches
from rerank.pairs import PairReader
from rerank.settings import NegativesSettings, StepSettings
from retrieval.base import Retriever
from retrieval.vectors import SAY_EVERY

log = logging.getLogger(__name__)

DRAW, ORDER, CITED = 11, 12, 13
"""Keep the random numbers of different purposes apart where the seed is the same."""

PART = 512
"""Queries searched, and kept in a file, together."""


class Prefetched:
    """The papers of N queries, best first: row i is int32 [depth], -1 where fewer were found."""

    def __init__(self, files: list[Path]) -> None:
        """files: arrays [PART, depth] of the rows one after the other, the last with what is left."""
        self._parts = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return np.asarray(self._parts[row // PART][row % PART])

    def all(self) -> NDArray[np.int32]:
        """[N, depth], in memory"""
        return np.concatenate(self._parts) if self._parts else np.empty((0, 0), np.int32)


class Prefetcher:
    """What a retriever finds for training: searched once and kept; indexed only when a search is missing."""

    def __init__(
        self, retriever: Retriever, corpus: Corpus, folder: Path, index_dir: str | Path | None = None
    ) -> None:
        """folder: may be shared by trainings and retrievers. index_dir: of the retriever's index."""
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
        return hashlib.blake2b(text + np.ascontiguousarray(contexts).tobytes(), digest_size=10).hexdigest()

    def __call__(self, contexts: NDArray[np.int64], depth: int, what: str) -> Prefetched:
        """The best papers of contexts [N], never the citing one; what: how the log calls the contexts.

        InputError where the corpus has fewer candidates than `depth`.
        """
        pool = int(np.count_nonzero(self.corpus.is_candidate))
        if depth > pool:
            raise InputError(
                f"corpus {self.corpus.name} has {pool:,} candidates: {depth:,} of them cannot be prefetched "
                "for a query; set model.negatives.depth and model.validation.candidates to fewer"
            )
        folder = self.folder / self.key(contexts, depth)
        files = {start: folder / f"{start}.npy" for start in range(0, len(contexts), PART)}
        missing = [start for start, file in files.items() if not file.is_file()]
        if missing:
            self._open()
        begin = said = time.monotonic()
        for done, start in enumerate(missing, 1):
            found = self.retriever.search(contexts[start : start + PART], depth)
            with atomic_write(files[start]) as unfinished, unfinished.open("wb") as stream:
                np.save(stream, found.papers)
            now = time.monotonic()
            if now - said > SAY_EVERY:
                said, left = now, (now - begin) / done * (len(missing) - done)
                log.info(
                    f"prefetched {self.retriever.name}'s best {depth:,} for "
                    f"{min(start + PART, len(contexts)):,} of {len(contexts):,} {what}, {left:.0f} s left"
                )
        return Prefetched(list(files.values()))

    def _open(self) -> None:
        if not self._opened:
            self.retriever.open(self.corpus, self._index_dir)
            self._opened = True


class TrainingQuery(NamedTuple):
    """A row of the split, and its papers: cited, barred from negatives (the cited and the citing one), and
    prefetched, int32 [depth], best first, -1 where there are fewer."""

    row: int
    cited: NDArray[np.integer]
    barred: NDArray[np.integer]
    found: NDArray[np.int32]


Listed = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""Different papers [n], and which of them are cited."""


class ListStrategy(Protocol):
    """How the list of a query is made."""

    most: int
    """papers of a list at most"""
    wanted: tuple[str, int]
    """the setting that says how many papers there should be to choose from, and its value"""

    def choice(self, query: TrainingQuery) -> int:
        """How many papers there are to choose from; 0: the query has no list."""

    def listed(self, query: TrainingQuery, seed: int, epoch: int) -> Listed:
        """Always the same for the same arguments."""


class CitedAndNegatives:
    """A cited paper of the query, first, and negatives drawn from what was prefetched (lists=cited)."""

    def __init__(self, config: NegativesSettings) -> None:
        self.config, self.most = config, 1 + config.count
        self.wanted = "model.negatives.count", config.count

    def choice(self, query: TrainingQuery) -> int:
        return len(negative_places(self.config, query.found, query.barred))

    def listed(self, query: TrainingQuery, seed: int, epoch: int) -> Listed:
        cited = query.cited
        if len(cited) > 1:
            cited = np.random.default_rng((seed, CITED, epoch, query.row)).permutation(cited)
        drawn = draw_negatives(self.config, query.found, query.barred, seed, epoch, query.row)
        papers = np.append(cited[:1], drawn).astype(np.int64)
        return papers, np.arange(len(papers)) == 0


class TopPapers:
    """The first papers that were found, cited or not, as they are (lists=top)."""

    def __init__(self, depth: int) -> None:
        self.most, self.wanted = depth, ("model.negatives.depth", depth)

    def choice(self, query: TrainingQuery) -> int:
        return int(np.count_nonzero(query.found >= 0))

    def listed(self, query: TrainingQuery, seed: int, epoch: int) -> Listed:
        papers = query.found[query.found >= 0].astype(np.int64)
        return papers, np.isin(papers, query.cited)


def negative_places(
    config: NegativesSettings, ranked: NDArray[np.int32], barred: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Places of a ranking [depth] (-1: none) that negatives may come from: of no `barred` paper."""
    may = (ranked >= 0) & ~np.isin(ranked, barred)
    may[: config.skip] = False
    return np.flatnonzero(may)


def draw_negatives(
    config: NegativesSettings,
    ranked: NDArray[np.int32],
    barred: NDArray[np.integer],
    seed: int,
    epoch: int,
    query: int,
) -> NDArray[np.int32]:
    """`count` different papers of a ranking [depth] that are not `barred`, or as many as there are; the same
    for the same arguments."""
    places = negative_places(config, ranked, barred)
    keys = np.random.default_rng((seed, DRAW, epoch, query)).exponential(size=len(ranked))[places]
    return ranked[places[np.argsort(keys, kind="stable")[: config.count]]]


@dataclass(frozen=True)
class QueryOrder:
    """The queries of a whole training: rows [T] of the split, and the epoch of each [T]."""

    rows: NDArray[np.int64]
    epochs: NDArray[np.int64]

    @classmethod
    def sample(cls, rows: NDArray[np.int64], per_epoch: int, epochs: int, seed: int) -> QueryOrder:
        """`per_epoch` of the rows an epoch, all where there are fewer; none repeats before all were drawn."""
        size = min(per_epoch, len(rows))
        total = size * epochs
        passes = range(-(-total // max(len(rows), 1)))
        order = [np.random.default_rng((seed, ORDER, number)).permutation(rows) for number in passes]
        return cls(np.concatenate([*order, np.empty(0, np.int64)])[:total], np.arange(total) // max(size, 1))


@dataclass(frozen=True)
class ListBatch:
    """Q queries, each with up to n papers.

    there, relevant: bool [Q, n], which pairs exist, and are of a cited paper. chunks: input_ids,
    token_type_ids, attention_mask [b, L] of pairs of about equal length. place: int64 [pairs], where the
    pairs, in the order of the chunks, stand in the flattened [Q, n]. teacher: its logits [Q, n], NaN where
    there is no pair; None without a teacher.
    """

    there: Tensor
    relevant: Tensor
    chunks: list[tuple[Tensor, Tensor, Tensor]]
    place: Tensor
    teacher: Tensor | None = None


class TrainingLists(Dataset[ListBatch]):
    """The lists of all backward passes of a training. Item i is the same whatever was read before it."""

    def __init__(
        self,
        reader: PairReader,
        split: Split,
        queries: QueryOrder,
        prefetched: Prefetched,
        batch: StepSettings,
        listing: ListStrategy,
        seed: int,
    ) -> None:
        """prefetched: of the distinct rows of `queries` in ascending order. Queries with nothing to list are
        left out with a warning; InputError where those are all."""
        self.reader, self.split, self.batch = reader, split, batch
        self.listing, self.seed, self._prefetched = listing, seed, prefetched
        self._distinct = np.unique(queries.rows)
        self.rank, self.processes = 0, 1
        self._taught: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None
        left = np.array([listing.choice(self.query(row)) for row in self._distinct.tolist()])
        option, wanted = listing.wanted
        few, none = int(((left > 0) & (left < wanted)).sum()), int((left == 0).sum())
        if none == len(left):
            raise InputError(
                f"corpus {reader.corpus.name}: none of {len(left):,} training queries has a paper to "
                "draw negatives from; choose another retriever, or other model.negatives"
            )
        if few or none:
            log.warning(
                f"of {len(left):,} training queries, {few:,} have fewer than {option}={wanted} papers to draw"
                f" from, and {none:,} have none and are left out"
            )
        keep = (left > 0)[np.searchsorted(self._distinct, queries.rows)]
        self.queries = QueryOrder(queries.rows[keep], queries.epochs[keep])

    def __len__(self) -> int:
        whole = self.batch.queries * self.batch.accumulate
        return len(self.queries.rows) // whole * self.batch.accumulate  # steps are whole

    def __getitem__(self, item: int) -> ListBatch:
        size = self.batch.queries
        own = slice(item * size + self.rank, (item + 1) * size, self.processes)
        papers, relevant = self._listed(own)
        there = papers >= 0
        contexts = np.repeat(self.split.contexts[self.queries.rows[own]], there.sum(1))
        pairs = self.reader.pairs(contexts, papers[there])
        teacher = None
        if self._taught is not None:
            keys, logits = self._taught
            teacher = torch.full(papers.shape, torch.nan)
            at = np.searchsorted(keys, self._keys(contexts, papers[there]))
            teacher[torch.from_numpy(there)] = torch.from_numpy(logits[at])
        parts = list(batches(pairs.lengths, self.batch.tokens))
        place = np.flatnonzero(there)[np.concatenate(parts)]
        chunks = [pairs.padded(part) for part in parts]
        marks = torch.from_numpy(there), torch.from_numpy(relevant)
        return ListBatch(*marks, chunks, torch.from_numpy(place), teacher)

    def teach(self, logits: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]) -> None:
        """Have a teacher say what it makes of all pairs of the training: rows [N] of contexts and papers ->
        logits [N]."""
        papers, _ = self._listed(slice(None))
        there = papers >= 0
        contexts = np.repeat(self.split.contexts[self.queries.rows], there.sum(1))
        keys = np.unique(self._keys(contexts, papers[there]))
        self._taught = keys, logits(*np.divmod(keys, len(self.reader.corpus.paper_ids)))

    def _keys(self, contexts: NDArray[np.int64], papers: NDArray[np.int64]) -> NDArray[np.int64]:
        return contexts * len(self.reader.corpus.paper_ids) + papers

    def _listed(self, own: slice) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The papers [Q, n] of some of the queries, -1: none, and which of them are cited."""
        rows, epochs = self.queries.rows[own], self.queries.epochs[own]
        papers = np.full((len(rows), self.listing.most), -1, np.int64)
        relevant = np.zeros(papers.shape, np.bool_)
        for line, (row, epoch) in enumerate(zip(rows.tolist(), epochs.tolist(), strict=True)):
            listed, cited = self.listing.listed(self.query(row), self.seed, epoch)
            papers[line, : len(listed)], relevant[line, : len(listed)] = listed, cited
        return papers, relevant

    def cited_share(self) -> float:
        """The share of cited papers in the lists of the first epoch."""
        queries = map(self.query, np.unique(self.queries.rows).tolist())
        return float(
            np.concatenate([self.listing.listed(query, self.seed, 0)[1] for query in queries]).mean()
        )

    def query(self, row: int) -> TrainingQuery:
        """What is known of a row of the split that is among the queries."""
        cited, citing = self.split.positives[row], self.reader.corpus.citing[self.split.contexts[row]]
        found = self._prefetched[int(np.searchsorted(self._distinct, row))]
        return TrainingQuery(row, cited, np.append(cited, citing), found)


class RerankData(pl.LightningDataModule):
    """Lists in rounds of `every` steps: what lies between two validations is an epoch for Lightning."""

    def __init__(self, lists: TrainingLists, every: int, seed: int, workers: int = 0) -> None:
        super().__init__()
        self.lists, self.seed, self.workers = lists, seed, workers
        self.steps = len(lists) // lists.batch.accumulate
        if self.steps == 0:
            raise InputError(
                f"{len(lists.queries.rows):,} training queries do not fill a step "
                f"({lists.batch.queries * lists.batch.accumulate:,}); lower model.batch.queries or accumulate"
            )
        if workers > (os.cpu_count() or 1):
            raise InputError(f"model.workers={workers}: this machine has {os.cpu_count()} cores")
        self.every = min(every, self.steps)
        self.rounds = -(-self.steps // self.every)

    def setup(self, stage: str) -> None:
        assert self.trainer is not None
        self.lists.rank, self.lists.processes = self.trainer.global_rank, self.trainer.world_size

    def train_dataloader(self) -> DataLoader[ListBatch]:
        current = self.trainer.current_epoch if self.trainer is not None else 0
        size = self.every * self.lists.batch.accumulate
        items = range(current * size, min((current + 1) * size, len(self.lists)))
        own = torch.Generator().manual_seed(self.seed)  # or it would draw from torch's own numbers
        return DataLoader(Subset(self.lists, items), batch_size=None, num_workers=self.workers, generator=own)

    def transfer_batch_to_device(
        self, batch: ListBatch, device: torch.device, dataloader_idx: int
    ) -> ListBatch:
        chunks = [(ids.to(device), types.to(device), mask.to(device)) for ids, types, mask in batch.chunks]
        moved = {name: value.to(device) for name, value in vars(batch).items() if isinstance(value, Tensor)}
        return replace(batch, chunks=chunks, **moved)
