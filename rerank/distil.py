"""Distilling a cross-encoder into a prefetcher: `citerec train model=distil retriever=hatten ...`.

Batches, loop, validation and checkpoints are those of hatten.train. The mined papers of a query are those
scored by the teacher, and a distillation loss is added to the student's own.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor

from citerec.datasets.configuration import read_settings
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.errors import InputError
from citerec.datasets.records import TRAIN
from citerec.hatten.batches import Batch, Batches, TrainingData
from citerec.hatten.biencoder import FineTuning, fine_tuning_parts
from citerec.hatten.checkpoint import make_saver
from citerec.hatten.documents import DocumentReader
from citerec.hatten.losses import CITED
from citerec.hatten.mining import Pool, pad_positives
from citerec.hatten.module import EncoderModule
from citerec.hatten.recipe import HAtten, Parts, Recipe
from citerec.hatten.settings import EncoderBatchSettings
from citerec.hatten.train import train_encoder
from citerec.rerank.data import Prefetcher, draw_negatives
from citerec.rerank.losses import distil_loss
from citerec.rerank.reranker import Reranker
from citerec.rerank.scores import PairScores, candidate_scores, to_logits
from citerec.rerank.settings import (
    DistilLossSettings,
    DistilSettings,
    NegativesSettings,
    ScoringSettings,
    TeacherSettings,
)
from citerec.rerank.train import CANDIDATES
from citerec.retrieval.base import Retriever
from citerec.retrieval.encoder import ArticleEncoder
from citerec.retrieval.nets import precision, weights_hash
from citerec.retrieval.vectors import Reader
from citerec.training.loop import plain_config

log = logging.getLogger(__name__)

SAMPLE = 14
"""Seed that separates these random draws from others."""


@dataclass(frozen=True)
class ScoredLists:
    """Training queries, and the papers scored for them by the teacher.

    split: Q queries. papers: int32 [Q, n], cited and sampled, -1 for none. logits: float32 [Q, n], NaN for
    none. key: hash of everything.
    """

    split: Split
    papers: NDArray[np.int32]
    logits: NDArray[np.float32]

    @property
    def key(self) -> str:
        digest = hashlib.blake2b(digest_size=10)
        for part in (self.split.contexts, self.papers, self.logits):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def logits_for(self, queries: NDArray[np.int64], papers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows [B] of the split and distinct papers [N] -> the teacher's logits [B, N], NaN if not scored."""
        out = np.full((len(queries), len(papers)), np.nan, np.float32)
        order = np.argsort(papers)
        candidates = self.papers[queries]
        found = np.minimum(np.searchsorted(papers, candidates, sorter=order), len(papers) - 1)
        column = order[found]
        mask = (papers[column] == candidates) & (candidates >= 0)
        row = np.broadcast_to(np.arange(len(queries))[:, None], candidates.shape)
        out[row[mask], column[mask]] = self.logits[queries][mask]
        return out


def score_lists(
    teacher: str | Path,
    scoring: ScoringSettings,
    prefetcher: Prefetcher,
    corpus: Corpus,
    config: TeacherSettings,
    negatives: NegativesSettings,
    seed: int,
    scores_dir: str | Path,
) -> ScoredLists:
    """Prefetch and sample candidates, and score them with the teacher; reuses earlier scores (PairScores).

    negatives: prefetched papers to score in addition to the cited ones.
    """
    split = corpus.split(TRAIN)
    if len(split) == 0:
        raise InputError(f"corpus {corpus.name}: its train split is empty, there is nothing to train on")
    scorer = Reranker.open(teacher, scoring)
    rows = np.sort(np.random.default_rng((seed, SAMPLE)).permutation(len(split))[: config.queries])
    split = Split(split.name, split.contexts[rows], split.positives.take(rows))
    found = prefetcher(split.contexts, negatives.depth, "training queries")
    cited = pad_positives(split.positives, corpus.citing[split.contexts])  # and the citing paper, last
    width = cited.shape[1] - 1
    papers = np.full((len(split), width + negatives.count), -1, np.int32)
    papers[:, :width] = cited[:, :-1]
    for query, row in enumerate(rows.tolist()):
        drawn = draw_negatives(negatives, found[query], cited[query], seed, 0, row)
        papers[query, width : width + len(drawn)] = drawn
    log.info(
        f"{scorer.name}: scoring {np.count_nonzero(papers >= 0):,} pairs of {len(split):,} training queries "
        f"with their cited papers and up to {negatives.count} of the top {negatives.depth} papers of "
        f"{prefetcher.retriever.name}"
    )
    pairs = PairScores(scores_dir, scorer, corpus, config.chunk)
    scores, scored = candidate_scores(pairs, split.contexts, papers)
    log.info(
        f"scored {scored.new:,} new pairs, the others were cached in {pairs.folder} "
        f"({scored.pairs_per_second:,.0f} pairs/s)"
    )
    logits = np.where(papers >= 0, to_logits(scores, scorer.model.head), np.nan).astype(np.float32)
    return ScoredLists(split, papers, logits)


class HAttenStudent(Recipe):
    """Continues the encoder of a HAtten checkpoint, with its vocabulary."""

    file, groups = HAtten.file, ()

    def __init__(self, settings: DistilSettings, retriever: Any, checkpoint: str | Path) -> None:
        self.options, self.model = settings, retriever.model
        self.mean_path = self.model.encoder.mean is not None

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        encoder, vocabulary = self.model.encoder, self.model.vocabulary
        encoder.precision = precision(self.options.precision)
        if encoder.mean is not None:
            encoder.mean.dropout = self.options.word_dropout
        reader = DocumentReader(corpus, vocabulary, encoder.config.max_tokens)
        return Parts(encoder.train(), reader, make_saver(vocabulary), {"start": weights_hash(encoder)})


class BiEncoderStudent(Recipe):
    """Continues a fine-tuned article encoder."""

    file, groups = FineTuning.file, ()

    def __init__(self, settings: DistilSettings, retriever: Any, checkpoint: str | Path) -> None:
        self.options, self.folder = settings, checkpoint

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        article = ArticleEncoder.load(self.folder)  # the retriever's copy has the precision of its search
        parts = fine_tuning_parts(article, self.options, corpus)
        return replace(parts, about={**parts.about, "start": weights_hash(article)})


STUDENTS = {"hatten": HAttenStudent, "biencoder": BiEncoderStudent}
"""Students by the name of the retriever whose weights they continue."""


@dataclass(frozen=True)
class DistilBatch(Batch):
    """A batch with the teacher's logits [Q, N] of its pairs; NaN if not scored."""

    teacher: NDArray[np.float32]


class DistilBatches(Batches):
    """Batches whose mined papers were scored by the teacher."""

    def __init__(self, lists: ScoredLists, *args: Any) -> None:
        """args: as for Batches, with the split and the pool of the lists."""
        super().__init__(*args)
        self.lists = lists

    def __getitem__(self, step: int) -> DistilBatch:
        batch, rows = super().__getitem__(step), self.rows(step)
        cited = np.unique(self.split.positives.take(rows).values)  # they come first in a batch
        papers = np.concatenate([cited, batch.other_rows]).astype(np.int64)
        return DistilBatch(**vars(batch), teacher=self.lists.logits_for(rows, papers))


class DistilData(TrainingData):
    """Batches of the queries whose candidates were scored by the teacher."""

    def __init__(
        self, lists: ScoredLists, reader: Reader, batch: EncoderBatchSettings, seed: int, workers: int = 0
    ) -> None:
        super().__init__(reader, batch, seed, workers)
        self.lists, self.split = lists, lists.split
        count = lists.papers.shape[1]
        if not 0 < batch.mined <= count:
            raise InputError(
                f"model.batch.mined={batch.mined}: must be 1 to {count}, the papers that the teacher scores "
                "per query"
            )
        rows = np.arange(len(self.split), dtype=np.int32)
        self.pool = Pool(rows, lists.papers, np.zeros(lists.papers.shape, np.bool_))
        self.about = {"lists": lists.key}

    def _batches(self, round: int) -> Batches:
        return DistilBatches(self.lists, self.reader, self.split, self.pool, self.batch, self.seed, round)


class DistilModule(EncoderModule):
    """Trains the student with its own loss and the distillation loss."""

    def __init__(self, distil: DistilLossSettings, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.distil = distil

    def compute_loss(self, batch: Batch, similarity: Tensor) -> Tensor:
        assert isinstance(batch, DistilBatch)
        teacher = torch.from_numpy(batch.teacher).to(similarity.device)
        cited = torch.from_numpy(batch.levels == CITED).to(similarity.device)
        loss = self.distil.weight * distil_loss(self.distil, similarity, teacher, cited)
        if self.distil.weight < 1:
            loss = loss + (1 - self.distil.weight) * super().compute_loss(batch, similarity)
        return loss


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; returns the path of the best weights."""
    plain = plain_config(config)
    settings = read_settings(DistilSettings, plain["model"])  # fails on wrong options before any work
    scoring = read_settings(ScoringSettings, plain["scoring"])
    if config.teacher is None:
        raise InputError("model=distil needs teacher=FOLDER: the output of train.py model=scibert_reranker")
    retriever: Retriever = instantiate(config.retriever)
    if retriever.name not in STUDENTS:
        raise InputError(
            f"retriever={retriever.name}: has no weights to distil into; choose {' or '.join(STUDENTS)}, "
            "with checkpoint=FILE"
        )
    student = STUDENTS[retriever.name](settings, retriever, config.checkpoint)

    def data(reader: Reader, batch: EncoderBatchSettings, seed: int, workers: int) -> DistilData:
        folder = Path(config.candidates_dir or Path(config.output_dir) / CANDIDATES)
        prefetcher = Prefetcher(retriever, reader.corpus, folder, config.index_dir)
        options = settings.teacher, settings.negatives, seed, config.scores_dir
        lists = score_lists(config.teacher, scoring, prefetcher, reader.corpus, *options)
        return DistilData(lists, reader, batch, seed, workers)

    return train_encoder(config, student, settings, None, data, partial(DistilModule, settings.distil))
