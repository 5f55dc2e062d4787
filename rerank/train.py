"""Training a reranker: `python train.py model=scibert_reranker`.

Its own are lists of prefetched papers, and validation on a retriever's candidates; the loop is training.loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor

from datasets.configuration import read_settings
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.progress import count_progress
from datasets.records import TRAIN
from hatten.mining import pad_positives
from rerank.backends import batches
from rerank.cross_encoder import SAVED, CrossEncoder
from rerank.data import (
    CitedAndNegatives,
    ListBatch,
    Prefetcher,
    QueryOrder,
    RerankData,
    TopPapers,
    TrainingLists,
)
from rerank.losses import distil_loss, list_loss
from rerank.pairs import PairReader
from rerank.reranker import Reranker
from rerank.scores import PairScores, to_logits
from rerank.settings import F1_AT, RerankerSettings, RerankingValidationSettings, ScoringSettings
from retrieval.base import top_k
from retrieval.nets import eval_mode
from retrieval.settings import ArticleConfig
from training.loop import Training, TrainingRun, plain_config, run
from training.module import AveragedModule, Optimizer, optimizer_of, prepare_transformer
from training.rounds import VALIDATION_SEED, Rounds, recall_and_mrr, validation_sample
from training.settings import FineTuningSettings

log = logging.getLogger(__name__)

CANDIDATES = "candidates"
"""The folder of what was prefetched, in that of a run."""

SHOWN = ("mrr", "recall@1", "recall@10", "base/mrr", "base/recall@10", "ceiling")

SHORT = 256
"""Tokens of a pair up to which plain attention trains faster on a CPU than torch's fused one (by a quarter at
128). Its memory grows with the square of the length."""


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; returns the folder of the best weights."""
    plain = plain_config(config)
    settings = read_settings(RerankerSettings, plain["model"])
    scoring = read_settings(ScoringSettings, plain["scoring"])
    optimizer = optimizer_of(config.model.optimizer)

    def build(given: TrainingRun) -> Training:
        corpus, seed, folder = given.corpus, given.seed, given.folder
        encoder_config: ArticleConfig = instantiate(config.encoder)
        encoder = CrossEncoder.pretrained(
            encoder_config, settings.pairs, settings.head, seed, settings.layers
        )
        prepare_for_training(encoder, settings)
        reader = PairReader(corpus, encoder.tokenizer, settings.pairs)
        candidates = Path(config.candidates_dir or folder / CANDIDATES)
        prefetcher = Prefetcher(instantiate(config.retriever), corpus, candidates, config.index_dir)
        lists, prefetched = _lists(settings, corpus, prefetcher, reader, seed)
        teacher = "" if config.teacher is None else _taught(config, scoring, lists)
        validation, validated = _validation(settings.validation, corpus, prefetcher, seed)
        data = RerankData(lists, settings.validation.every, seed, settings.workers)
        names = {"encoder": encoder_config.name, "retriever": prefetcher.retriever.name}
        module = RerankModule(encoder, optimizer, settings, seed, data.steps)
        if config.trainer.accelerator == "cpu":
            log.info(
                f"training will take about {_minutes(module, data):,.0f} min on this machine, without "
                f"validation; it scales with model.queries_per_epoch={settings.queries_per_epoch} and "
                f"model.pairs.max_tokens={settings.pairs.max_tokens}"
            )
        return Training(
            module,
            data,
            RerankingRounds(folder / SAVED, {**given.about, **names}, settings, validation, reader),
            data.rounds,
            {"encoder": given.settings["encoder"], "candidates": [prefetched, validated], "teacher": teacher},
            f"{len(lists.queries.rows):,} queries, {data.steps:,} steps of "
            f"{settings.batch.queries * settings.batch.accumulate} queries with up to {lists.listing.most} "
            f"papers, by {prefetcher.retriever.name}, {data.rounds} rounds, in {encoder.precision}",
            trainer={"accumulate_grad_batches": settings.batch.accumulate},
            check=lambda trainer: settings.batch.check_divisible(trainer.world_size),
        )

    return run(config, build)


def prepare_for_training(encoder: CrossEncoder, config: FineTuningSettings) -> None:
    """Set precision, dropout and attention, and freeze what no score depends on."""
    prepare_transformer(encoder, config)
    if not torch.cuda.is_available() and encoder.config.max_tokens <= SHORT:
        encoder.model.set_attn_implementation("eager")
    if (pooler := getattr(encoder.model, "pooler", None)) is not None:
        pooler.requires_grad_(False)  # the head takes its place


class RerankModule(AveragedModule[CrossEncoder]):
    """Trains a cross-encoder on lists of papers."""

    def __init__(
        self, encoder: CrossEncoder, optimizer: Optimizer, settings: RerankerSettings, seed: int, steps: int
    ) -> None:
        super().__init__(encoder, optimizer, settings.schedule, settings.ema, seed, steps)
        self.loss, self.distil = settings.loss, settings.distil

    def round_seed(self) -> int:
        """Each process draws its own dropout."""
        return super().round_seed() * 1_009 + self.global_rank

    def training_step(self, batch: ListBatch, step: int) -> Tensor:
        logits = torch.cat([self.encoder(*chunk) for chunk in batch.chunks])
        flat = logits.new_zeros(batch.there.numel()).index_copy(0, batch.place, logits)
        flat = flat.view(batch.there.shape)
        loss = list_loss(self.loss, flat, batch.there, batch.relevant)
        if batch.teacher is not None:
            taught = distil_loss(self.distil, flat, batch.teacher, batch.relevant)
            loss = self.distil.weight * taught + (1 - self.distil.weight) * loss
        self.log("train/loss", loss.detach(), batch_size=len(batch.there))
        return loss


def _minutes(module: RerankModule, data: RerankData) -> float:
    """How long all steps will take on this CPU, by the second of two backward passes of some pairs."""
    chunks = data.lists[0].chunks
    with torch.random.fork_rng(devices=[]):
        for _ in range(2):
            start = time.perf_counter()
            module.encoder(*chunks[0]).sum().backward()
            seconds = time.perf_counter() - start
    module.zero_grad(set_to_none=True)
    parts = sum(ids.numel() for ids, _, _ in chunks) / chunks[0][0].numel()
    return seconds * parts * len(data.lists) / 60


def _taught(config: DictConfig, scoring: ScoringSettings, lists: TrainingLists) -> str:
    """Give the lists the logits of the teacher; returns what names it. Pairs scored before are not again."""
    teacher = Reranker.open(config.teacher, scoring)
    scores = PairScores(config.scores_dir, teacher, lists.reader.corpus)
    lists.teach(lambda *pairs: to_logits(scores.of(*pairs).scores, teacher.model.head))
    log.info(f"the teacher {teacher.name} has scored the training lists, by {teacher.backend.arithmetic}")
    return teacher.fingerprint


def _lists(
    settings: RerankerSettings, corpus: Corpus, prefetcher: Prefetcher, reader: PairReader, seed: int
) -> tuple[TrainingLists, str]:
    """What is trained on, and the name of what was prefetched for it."""
    split, negatives = corpus.split(TRAIN), settings.negatives
    if len(split) == 0:
        raise InputError(f"corpus {corpus.name}: its train split is empty, there is nothing to train on")
    rows = np.flatnonzero(prefetcher.knows(split.contexts))
    queries = QueryOrder.sample(rows, settings.queries_per_epoch, settings.epochs, seed)
    contexts = split.contexts[np.unique(queries.rows)]
    prefetched = prefetcher(contexts, negatives.depth, "training queries")
    listing = TopPapers(negatives.depth) if settings.lists == "top" else CitedAndNegatives(negatives)
    lists = TrainingLists(reader, split, queries, prefetched, settings.batch, listing, seed)
    if settings.lists == "top":
        share = lists.cited_share()
        if share == 0:
            raise InputError(
                f"corpus {corpus.name}: none of the first {negatives.depth} papers of any training query "
                "is cited, there is nothing to learn; raise model.negatives.depth, or take another retriever"
            )
        log.info(f"of the papers in the lists of training queries, {share:.1%} are cited")
    return lists, prefetcher.key(contexts, negatives.depth)


def _validation(
    config: RerankingValidationSettings, corpus: Corpus, prefetcher: Prefetcher, seed: int
) -> tuple[RerankingValidation | None, str]:
    """What is validated on, None for nothing, and the name of what was prefetched for it."""
    split = corpus.splits.get(config.split)
    if split is None or len(split) == 0 or config.queries == 0:
        log.warning(f"corpus {corpus.name}: no validation, the last weights will be kept")
        return None, ""
    rows = validation_sample(split, config.queries, np.random.default_rng((seed, VALIDATION_SEED)))
    contexts = split.contexts[rows]
    papers = prefetcher(contexts, config.candidates, "validation queries").all()
    validation = RerankingValidation(corpus, split, rows, papers)
    base = validation.base
    log.info(
        f"validation: {len(rows):,} queries, the best {config.candidates:,} of {prefetcher.retriever.name}: "
        f"MRR {base['base/mrr']:.3f}, "
        + "".join(f"R@{k} {base[f'base/recall@{k}']:.3f}, " for k in (1, 10) if f"base/recall@{k}" in base)
        + f"at best {base['ceiling']:.3f}"
    )
    return validation, prefetcher.key(contexts, config.candidates)


class RerankingValidation:
    """Queries and their candidates: the same at each validation."""

    def __init__(
        self, corpus: Corpus, split: Split, rows: NDArray[np.int64], papers: NDArray[np.int32]
    ) -> None:
        """rows [Q] of the split; papers [Q, k], prefetched for them, best first, -1: none."""
        self.contexts, self.papers = split.contexts[rows], papers
        self._positives = pad_positives(split.positives.take(rows), corpus.citing[self.contexts])[:, :-1]
        found = np.asarray(self._hits(papers).any(2))
        self.reachable = np.flatnonzero(found.any(1))
        """Queries with a cited paper among the candidates: the order of the others makes no difference."""
        self.base = {f"base/{name}": value for name, value in self._measured(papers).items()}
        self.base["ceiling"] = float((found.sum(1) / (self._positives >= 0).sum(1)).mean())

    def _hits(self, ranked: NDArray[np.integer]) -> NDArray[np.bool_]:
        """[Q, cited, k]: which of ranked papers [Q, k] are which cited paper."""
        cited = self._positives[:, :, None]
        hits: NDArray[np.bool_] = (ranked[:, None, :] == cited) & (cited >= 0)
        return hits

    def _measured(self, ranked: NDArray[np.integer]) -> dict[str, float]:
        """MRR, recall and, of 20 candidates or more, F1 of ranked papers [Q, k]."""
        measured = recall_and_mrr(ranked, self._positives)
        if ranked.shape[1] >= F1_AT:  # Nogueira et al. 2020: precision is of 20 papers, F1 of one query
            hits, cited = self._hits(ranked[:, :F1_AT]).sum((1, 2)), (self._positives >= 0).sum(1)
            measured[f"f1@{F1_AT}"] = float((2 * hits / (F1_AT + cited)).mean())
        return measured

    def measure(
        self,
        encoder: CrossEncoder,
        reader: PairReader,
        tokens: int,
        rank: int = 0,
        processes: int = 1,
        summed: Callable[[Tensor], Tensor] = lambda own: own,
    ) -> dict[str, float]:
        """MRR, recall and F1 within the candidates, of the prefetched order too (`base/...`), and the best
        possible recall (`ceiling`).

        tokens: of a batch. Of several processes each scores its own queries; summed: adds up tensors of all.
        """
        there = (self.papers >= 0) & np.isin(np.arange(len(self.papers)), self.reachable)[:, None]
        own = np.isin(np.arange(len(self.papers)), self.reachable[rank::processes])
        query, place = np.nonzero(there & own[:, None])
        logits = torch.zeros(2, *there.shape)  # and how often each pair was scored
        logits[1, query, place] = 1
        pairs = reader.pairs(self.contexts[query], self.papers[query, place])
        with eval_mode(encoder), torch.inference_mode(), count_progress("validating", len(pairs)) as advance:
            for rows in batches(pairs.lengths, tokens):
                logits[0, query[rows], place[rows]] = encoder(*pairs.padded(rows)).cpu()
                advance(len(rows))
        grid, times = summed(logits).numpy()
        assert (times == there).all(), "every pair is scored by one process"
        if not np.isfinite(grid).all():
            raise InputError("the reranker's scores are no longer numbers: lower model.optimizer.lr")
        return self._measured(top_k(self.papers, grid, self.papers.shape[1]).papers) | self.base


class RerankingRounds(Rounds):
    """Validates after each round, on all processes together."""

    def __init__(
        self,
        best: Path,
        about: dict[str, Any],
        settings: RerankerSettings,
        validation: RerankingValidation | None,
        reader: PairReader,
    ) -> None:
        """validation: None where there is nothing to validate with; then the last weights are the best."""
        config = settings.validation
        shown = tuple(dict.fromkeys([*SHOWN, config.monitor]))

        def save(encoder: CrossEncoder, about: dict[str, Any], folder: Path) -> None:
            encoder.about = about
            encoder.save_pretrained(folder)

        super().__init__(best, save, about, config.monitor, config.patience, shown)
        self.validation, self.reader, self.tokens = validation, reader, settings.batch.tokens
        self._pairs = 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        self._pairs += len(batch.place)

    def pace(self, trainer: pl.Trainer, seconds: float) -> dict[str, float]:
        pairs = trainer.strategy.reduce(torch.tensor(float(self._pairs)), reduce_op="sum")
        self._pairs = 0
        return {"train/pairs_per_second": float(pairs) / seconds}

    def measure(self, trainer: pl.Trainer, module: RerankModule, done: int) -> dict[str, float]:
        row, start = {"step": float(trainer.global_step)}, time.monotonic()
        if self.validation is None:
            return row

        def summed(own: Tensor) -> Tensor:
            return torch.as_tensor(trainer.strategy.reduce(own.to(module.device), reduce_op="sum")).cpu()

        measured = self.validation.measure(
            module.best_encoder, self.reader, self.tokens, trainer.global_rank, trainer.world_size, summed
        )
        row |= {f"val/{name}": value for name, value in measured.items()}
        return row | {"val/seconds": time.monotonic() - start}
