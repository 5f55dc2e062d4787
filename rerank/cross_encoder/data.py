"""Training data of rerankers: prefetched candidates, and the lists of papers built from them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from citerec.base.errors import InputError
from citerec.base.files import atomic_write
from citerec.datasets.corpus import Corpus, Split
from citerec.rerank.cross_encoder.backends import TOKENS, batches
from citerec.rerank.cross_encoder.field_pairs import LengthsReader
from citerec.rerank.cross_encoder.pairs import PairReader, TokenPairs
from citerec.rerank.settings import NegativesSettings, StepSettings
from citerec.retrieval.base import Retriever
from citerec.retrieval.encoders.nets import to_device
from citerec.retrieval.vectors import LOG_INTERVAL
from citerec.training.loop import RoundData, make_loader
from citerec.training.processes import WHOLE
from citerec.training.queries import DataSets, Siblings

log = logging.getLogger(__name__)

DRAW, ORDER, CITED, SIBLINGS, TEXTS = 11, 12, 13, 15, 16
"""Seeds that separate the random draws of different purposes."""

CANDIDATES = "candidates"
"""Folder of the prefetched papers, in the output folder of a run."""
SHARD = 512
"""Queries that are searched together and saved in one file."""


class Prefetched:
    """Prefetched papers of N queries: row i is int32 [depth], best first, padded with -1."""

    def __init__(self, files: list[Path]) -> None:
        """files: consecutive arrays [SHARD, depth]; the last one may have fewer rows."""
        self._shards = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return np.asarray(self._shards[row // SHARD][row % SHARD])

    def to_array(self) -> NDArray[np.int32]:
        """Load all rows into memory, [N, depth]."""
        return np.concatenate(self._shards) if self._shards else np.empty((0, 0), np.int32)


class Prefetcher:
    """Searches training queries once and caches the results; indexes only if a result is missing."""

    def __init__(
        self, retriever: Retriever, corpus: Corpus, folder: Path, index_dir: str | Path | None = None
    ) -> None:
        """folder: cache, may be shared by trainings and retrievers. index_dir: of the retriever's index."""
        self.retriever, self.corpus, self.folder, self._index_dir = retriever, corpus, folder, index_dir
        self._opened = False

    def covers(self, contexts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which contexts [N] the retriever can rank papers for: a run has only some."""
        if self.retriever.partial:
            self._open()
        return self.retriever.covers(contexts)

    def key(self, contexts: NDArray[np.int64], depth: int, own: OwnPapers | None = None) -> str:
        """Return the cache key: a hash of corpus, retriever, contexts, depth and papers searched."""
        search = {"retriever": self.retriever.name, "corpus": self.corpus.fingerprint, "depth": depth}
        query_settings = self.retriever.query_settings()
        parts = [search, self.retriever.settings(), *([query_settings] if query_settings else [])]
        text = json.dumps(parts, sort_keys=True).encode()
        if own is not None:
            text += own.of_queries.tobytes() + own.of_papers.tobytes()
        return hashlib.blake2b(text + np.ascontiguousarray(contexts).tobytes(), digest_size=10).hexdigest()

    def __call__(
        self, contexts: NDArray[np.int64], depth: int, what: str, own: OwnPapers | None = None
    ) -> Prefetched:
        """Prefetch the top papers of contexts [N], without the citing paper; what: their name in the log;
        own: the papers to search for each, by default all candidates.

        Raises InputError if the corpus has fewer candidates than `depth`.
        """
        pool = int(np.count_nonzero(self.corpus.is_candidate))
        if depth > pool:
            raise InputError(
                f"corpus {self.corpus.name} has {pool:,} candidates, cannot prefetch {depth:,} per query; "
                "lower model.negatives.depth and model.validation.candidates"
            )
        folder = self.folder / self.key(contexts, depth, own)
        files = {start: folder / f"{start}.npy" for start in range(0, len(contexts), SHARD)}
        missing = [start for start, file in files.items() if not file.is_file()]
        if missing:
            self._open()
        begin = logged = time.monotonic()
        for done, start in enumerate(missing, 1):
            papers = self._search(contexts[start : start + SHARD], depth, own and own.take(start, SHARD))
            with atomic_write(files[start]) as unfinished, unfinished.open("wb") as stream:
                np.save(stream, papers)
            now = time.monotonic()
            if now - logged > LOG_INTERVAL:
                logged, left = now, (now - begin) / done * (len(missing) - done)
                log.info(
                    f"prefetched the top {depth:,} of {self.retriever.name} for "
                    f"{min(start + SHARD, len(contexts)):,} of {len(contexts):,} {what}, {left:.0f} s left"
                )
        return Prefetched(list(files.values()))

    def _search(self, contexts: NDArray[np.int64], depth: int, own: OwnPapers | None) -> NDArray[np.int32]:
        if own is None:
            return self.retriever.search(contexts, depth).papers
        papers = np.full((len(contexts), depth), -1, np.int32)
        for number in np.unique(own.of_queries):
            rows, allowed = own.of_queries == number, own.of_papers == number
            papers[rows] = self.retriever.search_allowed(
                contexts[rows], depth, allowed & self.corpus.is_candidate
            ).papers
        return papers

    def _open(self) -> None:
        if not self._opened:
            self.retriever.open(self.corpus, self._index_dir)
            self._opened = True


class OwnPapers(NamedTuple):
    """The number of the data set of each query [N] and of each paper of the corpus [P]."""

    of_queries: NDArray[np.int64]
    of_papers: NDArray[np.int64]

    def take(self, start: int, size: int) -> OwnPapers:
        return OwnPapers(self.of_queries[start : start + size], self.of_papers)


class TrainingQuery(NamedTuple):
    """A row of the split with its cited papers, the papers excluded from its negatives (cited and citing),
    and its prefetched papers, int32 [depth], best first, padded with -1."""

    row: int
    cited: NDArray[np.integer]
    excluded: NDArray[np.integer]
    prefetched: NDArray[np.int32]


LabelledPapers = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""Distinct papers [n], and which of them are cited."""


class ListStrategy(Protocol):
    """Rules by which the list of a query is built."""

    max_papers: int
    """maximum papers per list"""
    wanted: tuple[str, int]
    """the setting with the number of papers wanted per query, and its value"""

    def count_choices(self, query: TrainingQuery) -> int:
        """Count the papers to choose from; without any, the query has no list."""

    def build(self, query: TrainingQuery, seed: int, epoch: int) -> LabelledPapers:
        """Build the list, always the same for the same arguments."""


class CitedAndNegatives:
    """One cited paper, first, and negatives from the prefetched papers and its siblings (lists=cited)."""

    def __init__(self, config: NegativesSettings, siblings: Siblings | None = None) -> None:
        """siblings: of the split's queries; needed for config.siblings and sibling_lists."""
        self.config, self.siblings = config, siblings if config.has_siblings else None
        self.negatives = config.count + config.siblings
        self.max_papers = 1 + self.negatives
        self.wanted = "model.negatives.count", config.count

    def count_choices(self, query: TrainingQuery) -> int:
        return len(negative_positions(query.prefetched, query.excluded))

    def build(self, query: TrainingQuery, seed: int, epoch: int) -> LabelledPapers:
        cited, excluded, siblings = query.cited, query.excluded, np.empty(0, np.int32)
        if len(cited) > 1:
            cited = np.random.default_rng((seed, CITED, epoch, query.row)).permutation(cited)
        if self.siblings is not None:
            rng = np.random.default_rng((seed, SIBLINGS, epoch, query.row))
            only = rng.random() < self.config.sibling_lists
            wanted = self.negatives if only else self.config.siblings
            siblings = self.siblings.draw(query.row, wanted, rng)
            excluded = np.append(excluded, siblings)
        count = self.negatives - len(siblings)
        drawn = draw_negatives(self.config, query.prefetched, excluded, seed, epoch, query.row, count)
        papers = np.concatenate([cited[:1], drawn, siblings]).astype(np.int64)
        return papers, np.arange(len(papers)) == 0


class TopPapers:
    """The top prefetched papers in their order, cited or not (lists=top)."""

    def __init__(self, config: NegativesSettings) -> None:
        self.max_papers = config.depth
        self.wanted = "model.negatives.depth", config.depth

    def count_choices(self, query: TrainingQuery) -> int:
        return int(np.count_nonzero(query.prefetched >= 0))

    def build(self, query: TrainingQuery, seed: int, epoch: int) -> LabelledPapers:
        papers = query.prefetched[query.prefetched >= 0].astype(np.int64)
        return papers, np.isin(papers, query.cited)


def negative_positions(ranked: NDArray[np.int32], excluded: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the positions in a ranking [depth] (-1: none) of possible negatives, without excluded papers."""
    return np.flatnonzero((ranked >= 0) & ~np.isin(ranked, excluded))


def draw_negatives(
    config: NegativesSettings,
    ranked: NDArray[np.int32],
    excluded: NDArray[np.integer],
    seed: int,
    epoch: int,
    query: int,
    count: int | None = None,
) -> NDArray[np.int32]:
    """Sample up to `count` (by default the configured one) distinct papers of a ranking [depth] that are not
    excluded; deterministic."""
    positions = negative_positions(ranked, excluded)
    keys = np.random.default_rng((seed, DRAW, epoch, query)).exponential(size=len(ranked))[positions]
    if config.skew:  # the smallest of exponential keys over weights: Efraimidis and Spirakis 2006
        keys *= (positions + 1.0) ** config.skew
    return ranked[positions[np.argsort(keys, kind="stable")[: config.count if count is None else count]]]


@dataclass(frozen=True)
class QueryOrder:
    """The queries of a training run: rows [T] of the split, and the epoch of each [T]."""

    rows: NDArray[np.int64]
    epochs: NDArray[np.int64]

    @classmethod
    def sample(
        cls, rows: NDArray[np.int64], per_epoch: int, epochs: int, seed: int, sets: DataSets | None = None
    ) -> QueryOrder:
        """Sample up to `per_epoch` rows per epoch; no row of a data set repeats before all others were drawn.

        sets: of the split's queries; None: one.
        """
        size = min(per_epoch, len(rows))
        if size == 0:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        sets = sets or DataSets((rows,))
        drawn = [sets.draw(rows, size, epoch, (seed, ORDER)) for epoch in range(epochs)]
        return cls(np.concatenate(drawn), np.arange(size * epochs) // size)


@dataclass(frozen=True)
class ListBatch:
    """Q queries, each with up to n papers.

    mask: bool [Q, n], False for padding; relevant: bool [Q, n], True for cited papers. chunks: input_ids,
    token_type_ids, attention_mask [b, L] of pairs of similar length. positions: int64 [pairs], positions of
    the pairs, in the order of the chunks, in the flattened [Q, n]. teacher: its logits [Q, n], NaN for
    padding; None without a teacher.
    """

    mask: Tensor
    relevant: Tensor
    chunks: list[tuple[Tensor, Tensor, Tensor]]
    positions: Tensor
    teacher: Tensor | None = None


class TrainingLists(Dataset[ListBatch]):
    """The lists of all backward passes of a training run. Item i does not depend on earlier reads."""

    def __init__(
        self,
        reader: PairReader,
        split: Split,
        queries: QueryOrder,
        prefetched: Prefetched,
        batch: StepSettings,
        strategy: ListStrategy,
        seed: int,
    ) -> None:
        """prefetched: papers of the distinct rows of `queries`, in ascending order.

        Queries without candidates are skipped with a warning. Raises InputError if none is left.
        """
        self.reader, self.split, self.batch = reader, split, batch
        self.strategy, self.seed, self._prefetched = strategy, seed, prefetched
        self._distinct = np.unique(queries.rows)
        self.share = WHOLE
        self._teacher_logits: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None
        choices = np.array([strategy.count_choices(self.query(row)) for row in self._distinct.tolist()])
        option, wanted = strategy.wanted
        few, none = int(((choices > 0) & (choices < wanted)).sum()), int((choices == 0).sum())
        if none == len(choices):
            raise InputError(
                f"corpus {reader.corpus.name}: none of {len(choices):,} training queries has candidates for "
                "its list; choose another retriever or change model.negatives"
            )
        if few or none:
            log.warning(
                f"of {len(choices):,} training queries, {few:,} have fewer candidates than {option}="
                f"{wanted}; {none:,} have none and are skipped"
            )
        keep = (choices > 0)[np.searchsorted(self._distinct, queries.rows)]
        self.queries = QueryOrder(queries.rows[keep], queries.epochs[keep])

    def __len__(self) -> int:
        step = self.batch.queries * self.batch.accumulate
        return len(self.queries.rows) // step * self.batch.accumulate  # full steps only

    def __getitem__(self, item: int) -> ListBatch:
        size = self.batch.queries
        own = self.share.part(size)
        items = slice(item * size + own.start, item * size + own.stop)
        papers, relevant = self._build(items)
        mask = papers >= 0
        contexts = np.repeat(self.split.contexts[self.queries.rows[items]], mask.sum(1))
        pairs = self._pairs(items, contexts, papers, mask)
        teacher = None
        if self._teacher_logits is not None:
            keys, logits = self._teacher_logits
            teacher = torch.full(papers.shape, torch.nan)
            places = np.searchsorted(keys, self._keys(contexts, papers[mask]))
            teacher[torch.from_numpy(mask)] = torch.from_numpy(logits[places])
        parts = list(batches(pairs.lengths, self.batch.tokens or TOKENS))
        positions = np.flatnonzero(mask)[np.concatenate(parts)]
        chunks = [pairs.padded(part) for part in parts]
        marks = torch.from_numpy(mask), torch.from_numpy(relevant)
        return ListBatch(*marks, chunks, torch.from_numpy(positions), teacher)

    def _pairs(
        self, items: slice, contexts: NDArray[np.int64], papers: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> TokenPairs:
        """The pairs of lists, papers [Q, n], without the titles and abstracts that are left out."""
        if not self.batch.varies_texts:
            return self.reader.pairs(contexts, papers[mask])
        assert isinstance(self.reader, LengthsReader)
        titles, abstracts = np.empty(papers.shape, np.bool_), np.empty(papers.shape, np.bool_)
        draws = zip(self.queries.epochs[items].tolist(), self.queries.rows[items].tolist(), strict=True)
        for number, (epoch, row) in enumerate(draws):
            rng = np.random.default_rng((self.seed, TEXTS, epoch, row))
            titles[number] = rng.random() < self.batch.titles
            abstracts[number] = rng.random(papers.shape[1]) < rng.choice(self.batch.abstracts)
        return self.reader.pairs(contexts, papers[mask], titles[mask], abstracts[mask])

    def add_teacher(
        self, logits: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
    ) -> None:
        """Score all pairs of the training with a teacher: rows [N] of contexts and papers -> logits [N]."""
        papers, _ = self._build(slice(None))
        mask = papers >= 0
        contexts = np.repeat(self.split.contexts[self.queries.rows], mask.sum(1))
        keys = np.unique(self._keys(contexts, papers[mask]))
        self._teacher_logits = keys, logits(*np.divmod(keys, len(self.reader.corpus.paper_ids)))

    def _keys(self, contexts: NDArray[np.int64], papers: NDArray[np.int64]) -> NDArray[np.int64]:
        return contexts * len(self.reader.corpus.paper_ids) + papers

    def _build(self, items: slice) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Build the lists of some queries: papers [Q, n], -1 for padding, and which of them are cited."""
        rows, epochs = self.queries.rows[items], self.queries.epochs[items]
        papers = np.full((len(rows), self.strategy.max_papers), -1, np.int64)
        relevant = np.zeros(papers.shape, np.bool_)
        for i, (row, epoch) in enumerate(zip(rows.tolist(), epochs.tolist(), strict=True)):
            chosen, cited = self.strategy.build(self.query(row), self.seed, epoch)
            papers[i, : len(chosen)], relevant[i, : len(chosen)] = chosen, cited
        return papers, relevant

    def cited_share(self) -> float:
        """Return the share of cited papers in the lists of the first epoch."""
        queries = map(self.query, np.unique(self.queries.rows).tolist())
        return float(
            np.concatenate([self.strategy.build(query, self.seed, 0)[1] for query in queries]).mean()
        )

    def query(self, row: int) -> TrainingQuery:
        """Return the papers of a row of the split; the row must be among the queries."""
        cited, citing = self.split.positives[row], self.reader.corpus.citing[self.split.contexts[row]]
        prefetched = self._prefetched[int(np.searchsorted(self._distinct, row))]
        return TrainingQuery(row, cited, np.append(cited, citing), prefetched)


class RerankData(RoundData):
    """Lists in rounds of `every` steps. A round, between two validations, is an epoch for Lightning."""

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
        super().setup(stage)
        self.lists.share = self.share

    def train_dataloader(self) -> DataLoader[ListBatch]:
        current = self.trainer.current_epoch if self.trainer is not None else 0
        size = self.every * self.lists.batch.accumulate
        items = range(current * size, min((current + 1) * size, len(self.lists)))
        return make_loader(Subset(self.lists, items), self.workers, self.seed, self.first_batch())

    def transfer_batch_to_device(
        self, batch: ListBatch, device: torch.device, dataloader_idx: int
    ) -> ListBatch:
        return to_device(batch, device)
