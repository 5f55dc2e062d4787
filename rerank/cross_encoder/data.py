"""Training data of rerankers: prefetched candidates, and the lists of papers built from them."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from citerec.base.errors import InputError
from citerec.base.files import atomic_write
from citerec.base.progress import count_progress
from citerec.datasets.corpus import Corpus, Split
from citerec.rerank.cross_encoder.backends import TOKENS, batches
from citerec.rerank.cross_encoder.pairs import LengthsReader, PairReader, TokenPairs
from citerec.rerank.settings import NegativesSettings, StepSettings
from citerec.retrieval.arrays import Rows
from citerec.retrieval.base import Retriever
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
OwnPapers = tuple[DataSets, Rows]
"""The data sets of a split's queries, and the rows [N] of the queries to search for."""


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

    def key(self, contexts: Rows, depth: int, own: OwnPapers | None = None) -> str:
        """Return the cache key: a hash of corpus, retriever, contexts, depth and papers searched."""
        search = {"retriever": self.retriever.name, "corpus": self.corpus.fingerprint, "depth": depth}
        query_settings = self.retriever.query_settings()
        parts = [search, self.retriever.settings(), *([query_settings] if query_settings else [])]
        text = json.dumps(parts, sort_keys=True).encode()
        if own is not None and own[0].papers is not None:
            text += own[0].numbers(own[1]).tobytes() + own[0].papers.tobytes()
        return hashlib.blake2b(text + np.ascontiguousarray(contexts).tobytes(), digest_size=10).hexdigest()

    def __call__(self, contexts: Rows, depth: int, what: str, own: OwnPapers | None = None) -> Prefetched:
        """Prefetch the top papers of contexts [N], without the citing paper; what: their name in the log.
        own: each is searched for in its own data set. If a corpus has fewer candidates than `depth`, all are
        prefetched."""
        depth = min(depth, int(np.count_nonzero(self.corpus.is_candidate)))
        folder = self.folder / self.key(contexts, depth, own)
        files = {start: folder / f"{start}.npy" for start in range(0, len(contexts), SHARD)}
        missing = [start for start, file in files.items() if not file.is_file()]
        if missing:
            self._open()
        parts = {start: contexts[start : start + SHARD] for start in missing}
        cached = len(contexts) - sum(map(len, parts.values()))
        with count_progress(f"{self.retriever.name}: {what}", len(contexts), cached) as advance:
            for start, part in parts.items():
                papers = self._search(part, depth, own and (own[0], own[1][start : start + SHARD]))
                with atomic_write(files[start]) as unfinished, unfinished.open("wb") as stream:
                    np.save(stream, papers)
                advance(len(part))
        return Prefetched(list(files.values()))

    def _search(self, contexts: Rows, depth: int, own: OwnPapers | None) -> NDArray[np.int32]:
        if own is None or own[0].papers is None:
            return self.retriever.search(contexts, depth).papers
        papers = np.full((len(contexts), depth), -1, np.int32)
        sets, queries = own
        for rows, allowed in sets.own(queries, self.corpus.is_candidate):
            papers[rows] = self.retriever.search_allowed(contexts[rows], depth, allowed).papers
        return papers

    def _open(self) -> None:
        if not self._opened:
            self.retriever.open(self.corpus, self._index_dir)
            self._opened = True


def negative_positions(ranked: NDArray[np.int32], excluded: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the positions in a ranking [depth] (-1: none) of possible negatives, without excluded papers."""
    return np.flatnonzero((ranked >= 0) & ~np.isin(ranked, excluded))


def draw_negatives(
    ranked: NDArray[np.int32],
    excluded: NDArray[np.integer],
    count: int,
    skew: float,
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Sample up to `count` distinct papers of a ranking [depth] that are not excluded, rank r with the weight
    1 / r^skew."""
    positions = negative_positions(ranked, excluded)
    keys = rng.exponential(size=len(ranked))[positions]
    if skew:  # the smallest of exponential keys over weights: Efraimidis and Spirakis 2006
        keys *= (positions + 1.0) ** skew
    return ranked[positions[np.argsort(keys, kind="stable")[:count]]]


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

        sets: data sets of the split's queries; None: one.
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
    the pairs, in the order of the chunks, in the flattened [Q, n].
    """

    mask: Tensor
    relevant: Tensor
    chunks: list[tuple[Tensor, Tensor, Tensor]]
    positions: Tensor


class TrainingLists(Dataset[ListBatch]):
    """The lists of all backward passes of a training run. Item i does not depend on earlier reads.

    A list is a cited paper, first, and negatives drawn from the prefetched papers and siblings; or, with
    `top`, the prefetched papers in their order, cited or not.
    """

    def __init__(
        self,
        reader: PairReader,
        split: Split,
        queries: QueryOrder,
        prefetched: Prefetched,
        batch: StepSettings,
        negatives: NegativesSettings,
        seed: int,
        top: bool = False,
    ) -> None:
        """prefetched: papers of the distinct rows of `queries`, in ascending order.

        Queries without candidates are skipped with a warning. Raises InputError if none is left.
        """
        self.reader, self.split, self.batch = reader, split, batch
        self.negatives, self.seed, self.top, self._prefetched = negatives, seed, top, prefetched
        self.siblings = Siblings(reader.corpus, split) if negatives.has_siblings else None
        self.max_papers = negatives.depth if top else 1 + negatives.count + negatives.siblings
        self._distinct = np.unique(queries.rows)
        self.share = WHOLE
        choices = np.array([self._count_choices(row) for row in self._distinct.tolist()])
        wanted = "depth" if top else "count"
        enough = getattr(negatives, wanted)
        few, none = int(((choices > 0) & (choices < enough)).sum()), int((choices == 0).sum())
        if none == len(choices):
            raise InputError(
                f"corpus {reader.corpus.name}: none of {len(choices):,} training queries has candidates for "
                "its list; choose another retriever or change model.negatives"
            )
        if top and not any(
            np.isin(self.papers(row, 0), split.positives[row]).any() for row in self._distinct
        ):
            raise InputError(
                f"corpus {reader.corpus.name}: no training query has a cited paper among its top {enough} "
                "papers; raise model.negatives.depth or choose another retriever"
            )
        if few or none:
            log.warning(
                f"of {len(choices):,} training queries, {few:,} have fewer candidates than "
                f"model.negatives.{wanted}={enough}; {none:,} have none and are skipped"
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
        drawn = zip(self.queries.rows[items].tolist(), self.queries.epochs[items].tolist(), strict=True)
        papers = np.full((own.stop - own.start, self.max_papers), -1, np.int64)
        relevant = np.zeros(papers.shape, np.bool_)
        for number, (row, epoch) in enumerate(drawn):
            chosen = self.papers(row, epoch)
            papers[number, : len(chosen)] = chosen
            relevant[number, : len(chosen)] = np.isin(chosen, self.split.positives[row])
        mask = papers >= 0
        pairs = self._pairs(items, papers, mask)
        parts = list(batches(pairs.lengths, self.batch.tokens or TOKENS))
        positions = np.flatnonzero(mask)[np.concatenate(parts)]
        chunks = [pairs.padded(part) for part in parts]
        marks = torch.from_numpy(mask), torch.from_numpy(relevant)
        return ListBatch(*marks, chunks, torch.from_numpy(positions))

    def _pairs(self, items: slice, papers: NDArray[np.int64], mask: NDArray[np.bool_]) -> TokenPairs:
        """The pairs of lists, papers [Q, n], without the abstracts that are left out."""
        contexts = np.repeat(self.split.contexts[self.queries.rows[items]], mask.sum(1))
        if not self.batch.varies_texts:
            return self.reader.pairs(contexts, papers[mask])
        assert isinstance(self.reader, LengthsReader)
        abstracts = np.empty(papers.shape, np.bool_)
        draws = zip(self.queries.epochs[items].tolist(), self.queries.rows[items].tolist(), strict=True)
        for number, (epoch, row) in enumerate(draws):
            rng = np.random.default_rng((self.seed, TEXTS, epoch, row))
            abstracts[number] = rng.random(papers.shape[1]) < rng.choice(self.batch.abstracts)
        return self.reader.pairs(contexts, papers[mask], abstracts[mask])

    def papers(self, row: int, epoch: int) -> NDArray[np.int64]:
        """The list of a row of the split in an epoch, always the same."""
        config, cited = self.negatives, self.split.positives[row]
        ranked, excluded = self._ranked(row)
        if self.top:
            return ranked[ranked >= 0].astype(np.int64)
        if len(cited) > 1:
            cited = np.random.default_rng((self.seed, CITED, epoch, row)).permutation(cited)
        wanted, siblings = self.max_papers - 1, np.empty(0, np.int32)
        if self.siblings is not None:
            rng = np.random.default_rng((self.seed, SIBLINGS, epoch, row))
            only = rng.random() < config.sibling_lists
            siblings = self.siblings.draw(row, wanted if only else config.siblings, rng)
            excluded = np.append(excluded, siblings)
        rng = np.random.default_rng((self.seed, DRAW, epoch, row))
        drawn = draw_negatives(ranked, excluded, wanted - len(siblings), config.skew, rng)
        return np.concatenate([cited[:1], drawn, siblings]).astype(np.int64)

    def _count_choices(self, row: int) -> int:
        """Count the papers that a list is chosen from; without any, the query has no list."""
        ranked, excluded = self._ranked(row)
        return int(np.count_nonzero(ranked >= 0)) if self.top else len(negative_positions(ranked, excluded))

    def _ranked(self, row: int) -> tuple[NDArray[np.int32], NDArray[np.integer]]:
        """The prefetched papers of a query [depth], and those that are no negatives: cited and citing."""
        citing = self.reader.corpus.citing[self.split.contexts[row]]
        prefetched = self._prefetched[int(np.searchsorted(self._distinct, row))]
        return prefetched, np.append(self.split.positives[row], citing)


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
