"""Distilling a cross-encoder into a prefetcher: `python train.py model=distil retriever=hatten ...`.

Batches, loop, validation and what is saved are those of hatten.training; the mined papers of a query are
those that the teacher has scored for it, and the loss has the teacher's part.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

import hatten.training
from datasets.errors import InputError
from hatten.batches import Batch, BatchConfig, Batches
from hatten.datamodule import TrainingData
from hatten.losses import CITED
from hatten.mining import Pool
from hatten.module import EncoderModule
from hatten.options import options
from rerank.distil_losses import DistilConfig
from rerank.negatives import NegativesConfig
from rerank.prefetching import Prefetcher
from rerank.reranker import ScoringConfig
from rerank.students import student_of
from rerank.teacher import ScoredLists, TeacherConfig, scored_lists
from retrieval.base import Retriever
from retrieval.encode import Reader

log = logging.getLogger(__name__)

CANDIDATES = "candidates"
"""The folder of what was prefetched, in that of a run."""


@dataclass(frozen=True)
class DistilBatch(Batch):
    """A batch, and the teacher's logits [Q, N] of its pairs, NaN where it was not asked."""

    teacher: NDArray[np.float32]


class DistilBatches(Batches):
    """Batches whose mined papers the teacher has scored."""

    def __init__(self, lists: ScoredLists, *given: Any) -> None:
        """given: as for Batches; the split and the pool are those of the lists."""
        super().__init__(*given)
        self.lists = lists

    def __getitem__(self, step: int) -> DistilBatch:
        batch, rows = super().__getitem__(step), self.rows(step)
        cited = np.unique(self.split.positives.take(rows).values)  # the first papers of a batch
        papers = np.concatenate([cited, batch.other_rows]).astype(np.int64)
        given = {field.name: getattr(batch, field.name) for field in fields(batch)}
        return DistilBatch(**given, teacher=self.lists.of(rows, papers))


class DistilData(TrainingData):
    """Batches of the queries that the teacher was asked for."""

    def __init__(
        self, lists: ScoredLists, reader: Reader, batch: BatchConfig, seed: int, workers: int = 0
    ) -> None:
        super().__init__(reader, batch, seed, workers)
        self.lists, self.split = lists, lists.split
        count = lists.papers.shape[1]
        if not 0 < batch.mined <= count:
            raise InputError(
                f"model.batch.mined={batch.mined}: the teacher has scored 1 to {count} papers a query"
            )
        rows = np.arange(len(self.split), dtype=np.int32)
        self.pool = Pool(rows, lists.papers, np.zeros(lists.papers.shape, np.bool_))
        self.about = {"lists": lists.key}

    def _batches(self, round: int) -> Batches:
        return DistilBatches(self.lists, self.reader, self.split, self.pool, self.batch, self.seed, round)


class DistilModule(EncoderModule):
    """Trains the student with its own loss and the teacher's part."""

    def __init__(self, distil: DistilConfig, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.distil = distil

    def loss_of(self, batch: Batch, similarity: Tensor) -> Tensor:
        assert isinstance(batch, DistilBatch)
        teacher = torch.from_numpy(batch.teacher).to(similarity.device)
        cited = torch.from_numpy(batch.levels == CITED).to(similarity.device)
        loss = self.distil.weight * self.distil(similarity, teacher, cited)
        if self.distil.weight < 1:
            loss = loss + (1 - self.distil.weight) * super().loss_of(batch, similarity)
        return loss


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; gives the file or folder of the best weights."""
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    model = plain["model"]
    # What is wrong with the options should be said before anything is prepared.
    distil = options(DistilConfig, model["distil"], "model.distil")
    teacher = options(TeacherConfig, model["teacher"], "model.teacher")
    drawn = options(NegativesConfig, model["negatives"], "model.negatives")
    scoring = options(ScoringConfig, plain["scoring"], "scoring")
    if config.teacher is None:
        raise InputError("model=distil needs teacher=FOLDER: what train.py model=scibert_reranker has saved")
    retriever: Retriever = instantiate(config.retriever)
    student = student_of(retriever, model, config.checkpoint)

    def data(reader: Reader, batch: BatchConfig, seed: int, workers: int) -> DistilData:
        folder = Path(config.candidates_dir or Path(config.output_dir) / CANDIDATES)
        prefetcher = Prefetcher(retriever, reader.corpus, folder, config.index_dir)
        lists = scored_lists(
            config.teacher, scoring, prefetcher, reader.corpus, teacher, drawn, seed, config.scores_dir
        )
        return DistilData(lists, reader, batch, seed, workers)

    return hatten.training.train(config, student, data, partial(DistilModule, distil))
