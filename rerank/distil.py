"""Distilling a cross-encoder into a prefetcher: `python train.py model=distil retriever=hatten ...`.

Batches, loop, validation and what is saved are those of hatten.train; the mined papers of a query are
those that the teacher has scored for it, and the loss has the teacher's part.

What a student learns of a teacher's scores: their differences, or their softmax over a list.
What a cross-encoder says of the papers that a student finds for training queries.
A trained prefetcher as what is trained on: the weights of retriever=hatten or biencoder.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
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

import hatten.train
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.records import TRAIN
from datasets.settings import read_own_settings, read_settings
from hatten.batches import Batch, Batches, TrainingData
from hatten.biencoder import BiEncoder, BiEncoderRetriever, FineTuning
from hatten.checkpoint import Model, save_model
from hatten.documents import DocumentReader
from hatten.encoder import HAttenEncoder
from hatten.hatten import HAtten
from hatten.losses import CITED
from hatten.mining import Pool, padded
from hatten.module import EncoderModule
from hatten.recipe import Encoder, Parts, Recipe
from hatten.retriever import HAttenRetriever
from hatten.settings import EncoderBatchSettings
from rerank.data import NegativesConfig, Prefetcher
from rerank.reranker import Reranker, ScoringConfig
from rerank.scores import CHUNK, PairScores, candidate_scores
from retrieval.article import ArticleEncoder
from retrieval.base import Retriever
from retrieval.encoder import ArticleReader
from retrieval.vectors import Reader, precision, weights_hash
from training.settings import FineTuningSettings, at_least_1


def margin_mse(student: Tensor, teacher: Tensor, cited: Tensor) -> Tensor:
    """Mean over (query, cited paper, other paper) of ((s+ - s-) - (t+ - t-))^2: Hofstätter et al. 2020.

    student, teacher: scores [Q, N], those of the teacher NaN for pairs that it was not asked for, which take
    no part. cited: bool [Q, N]. 0 where there is nothing to compare.
    """
    known = ~torch.isnan(teacher)
    query, positive = (cited & known).nonzero(as_tuple=True)
    others = (known & ~cited)[query]  # [cited, N]
    gaps = (student - torch.nan_to_num(teacher))[query]
    gaps = gaps.gather(1, positive[:, None]) - gaps
    return gaps.square().masked_fill(~others, 0.0).sum() / others.sum().clamp(min=1)


def listwise_kl(
    student: Tensor, teacher: Tensor, temperature: float = 1.0, teacher_temperature: float = 1.0
) -> Tensor:
    """Mean over queries of the Kullback-Leibler divergence of the softmax of the student's scores from that
    of the teacher's, over the papers that the teacher was asked for: Hinton et al. 2015, Cao et al. 2007.

    student, teacher: as for `margin_mse`. 0 where a query has no paper of the teacher's.
    """
    known = ~torch.isnan(teacher)
    some = known.any(1)
    known, student, teacher = known[some], student[some], teacher[some]
    if not len(known):
        return student.sum() * 0.0
    wanted = (teacher / teacher_temperature).masked_fill(~known, -torch.inf).log_softmax(1)
    given = (student / temperature).masked_fill(~known, -torch.inf).log_softmax(1)
    terms = wanted.exp() * (wanted.masked_fill(~known, 0.0) - given.masked_fill(~known, 0.0))
    return terms.sum(1).mean()


@dataclass(frozen=True)
class DistilConfig:
    """How the student's cosines are to follow the teacher's logits."""

    name: str = "kl"
    """kl (listwise) | margin_mse"""
    weight: float = 0.5
    """of the distillation; the rest is that of the student's own loss (model.loss)"""
    temperature: float = 0.05
    """the student's cosines are divided by it"""
    teacher_temperature: float = 1.0
    """the teacher's logits are divided by it"""

    def __post_init__(self) -> None:
        if self.name not in ("kl", "margin_mse"):
            raise InputError(f"model.distil.name={self.name}: choose kl or margin_mse")
        if not 0 < self.weight <= 1:
            raise InputError(f"model.distil.weight={self.weight}: must be above 0, at most 1")
        for name in ("temperature", "teacher_temperature"):
            if getattr(self, name) <= 0:
                raise InputError(f"model.distil.{name}={getattr(self, name)}: must be above 0")

    def __call__(self, similarity: Tensor, teacher: Tensor, cited: Tensor) -> Tensor:
        """Cosines and the teacher's logits [Q, N] (NaN: not asked for), which papers are cited -> scalar"""
        if self.name == "margin_mse":
            return margin_mse(similarity / self.temperature, teacher / self.teacher_temperature, cited)
        return listwise_kl(similarity, teacher, self.temperature, self.teacher_temperature)


log = logging.getLogger(__name__)

CHOSEN = 14
"""Keeps these random numbers apart from others of the same seed."""


@dataclass(frozen=True)
class TeacherConfig:
    """Which training queries the teacher is asked for."""

    queries: int = 10_000
    """a sample where there are more; the student is trained with these alone"""
    chunk: int = CHUNK
    """pairs that are scored together"""

    def __post_init__(self) -> None:
        at_least_1(self, "model.teacher", "queries", "chunk")


@dataclass(frozen=True)
class ScoredLists:
    """Training queries, and the papers that the teacher has scored for each of them.

    split: Q queries. papers: int32 [Q, n], the cited and those that were drawn, -1: none. logits: float32
    [Q, n], NaN where there is no paper. key: a hash of all of it.
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

    def of(self, queries: NDArray[np.int64], papers: NDArray[np.int64]) -> NDArray[np.float32]:
        """The teacher's logits of queries, rows [B] of the split, and distinct papers [N]: [B, N], NaN where
        it was not asked."""
        out = np.full((len(queries), len(papers)), np.nan, np.float32)
        order = np.argsort(papers)
        listed = self.papers[queries]
        place = np.minimum(np.searchsorted(papers, listed, sorter=order), len(papers) - 1)
        column = order[place]
        there = (papers[column] == listed) & (listed >= 0)
        row = np.broadcast_to(np.arange(len(queries))[:, None], listed.shape)
        out[row[there], column[there]] = self.logits[queries][there]
        return out


def scored_lists(
    teacher: str | Path,
    scoring: ScoringConfig,
    prefetcher: Prefetcher,
    corpus: Corpus,
    config: TeacherConfig,
    drawn: NegativesConfig,
    seed: int,
    scores_dir: str | Path,
) -> ScoredLists:
    """Prefetch, draw and score. What was scored before, by whomever, is not scored again (PairScores).

    drawn: which of the prefetched papers, beside the cited ones.
    """
    split = corpus.split(TRAIN)
    if len(split) == 0:
        raise InputError(f"corpus {corpus.name}: its train split is empty, there is nothing to train on")
    scorer = Reranker.open(teacher, scoring)
    rows = np.random.default_rng((seed, CHOSEN)).permutation(len(split))[: config.queries]
    rows = np.sort(rows)
    split = Split(split.name, split.contexts[rows], split.positives.take(rows))
    found = prefetcher(split.contexts, drawn.depth, "training queries")
    cited = padded(split.positives, corpus.citing[split.contexts])  # and the citing paper
    papers = np.full((len(split), cited.shape[1] - 1 + drawn.count), -1, np.int32)
    papers[:, : cited.shape[1] - 1] = cited[:, :-1]
    for query, row in enumerate(rows.tolist()):
        chosen = drawn.draw(found[query], cited[query], seed, 0, row)
        papers[query, cited.shape[1] - 1 :][: len(chosen)] = chosen
    log.info(
        f"{scorer.name} scores {np.count_nonzero(papers >= 0):,} pairs: {len(split):,} training queries, "
        f"up to {drawn.count} of the best {drawn.depth} papers of {prefetcher.retriever.name}, and the cited"
    )
    pairs = PairScores(scores_dir, scorer, corpus, config.chunk)
    scores, scored = candidate_scores(pairs, split.contexts, papers)
    log.info(
        f"scored: {scored.new:,} pairs now, the others before ({scored.pairs_per_second:,.0f} pairs/s; "
        f"{pairs.folder})"
    )
    logits = np.where(papers >= 0, logits_of(scores, scorer.model.head), np.nan).astype(np.float32)
    return ScoredLists(split, papers, logits)


def logits_of(scores: NDArray[np.float32], head: str) -> NDArray[np.float32]:
    """What scores were before the sigmoid, of a head that has one; 0 and 1 as far as float32 tells."""
    if head != "sigmoid":
        return scores
    least = np.finfo(np.float32).eps
    inside = np.clip(scores, least, 1 - least)
    return np.log(inside) - np.log1p(-inside)


class HAttenStudent(Recipe):
    """The encoder of a HAtten checkpoint, with its words."""

    file, groups = HAtten.file, ()

    def __init__(self, model: Mapping[str, Any], trained: Model) -> None:
        self.model, self.precision = trained, precision(model["precision"])
        self.word_dropout = float(model["word_dropout"])
        if not 0 <= self.word_dropout < 1:
            raise InputError(f"model.word_dropout={self.word_dropout}: must be in 0..1, below 1")
        self.mean_path = trained.encoder.mean is not None

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        encoder, vocabulary = self.model.encoder, self.model.vocabulary
        encoder.precision = self.precision
        if encoder.mean is not None:
            encoder.mean.dropout = self.word_dropout
        about = {"start": weights_hash(encoder)}

        def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
            assert isinstance(trained, HAttenEncoder)
            save_model(Model(trained, vocabulary, about), path)

        reader = DocumentReader(corpus, vocabulary, encoder.config.max_tokens)
        return Parts(encoder.train(), reader, save, about)


class BiEncoderStudent(Recipe):
    """A fine-tuned article encoder."""

    file, groups = FineTuning.file, ()

    def __init__(self, model: Mapping[str, Any], folder: str | Path) -> None:
        self.config, self.folder = read_own_settings(FineTuningSettings, model), folder

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        article = ArticleEncoder.load(self.folder)  # the retriever's own is in the precision of its search
        about = {"encoder": article.config.name, "start": weights_hash(article)}
        reader = ArticleReader(corpus, article.tokenizer, article.config)
        return Parts(BiEncoder(article, self.config), reader, FineTuning.save, about)


def student_of(retriever: Retriever, model: Mapping[str, Any], checkpoint: str | Path) -> Recipe:
    """InputError for a retriever without weights that can be trained on."""
    if isinstance(retriever, HAttenRetriever):
        return HAttenStudent(model, retriever.model)
    if isinstance(retriever, BiEncoderRetriever):
        return BiEncoderStudent(model, checkpoint)
    raise InputError(
        f"retriever={retriever.name}: has no weights to distil into; choose hatten or biencoder, with "
        "checkpoint=FILE"
    )


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
        self, lists: ScoredLists, reader: Reader, batch: EncoderBatchSettings, seed: int, workers: int = 0
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
    distil = read_settings(DistilConfig, model["distil"], "model.distil")
    teacher = read_settings(TeacherConfig, model["teacher"], "model.teacher")
    drawn = read_settings(NegativesConfig, model["negatives"], "model.negatives")
    scoring = read_settings(ScoringConfig, plain["scoring"], "scoring")
    if config.teacher is None:
        raise InputError("model=distil needs teacher=FOLDER: what train.py model=scibert_reranker has saved")
    retriever: Retriever = instantiate(config.retriever)
    student = student_of(retriever, model, config.checkpoint)

    def data(reader: Reader, batch: EncoderBatchSettings, seed: int, workers: int) -> DistilData:
        folder = Path(config.candidates_dir or Path(config.output_dir) / CANDIDATES)
        prefetcher = Prefetcher(retriever, reader.corpus, folder, config.index_dir)
        lists = scored_lists(
            config.teacher, scoring, prefetcher, reader.corpus, teacher, drawn, seed, config.scores_dir
        )
        return DistilData(lists, reader, batch, seed, workers)

    return hatten.train.train(config, student, data, partial(DistilModule, distil))
