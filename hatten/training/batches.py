"""Training batches of queries with cited, mined and random papers, determined by (seed, round, step)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from citerec.base.errors import InputError
from citerec.base.files import atomic_write, digest_file
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Split
from citerec.hatten.documents import drop_words
from citerec.hatten.encoder import Encoder
from citerec.hatten.settings import EncoderBatchSettings, EncoderTraining
from citerec.hatten.training.losses import CITED, EXCLUDED, OTHER, OTHER_QUERY, RELEVANT, build_loss
from citerec.retrieval.vectors import Reader
from citerec.training.loop import RoundData, make_loader
from citerec.training.processes import WHOLE, Share
from citerec.training.queries import DataSets, training_split
from citerec.training.settings import QuerySettings

WORDS, ABSTRACTS = 1, 6
"""Seeds of the draws of words to drop and of abstracts to leave out."""


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
        with np.load(path, allow_pickle=False) as file:
            return cls(file["row"], file["papers"], file["relevant"])


@dataclass(frozen=True)
class Batch:
    """Q queries, N distinct papers (cited papers first) and the level of each paper for each query.

    `queries`, `cited` and `others` are documents as returned by the reader, or the encoder inputs that its
    layout makes of them; each of several processes reads its share of them. Arrays are NumPy's, or tensors
    once they are on a device.
    """

    queries: Any
    cited: Any
    others: Any
    cited_count: int
    """number of cited papers of all processes"""
    levels: Any
    """[Q, N]"""
    log_rate: Any
    """[N] log of the expected number of times a paper enters a batch (at most 1): as a cited paper of another
    query, as a random paper and, for mined papers, by sampling from its query's pool"""
    positives: Any
    """rows and columns of the loss's positives in `levels`, [pairs] each; None: not known yet"""


def relevance_levels(
    papers: NDArray[np.int64],
    cited: Ragged,
    citing: NDArray[np.int32],
    drawn: NDArray[np.integer],
    drawn_levels: NDArray[np.integer],
) -> NDArray[np.int8]:
    """Return the level of each of N distinct papers for each of Q queries, [Q, N].

    cited, citing: papers of the queries. drawn, drawn_levels: [Q, n], papers of the queries (-1: none) and
    their levels; for a paper that was drawn twice, the last one counts.
    """
    sorter = np.argsort(papers)

    def column(rows: NDArray[np.integer]) -> NDArray[np.int64]:
        return sorter[np.searchsorted(papers, rows, sorter=sorter)]

    levels = np.full((len(cited), len(papers)), OTHER_QUERY, np.int8)
    owner, position = np.nonzero(drawn >= 0)
    levels[owner, column(drawn[owner, position])] = drawn_levels[owner, position]
    levels[papers[None] == citing[:, None]] = EXCLUDED
    levels[np.repeat(np.arange(len(cited)), cited.lengths), column(cited.values)] = CITED
    return levels


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
        layout: Any = None,
        positives: Sequence[int] | None = None,
        word_dropout: float = 0.0,
    ) -> None:
        """sets: data sets of the split's queries; None: one. layout: the encoder's (Encoder.layout), which
        prepares documents for it; None: they stay as read. positives: levels whose places in `levels` each
        batch lists. word_dropout: share of the words to drop."""
        self.sets = sets or DataSets((np.arange(len(split)),))
        self.reader, self.split, self.pool, self.config = reader, split, pool, config
        self.share, self.layout, self.positives = share, layout, positives
        self.word_dropout = word_dropout
        self.seed, self.round = seed, round
        self.candidates = np.flatnonzero(reader.corpus.is_candidate)
        self.words = reader.corpus.title_tokens.lengths + reader.corpus.abstract_tokens.lengths
        self.order = self._draw_order()
        times_cited = np.bincount(split.positives.values, minlength=len(reader.corpus.paper_ids))
        self.rate = times_cited * (config.queries / max(len(split.positives.values), 1))
        self.rate[self.candidates] += config.random * config.queries / max(len(self.candidates), 1)

    def __len__(self) -> int:
        return self.config.steps(len(self.split))

    def __getitem__(self, step: int) -> Batch:
        queries = self.rows(step)
        contexts, cited = self.split.contexts[queries], self.split.positives.take(queries)
        drawn, drawn_levels = self._draw(queries, np.random.default_rng((self.seed, self.round, step)))
        cited_rows = np.unique(cited.values).astype(np.int64)
        others = np.setdiff1d(drawn[drawn >= 0].astype(np.int64), cited_rows)
        cited_rows, others = (self.share.deal(rows, self.words[rows]) for rows in (cited_rows, others))
        papers = np.concatenate([cited_rows, others])
        citing = self.reader.corpus.own_papers(contexts)
        levels = relevance_levels(papers, cited, citing, drawn, drawn_levels)
        documents = self._read(contexts, cited_rows, others, step)
        if self.layout is not None:
            documents = [self.layout.prepare(part) for part in documents]
        pairs = None if self.positives is None else np.nonzero(np.isin(levels, self.positives))
        queries, cited, others_read = documents
        return Batch(
            queries, cited, others_read, len(cited_rows), levels, self._log_rate(papers, drawn), pairs
        )

    def rows(self, step: int) -> NDArray[np.int64]:
        """Split rows of the queries in a step."""
        size = self.config.queries
        return self.order[step * size : (step + 1) * size]

    def _draw(
        self, queries: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """Draw random, then mined papers of queries [Q], and their levels: [Q, n] each, -1 for no paper."""
        drawn = rng.choice(self.candidates, (len(queries), self.config.random))
        levels = np.full(drawn.shape, OTHER_QUERY)
        if self.pool is None or not self.config.mined:
            return drawn, levels
        mined, relevant = self.pool.draw(queries, self.config.mined, rng)
        mined_levels = np.where(relevant, RELEVANT, OTHER)
        return np.concatenate([drawn, mined], 1), np.concatenate([levels, mined_levels], 1)

    def _read(
        self, contexts: NDArray[np.int64], cited: NDArray[np.int64], others: NDArray[np.int64], step: int
    ) -> list[Any]:
        """Read this process's share of queries, cited papers and others."""
        rows = [part[self.share.part(len(part))] for part in (contexts, cited, others)]
        if isinstance(self.config, QuerySettings) and self.config.varies_texts:
            reader: Any = self.reader  # an ArticleReader
            rng = np.random.default_rng((self.seed, ABSTRACTS, self.round, step))
            share = rng.choice(self.config.abstracts)
            drawn = [rng.random(len(part))[np.argsort(np.argsort(part))] for part in (cited, others)]
            kept = [part[self.share.part(len(part))] < share for part in drawn]
            return [reader.queries(rows[0]), reader.papers(rows[1], kept[0]), reader.papers(rows[2], kept[1])]
        texts = [self.reader.queries(rows[0]), self.reader.papers(rows[1]), self.reader.papers(rows[2])]
        if not self.word_dropout:
            return texts
        rng = np.random.default_rng((self.seed, self.round, step, WORDS, self.share.rank))
        return [drop_words(documents, self.word_dropout, rng) for documents in texts]

    def _log_rate(self, papers: NDArray[np.int64], drawn: NDArray[np.integer]) -> NDArray[np.float32]:
        """The log of the rate at which each of N papers enters a batch, [N]; `drawn` as from `_draw`."""
        rate, config = self.rate[papers], self.config
        if self.pool is not None and config.mined:
            mined = drawn[:, config.random : config.random + config.mined]
            rate[np.isin(papers, mined)] += config.mined / self.pool.papers.shape[1]
        return np.log(np.clip(rate, 1e-12, 1.0)).astype("f4")

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


class TrainingData(RoundData):
    """Batches of the training split; the trainer requests a new loader every round."""

    def __init__(
        self, reader: Reader, settings: EncoderTraining, seed: int, encoder: Encoder, workers: int = 0
    ) -> None:
        """encoder: the batches are prepared for it. workers: processes that prepare them."""
        super().__init__()
        self.reader, self.batch, self.seed, self.workers = reader, settings.batch, seed, workers
        self.settings, self.encoder = settings, encoder
        self.corpus = reader.corpus
        self.split = training_split(self.corpus, self.batch.splits)
        shares = self.batch.shares if isinstance(self.batch, QuerySettings) else {}
        self.sets = DataSets.read(self.corpus, self.split, shares)
        self.pool: Pool | None = None

    def train_dataloader(self) -> DataLoader[Batch]:
        current = self.trainer.current_epoch if self.trainer is not None else 0
        batches = self.batches(current, self.pool, self.encoder.layout)
        return make_loader(batches, self.workers, self.seed, self.first_batch())

    def round_queries(self, round: int) -> NDArray[np.int64]:
        """Split rows to mine for a round, ascending; all rows if the round covers a full epoch."""
        if self.batch.steps(len(self.split)) * self.batch.queries >= len(self.split):
            return np.arange(len(self.split))
        # No pool here: the current one belongs to the previous round.
        return np.unique(self.batches(round, None).order)

    def batches(self, round: int, pool: Pool | None, layout: Any = None) -> Batches:
        """The batches of a round; arguments as for Batches."""
        positives = build_loss(self.settings.loss).positives
        return Batches(
            *(self.reader, self.split, pool, self.batch, self.seed, round, self.share, self.sets),
            layout,
            positives,
            self.settings.batch_word_dropout,
        )
