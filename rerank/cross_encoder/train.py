"""Training a cross-encoder: `citerec train model=scibert_reranker`.

Trains on lists of prefetched papers and validates on a retriever's candidates; the loop is in training.loop.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from citerec.base.errors import InputError
from citerec.base.progress import count_progress
from citerec.datasets.corpus import Corpus, Split
from citerec.rerank.cross_encoder.backends import TOKENS, batches
from citerec.rerank.cross_encoder.data import (
    ListBatch,
    Prefetcher,
    QueryOrder,
    RerankData,
    TrainingLists,
)
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import PairReader, pair_reader
from citerec.rerank.settings import ListLossSettings, RerankerSettings, RerankingValidationSettings
from citerec.retrieval.base import top_k
from citerec.retrieval.encoders.nets import (
    eval_mode,
    fitting_tokens,
    one_behind,
    precision,
    to_device,
    transformer_bytes,
)
from citerec.retrieval.settings import ArticleConfig
from citerec.training.loop import Training, TrainingRun
from citerec.training.module import AveragedModule, prepare_transformer
from citerec.training.processes import WHOLE, Share
from citerec.training.queries import DataSets, training_split
from citerec.training.rounds import VALIDATION_SEED, Rounds, recall_and_mrr, validation_split
from citerec.training.settings import FineTuningSettings

log = logging.getLogger(__name__)

LOGGED = ("mrr", "recall@1", "recall@10", "base/mrr", "base/recall@10", "ceiling")

MAX_EAGER_TOKENS = 256
"""Maximum tokens of a pair for which plain attention trains faster on a CPU than torch's fused attention (by
a quarter at 128). Its memory grows with the square of the length."""


def train_reranker(
    model: CrossEncoder,
    start: ArticleConfig,
    corpus: Corpus,
    prefetcher: Prefetcher,
    settings: RerankerSettings,
    run: TrainingRun,
) -> Path:
    """Train a cross-encoder that was begun from `start`; returns the folder of the best weights."""
    prepare_for_training(model, settings, run.device)
    reader = pair_reader(corpus, model.tokenizer, settings.pairs)
    bytes_each = settings.batch.kept * transformer_bytes(model.model, training=True)
    tokens = settings.batch.tokens or fitting_tokens(run.device, bytes_each, TOKENS)
    lists, prefetched = _build_lists(settings, corpus, prefetcher, reader, run.seed, tokens)
    validation, validated = _build_validation(settings.validation, corpus, prefetcher, run.seed)
    data = RerankData(lists, settings.validation.every, run.seed, run.workers(settings.workers))
    names = {"encoder": start.name, "retriever": prefetcher.retriever.name}
    module = RerankModule(model, settings, run.seed, data.steps)
    about = {**run.about(corpus, settings), **names}
    training = Training(
        module,
        data,
        RerankingRounds(run.path / model.folder, model, about, settings, validation, reader, run.device),
        data.rounds,
        {"encoder": asdict(start), "candidates": [prefetched, validated]},
        f"{len(lists.queries.rows):,} queries, {data.steps:,} steps of "
        f"{settings.batch.queries * settings.batch.accumulate} queries with up to "
        f"{lists.max_papers} papers from {prefetcher.retriever.name}, {data.rounds} rounds, in "
        f"{model.precision}",
        accumulate=settings.batch.accumulate,
    )
    return run.fit(corpus, settings, training)


def prepare_for_training(
    encoder: CrossEncoder, config: FineTuningSettings, device: torch.device | str = "cpu"
) -> None:
    """Set precision, dropout and attention; freeze weights that no score depends on."""
    prepare_transformer(encoder, config)
    encoder.precision = precision(config.precision, device)
    if torch.device(device).type == "cpu" and encoder.config.max_tokens <= MAX_EAGER_TOKENS:
        encoder.model.set_attn_implementation("eager")
    if (pooler := getattr(encoder.model, "pooler", None)) is not None:
        pooler.requires_grad_(False)  # replaced by the head


# Losses over the list of a query.


def list_loss(config: ListLossSettings, logits: Tensor, mask: Tensor, relevant: Tensor) -> Tensor:
    """Compute the configured loss. logits: [Q, n]; mask, relevant: bool [Q, n], as below -> scalar"""
    if config.name == "hinge":
        return hinge_loss(torch.sigmoid(logits), mask, config.margin)
    if config.name == "pointwise":
        return pointwise_loss(logits, mask, relevant)
    return listwise_loss(logits, mask, config.temperature)


def hinge_loss(scores: Tensor, mask: Tensor, margin: float) -> Tensor:
    """Mean over queries of the mean over negatives of max(0, s(q, n) - s(q, p) + margin): Gu et al. 2022,
    equation 3, with one cited paper per query (section 4.3).

    scores: [Q, 1 + n] of the cited paper (first) and its negatives, after the sigmoid; mask: bool [Q, 1 + n],
    False for padding. A query without negatives has a loss of 0.
    """
    negatives = mask[:, 1:]
    hinges = F.relu(scores[:, 1:] - scores[:, :1] + margin).masked_fill(~negatives, 0.0)
    return (hinges.sum(1) / negatives.sum(1).clamp(min=1)).mean()


def pointwise_loss(logits: Tensor, mask: Tensor, relevant: Tensor) -> Tensor:
    """Mean over queries of the mean binary cross-entropy of their pairs: Nogueira et al. 2020, equation 1.

    logits: [Q, n], before the sigmoid; mask: bool [Q, n], False for padding; relevant: bool [Q, n], True for
    cited papers.
    """
    labels = relevant.to(logits.dtype)
    entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").masked_fill(~mask, 0.0)
    return (entropy.sum(1) / mask.sum(1)).mean()


def listwise_loss(logits: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """Mean over queries of the cross-entropy of the cited paper in a softmax over its list: ListNet's top-one
    probability with a single relevant paper, Cao et al. 2007.

    logits: [Q, 1 + n], before the sigmoid; mask: as for `hinge_loss`.
    """
    scaled = (logits / temperature).masked_fill(~mask, -torch.inf)
    return (torch.logsumexp(scaled, 1) - scaled[:, 0]).mean()


class RerankModule(AveragedModule[CrossEncoder]):
    """Trains a cross-encoder on lists of papers."""

    def __init__(self, encoder: CrossEncoder, settings: RerankerSettings, seed: int, steps: int) -> None:
        super().__init__(encoder, settings.optimizer, settings.schedule, settings.ema, seed, steps)
        self.loss, self.kept = settings.loss, settings.batch.kept

    def logits(self, batch: ListBatch) -> Tensor:
        """The logits of all pairs, in the order of the chunks.

        The activations of the last `batch.kept` chunks are kept for the backward pass, which begins there;
        those of the others are computed again in it, one after the other.
        """
        again = len(batch.chunks) - self.kept
        return torch.cat([
            checkpoint(self.encoder, *chunk, use_reentrant=False) if number < again else self.encoder(*chunk)
            for number, chunk in enumerate(batch.chunks)
        ])  # fmt: skip

    def training_step(self, batch: ListBatch, step: int) -> Tensor:
        logits = self.logits(batch)
        grid = logits.new_zeros(batch.mask.numel()).index_copy(0, batch.positions, logits)
        grid = grid.view(batch.mask.shape)
        loss = list_loss(self.loss, grid, batch.mask, batch.relevant)
        self.log("train/loss", loss.detach(), batch_size=len(batch.mask))
        return loss


def _build_lists(
    settings: RerankerSettings,
    corpus: Corpus,
    prefetcher: Prefetcher,
    reader: PairReader,
    seed: int,
    tokens: int,
) -> tuple[TrainingLists, str]:
    """Build the training lists; returns them and the cache key of their prefetched papers.

    tokens: maximum of a chunk, padded.
    """
    split, negatives = training_split(corpus, settings.batch.splits), settings.negatives
    sets = DataSets.read(corpus, split, settings.batch.shares)
    rows = np.flatnonzero(prefetcher.covers(split.contexts))
    queries = QueryOrder.sample(rows, settings.queries_per_epoch, settings.epochs, seed, sets)
    distinct = np.unique(queries.rows)
    contexts = split.contexts[distinct]
    prefetched = prefetcher(contexts, negatives.depth, "training queries", (sets, distinct))
    batch = replace(settings.batch, tokens=tokens)
    lists = TrainingLists(reader, split, queries, prefetched, batch, negatives, seed, settings.lists == "top")
    return lists, prefetcher.key(contexts, negatives.depth, (sets, distinct))


def _build_validation(
    config: RerankingValidationSettings, corpus: Corpus, prefetcher: Prefetcher, seed: int
) -> tuple[RerankingValidation | None, str]:
    """Build the validation, None without queries, and the cache key of its prefetched papers."""
    rng = np.random.default_rng((seed, VALIDATION_SEED))
    if (split := validation_split(corpus, config.split, config.queries, rng)) is None:
        return None, ""
    papers = prefetcher(split.contexts, config.candidates, "validation queries").to_array()
    validation = RerankingValidation(split, papers)
    base = validation.base
    log.info(
        f"validation: {len(split):,} queries, the top {config.candidates:,} of {prefetcher.retriever.name}: "
        f"MRR {base['base/mrr']:.3f}, "
        + "".join(f"R@{k} {base[f'base/recall@{k}']:.3f}, " for k in (1, 10) if f"base/recall@{k}" in base)
        + f"ceiling {base['ceiling']:.3f}"
    )
    return validation, prefetcher.key(split.contexts, config.candidates)


class RerankingValidation:
    """Fixed queries and candidates to validate on."""

    def __init__(self, split: Split, papers: NDArray[np.int32]) -> None:
        """split: Q queries; papers [Q, k]: their prefetched papers, best first, -1 for none."""
        self.contexts, self.papers = split.contexts, papers
        self._positives = split.positives.padded()
        cited = self._positives[:, :, None]
        hit = ((papers[:, None, :] == cited) & (cited >= 0)).any(2)
        self.reachable = np.flatnonzero(hit.any(1))
        """queries with a cited paper among the candidates; the order of the others does not matter"""
        measures = recall_and_mrr(papers, self._positives)
        self.base = {f"base/{name}": value for name, value in measures.items()}
        self.base["ceiling"] = float((hit.sum(1).clip(max=10) / (self._positives >= 0).sum(1)).mean())

    def measure(
        self,
        encoder: CrossEncoder,
        reader: PairReader,
        tokens: int,
        share: Share = WHOLE,
    ) -> dict[str, float]:
        """Compute MRR and recall of the reranked candidates, also in prefetched order (`base/...`), and the
        best possible R@10 (`ceiling`).

        tokens: maximum per batch. share: of the queries that this process scores.
        """
        mask = (self.papers >= 0) & np.isin(np.arange(len(self.papers)), self.reachable)[:, None]
        own = np.isin(np.arange(len(self.papers)), self.reachable[share.part(len(self.reachable))])
        query, column = np.nonzero(mask & own[:, None])
        logits = torch.zeros(2, *mask.shape)  # scores, and how often each pair was scored
        logits[1, query, column] = 1
        pairs = reader.pairs(self.contexts[query], self.papers[query, column])
        with eval_mode(encoder), torch.inference_mode(), count_progress("validating", len(pairs)) as advance:
            hit = (
                (rows, encoder(*to_device(pairs.padded(rows), encoder.score.weight.device)))
                for rows in batches(pairs.lengths, tokens)
            )
            for rows, scores in one_behind(hit):
                logits[0, query[rows], column[rows]] = scores.cpu()
                advance(len(rows))
        grid, times = share.sum(logits).numpy()
        assert (times == mask).all(), "every pair is scored by one process"
        if not np.isfinite(grid).all():
            raise InputError("the training diverged, scores are not finite; lower model.optimizer.lr")
        ranked = top_k(self.papers, grid, self.papers.shape[1]).papers
        return recall_and_mrr(ranked, self._positives) | self.base


class RerankingRounds(Rounds):
    """Validates after each round, on all processes."""

    def __init__(
        self,
        best: Path,
        model: CrossEncoder,
        about: dict[str, Any],
        settings: RerankerSettings,
        validation: RerankingValidation | None,
        reader: PairReader,
        device: torch.device | str = "cpu",
    ) -> None:
        """validation: None saves the last weights as the best. device: where pairs are scored."""
        config = settings.validation
        logged = tuple(dict.fromkeys([*LOGGED, config.monitor]))
        super().__init__(best, model, about, config.monitor, config.patience, logged)
        self.validation, self.reader = validation, reader
        bytes_each = transformer_bytes(model.model, training=False)
        self.tokens = settings.batch.tokens or fitting_tokens(device, bytes_each, TOKENS)
        self._pairs = 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        self._pairs += len(batch.positions)

    def state_dict(self) -> dict[str, Any]:
        return {"pairs": self._pairs, **super().state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._pairs = state_dict["pairs"]

    def speed(self, trainer: pl.Trainer, seconds: float) -> dict[str, float]:
        pairs = Share.of(trainer).sum(torch.tensor(self._pairs))
        self._pairs = 0
        return {"train/pairs_per_second": int(pairs) / seconds}

    def measure(self, trainer: pl.Trainer, module: RerankModule, done: int) -> dict[str, float]:
        row, start = {"step": float(trainer.global_step)}, time.monotonic()
        if self.validation is None:
            return row
        measured = self.validation.measure(module.best_encoder, self.reader, self.tokens, module.share)
        row |= {f"val/{name}": value for name, value in measured.items()}
        return row | {"val/seconds": time.monotonic() - start}
