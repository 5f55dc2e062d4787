"""Training batches of queries with cited, mined and random papers, determined by (seed, round, step)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Split
from citerec.hatten.encoder import Encoder
from citerec.hatten.settings import EncoderBatchSettings, EncoderTraining
from citerec.hatten.training.losses import CITED, EXCLUDED, OTHER, OTHER_QUERY, RELEVANT, build_loss
from citerec.hatten.training.mining import Pool
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.nets import to_device
from citerec.retrieval.vectors import Reader
from citerec.training.loop import RoundData, make_loader
from citerec.training.processes import WHOLE, Share
from citerec.training.queries import DataSets, Siblings, training_split

TEXTS = 6
"""Seed of the draws of texts to leave out."""


@dataclass(frozen=True)
class Batch:
    """Q queries, N distinct papers (cited papers first) and the level of each paper for each query.

    `queries`, `cited` and `others` are documents as returned by the reader, or prepared for the encoder
    (PreparedBatches); of several processes, each reads its share of them. Arrays are NumPy's, or tensors once
    they are on a device.
    """

    queries: Any
    cited: Any
    others: Any
    cited_count: int
    """number of cited papers of all processes"""
    other_rows: Any
    """corpus rows of the others of all processes"""
    levels: Any
    """[Q, N]"""
    log_rate: Any
    """[N] log of the expected number of times a paper enters a batch (at most 1): as a cited paper of another
    query, as a random paper and, for mined papers, by sampling from its query's pool"""
    positives: Any = None
    """rows and columns of the positives of the triplet loss in `levels`, [pairs] each; None: not yet known"""


Sampled = tuple[NDArray[np.integer], NDArray[np.integer]]
"""Papers of queries and their levels, [Q, n] each; -1 for no paper."""


def relevance_levels(
    papers: NDArray[np.int64], cited: Ragged, citing: NDArray[np.int32], sampled: Iterable[Sampled]
) -> NDArray[np.int8]:
    """Return the level of each of N distinct papers for each of Q queries, [Q, N]."""
    sorter = np.argsort(papers)

    def column(rows: NDArray[np.integer]) -> NDArray[np.int64]:
        return sorter[np.searchsorted(papers, rows, sorter=sorter)]

    levels = np.full((len(cited), len(papers)), OTHER_QUERY, np.int8)
    for rows, level in sampled:
        owner, position = np.nonzero(rows >= 0)
        levels[owner, column(rows[owner, position])] = level[owner, position]
    levels[papers[None] == citing[:, None]] = EXCLUDED
    levels[np.repeat(np.arange(len(cited)), cited.lengths), column(cited.values)] = CITED
    return levels


def steps_per_round(config: EncoderBatchSettings, contexts: int) -> int:
    """Number of batches per round, given the number of training contexts."""
    return config.steps_per_round or -(-contexts // config.queries)


class Batches(Dataset[Batch]):
    """The batches of one round; item i does not depend on which items were read before."""

    def __init__(
        self,
        reader: Reader,
        split: Split,
        pool: Pool | None,
        config: EncoderBatchSettings,
        seed: int,
        round: int,
        share: Share = WHOLE,
        sets: DataSets | None = None,
        siblings: Siblings | None = None,
    ) -> None:
        """sets: data sets of the split's queries; None: one. siblings: of the split; needed to draw any."""
        self.sets = sets or DataSets((np.arange(len(split)),))
        self.siblings = siblings
        self.reader, self.split, self.pool, self.config = reader, split, pool, config
        self.share = share
        self.seed, self.round = seed, round
        self.candidates = np.flatnonzero(reader.corpus.is_candidate)
        self.order = self._draw_order()
        times_cited = np.bincount(split.positives.values, minlength=len(reader.corpus.paper_ids))
        self.rate = times_cited * (config.queries / max(len(split.positives.values), 1))
        self.rate[self.candidates] += config.random * config.queries / max(len(self.candidates), 1)

    def __len__(self) -> int:
        return steps_per_round(self.config, len(self.split))

    def __getitem__(self, step: int) -> Batch:
        queries = self.rows(step)
        contexts = self.split.contexts[queries]
        cited = self.split.positives.take(queries)
        sampled = self._sample(queries, np.random.default_rng((self.seed, self.round, step)))
        rows = np.concatenate([papers.ravel() for papers, _ in sampled.values()]).astype(np.int64)
        cited_rows = np.unique(cited.values).astype(np.int64)
        others = np.setdiff1d(rows[rows >= 0], cited_rows)
        papers = np.concatenate([cited_rows, others])
        levels = relevance_levels(papers, cited, self.reader.corpus.citing[contexts], sampled.values())
        rate = self.rate[papers]
        if self.pool is not None and "mined" in sampled:
            rate[np.isin(papers, sampled["mined"][0])] += self.config.mined / self.pool.papers.shape[1]
        return Batch(
            *self._read(contexts, cited_rows, others, step),
            len(cited_rows),
            others,
            levels,
            np.log(np.clip(rate, 1e-12, 1.0)).astype("f4"),
        )

    def _sample(self, queries: NDArray[np.int64], rng: np.random.Generator) -> dict[str, Sampled]:
        """Draw random, mined and sibling papers of queries [Q], with their levels: [Q, n] each."""
        config = self.config
        random = rng.choice(self.candidates, (len(queries), config.random))
        sampled = {"random": (random, np.full(random.shape, config.random_level))}
        if self.pool is not None and config.mined:
            mined, relevant = self.pool.draw(queries, config.mined, rng)
            sampled["mined"] = mined, np.where(relevant, RELEVANT, OTHER)
        if config.siblings:
            siblings = self._draw_siblings(queries, rng)
            sampled["siblings"] = siblings, np.full(siblings.shape, OTHER)
        return sampled

    def _read(
        self, contexts: NDArray[np.int64], cited: NDArray[np.int64], others: NDArray[np.int64], step: int
    ) -> tuple[Any, Any, Any]:
        """Read this process's share of queries, cited papers and others."""
        own = [rows[self.share.part(len(rows))] for rows in (contexts, cited, others)]
        if not self.config.varies_texts:
            return self.reader.queries(own[0]), self.reader.papers(own[1]), self.reader.papers(own[2])
        assert isinstance(self.reader, ArticleReader)
        rng = np.random.default_rng((self.seed, TEXTS, self.round, step))
        titles = rng.random(len(contexts)) < self.config.titles
        share = rng.choice(self.config.abstracts)
        kept = [titles, rng.random(len(cited)) < share, rng.random(len(others)) < share]
        kept = [mask[self.share.part(len(mask))] for mask in kept]
        queries = self.reader.queries(own[0], kept[0])
        return queries, self.reader.papers(own[1], kept[1]), self.reader.papers(own[2], kept[2])

    def _draw_siblings(self, queries: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw siblings of queries [Q, siblings], padded with -1."""
        assert self.siblings is not None
        found = np.full((len(queries), self.config.siblings), -1, np.int32)
        for row, query in zip(found, queries.tolist(), strict=True):
            drawn = self.siblings.draw(query, len(row), rng)
            row[: len(drawn)] = drawn
        return found

    def rows(self, step: int) -> NDArray[np.int64]:
        """Split rows of the queries in a step."""
        size = self.config.queries
        return self.order[step * size : (step + 1) * size]

    def _draw_order(self) -> NDArray[np.int64]:
        """Draw the queries of this round as split rows.

        Consecutive rounds continue one sequence of shuffled epochs over each data set of the split. If the
        pool covers only a sample of the round's queries, the round consists of epochs over that sample.
        """
        size, group = self.config.queries * len(self), self._group_contexts
        order = self.sets.draw(np.arange(len(self.split)), size, self.round, (self.seed, 1), group)
        if self.pool is None or (self.pool.row[order] >= 0).all():
            return order
        sampled = np.flatnonzero(self.pool.row >= 0)
        return self.sets.draw(sampled, size, 0, (self.seed, 4, self.round), group)

    def _group_contexts(self, rows: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Shuffle queries, in groups of up to `contexts_per_paper` with the same citing paper."""
        shuffled, group = rng.permutation(rows), self.config.contexts_per_paper
        if group == 1:
            return shuffled
        citing = self.reader.corpus.citing[self.split.contexts[shuffled]]
        by_paper = np.argsort(citing, kind="stable")  # stable: contexts of a paper stay shuffled
        _, starts = np.unique(citing[by_paper], return_index=True)
        position = np.arange(len(by_paper)) - np.repeat(starts, np.diff(np.append(starts, len(by_paper))))
        group_ids = np.cumsum((position % group) == 0) - 1
        rank = rng.permutation(group_ids[-1] + 1)
        return shuffled[by_paper[np.argsort(rank[group_ids], kind="stable")]]


class PreparedBatches(Dataset[Batch]):
    """The batches of one round, prepared for an encoder: what does not depend on weights is computed here.

    layout: the encoder's (hatten.encoder.Encoder). levels, others: whether HAtten's two levels encode
    documents at all in this round, and whether also those that are not cited. positives: the levels that are
    positives of the loss.
    """

    def __init__(
        self, batches: Batches, layout: Any, levels: bool, others: bool, positives: Sequence[int]
    ) -> None:
        self.batches, self.layout, self.positives = batches, layout, positives
        self.levels, self.others = levels, levels and others

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, step: int) -> Batch:
        batch, prepare = self.batches[step], self.layout.prepare
        return replace(
            batch,
            queries=prepare(batch.queries, self.levels),
            cited=prepare(batch.cited, self.levels),
            others=prepare(batch.others, self.others),
            positives=np.nonzero(np.isin(batch.levels, self.positives)),
        )


class TrainingData(RoundData):
    """Batches of the training split; the trainer requests a new loader every round."""

    def __init__(
        self, reader: Reader, settings: EncoderTraining, seed: int, encoder: Encoder, workers: int = 0
    ) -> None:
        """encoder: the batches are prepared for it. workers: processes that prepare them."""
        super().__init__()
        self.reader, self.batch, self.seed, self.workers = reader, settings.batch, seed, workers
        self.settings, self.encoder = settings, encoder
        self.cached = False
        """whether the levels' output for all papers is known (batch.cached_negatives)"""
        self.corpus = corpus = reader.corpus
        self.split = training_split(corpus, self.batch.splits)
        self.sets = DataSets.read(corpus, self.split, self.batch.shares)
        self.siblings = Siblings(corpus, self.split) if self.batch.siblings else None
        if workers > (os.cpu_count() or 1):
            raise InputError(f"model.workers={workers}: this machine has {os.cpu_count()} cores")
        self.pool: Pool | None = None

    def train_dataloader(self) -> DataLoader[Batch]:
        current = self.trainer.current_epoch if self.trainer is not None else 0
        levels = current >= self.settings.schedule.mean_only_rounds
        positives = build_loss(self.settings.loss).positives
        batches = PreparedBatches(
            self._batches(current, self.pool), self.encoder.layout, levels, not self.cached, positives
        )
        return make_loader(batches, self.workers, self.seed, self.first_batch())

    def round_queries(self, round: int) -> NDArray[np.int64]:
        """Split rows to mine for a round, ascending; all rows if the round covers a full epoch."""
        if steps_per_round(self.batch, len(self.split)) * self.batch.queries >= len(self.split):
            return np.arange(len(self.split))
        # No pool here: the current one belongs to the previous round.
        return np.unique(self._batches(round, None).order)

    def _batches(self, round: int, pool: Pool | None) -> Batches:
        return Batches(
            self.reader, self.split, pool, self.batch, self.seed, round, self.share, self.sets, self.siblings
        )

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return to_device(batch, device)
