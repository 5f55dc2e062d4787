"""Stage 1: the hierarchical attention encoder (HAtten) that prefetches candidates, and its training.

The Lightning module that trains an encoder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from datasets.errors import InputError
from hatten.batches import Batch
from hatten.encoder import HAttenEncoder
from hatten.losses import infonce_loss, triplet_loss
from hatten.recipe import Encoder
from training.settings import RateConfig

log = logging.getLogger(__name__)

Optimizer = Callable[[Iterable[dict[str, Any]]], torch.optim.Optimizer]


@dataclass(frozen=True)
class LossConfig:
    """What is minimised."""

    name: str = "triplet"
    """triplet (Gu et al. 2022, equation 3) or infonce"""
    margin: float = 0.05
    """of the triplet loss, for each level between positive and negative"""
    positives: tuple[int, ...] = (1, 2)
    """levels that serve as positives in the triplet loss; (1,) leaves positive mining out"""
    temperature: float = 0.05
    """of infonce"""
    correct_rate: bool = False
    """of infonce: make up for popular papers being negatives more often"""

    def __post_init__(self) -> None:
        if self.name not in ("triplet", "infonce"):
            raise InputError(f"model.loss.name={self.name}: choose triplet or infonce")
        if self.temperature <= 0:
            raise InputError(f"model.loss.temperature={self.temperature}: must be above 0")

    def __call__(self, similarity: Tensor, levels: Tensor, log_rate: Tensor) -> Tensor:
        if self.name == "infonce":
            return infonce_loss(similarity, levels, self.temperature, log_rate if self.correct_rate else None)
        return triplet_loss(similarity, levels, self.positives, self.margin)


@dataclass(frozen=True)
class ScheduleConfig(RateConfig):
    """Learning rates over the steps of a run."""

    vectors: float = 1.0
    """rate of the weights that the encoder calls fast (HAtten's word vectors and mean path), as a multiple"""
    mean_only_rounds: int = 0
    """rounds at the start in which the mean path and word vectors alone are trained (residual=mean)"""


class EncoderModule(pl.LightningModule):
    """Trains `encoder`; `average`, the moving average of its weights, is validated, mined with and saved."""

    def __init__(
        self,
        encoder: Encoder,
        optimizer: Optimizer,
        loss: LossConfig,
        schedule: ScheduleConfig,
        ema: float,
        seed: int,
        total_steps: int,
    ) -> None:
        """ema: decay of the moving average at each step; 0: the weights themselves."""
        super().__init__()
        if not 0 <= ema < 1:
            raise InputError(f"model.ema={ema}: must be in 0..1, below 1")
        has_mean_path = isinstance(encoder, HAttenEncoder) and encoder.mean is not None
        if schedule.mean_only_rounds and not has_mean_path:
            raise InputError("model.schedule.mean_only_rounds needs model.encoder.residual=mean")
        self.encoder, self.loss, self.schedule, self.seed = encoder, loss, schedule, seed
        self.average = AveragedModel(encoder, multi_avg_fn=get_ema_multi_avg_fn(ema))
        self.stale: NDArray[np.float32] | None = None
        """[P, D] what the two levels gave for each paper after the last round (BatchConfig.stale)"""
        self._make_optimizer, self._total_steps = optimizer, total_steps

    @property
    def best_encoder(self) -> Encoder:
        """The encoder of the averaged weights."""
        averaged: nn.Module = self.average.module
        assert isinstance(averaged, Encoder)
        return averaged

    def on_train_epoch_start(self) -> None:
        # A resumed round draws the dropout that an uninterrupted one draws.
        torch.manual_seed(self.seed * 1_000_003 + self.current_epoch)
        if isinstance(self.encoder, HAttenEncoder):
            self.encoder.mean_only = self.current_epoch < self.schedule.mean_only_rounds

    def training_step(self, batch: Batch, step: int) -> Tensor:
        loss = self.loss_of(batch, self.similarity(batch))
        self.log("train/loss", loss.detach(), batch_size=len(batch.levels))
        return loss

    def similarity(self, batch: Batch) -> Tensor:
        """Cosines of queries and papers [Q, N]."""
        queries = F.normalize(self.encoder.encode(batch.queries), dim=1)
        papers = F.normalize(torch.cat([self.encoder.encode(batch.cited), self._others(batch)]), dim=1)
        return queries @ papers.T

    def loss_of(self, batch: Batch, similarity: Tensor) -> Tensor:
        """What is minimised, a scalar."""
        levels, log_rate = (
            torch.from_numpy(part).to(similarity.device) for part in (batch.levels, batch.log_rate)
        )
        return self.loss(similarity, levels, log_rate)

    def _others(self, batch: Batch) -> Tensor:
        """Vectors of the mined and random papers [N - cited, D]."""
        if self.stale is None:
            return self.encoder.encode(batch.others)
        assert isinstance(self.encoder, HAttenEncoder)
        if self.encoder.mean_only:
            return self.encoder.encode(batch.others)
        levels = torch.from_numpy(self.stale[batch.other_rows]).to(self.device)
        return self.encoder.with_mean(batch.others, levels)

    def on_train_batch_end(self, outputs: object, batch: Batch, batch_idx: int) -> None:
        self.average.update_parameters(self.encoder)

    def configure_optimizers(self) -> Any:
        slow: list[nn.Parameter] = []
        fast: list[nn.Parameter] = []
        for name, weight in self.encoder.named_parameters():
            if weight.requires_grad:
                (fast if name.startswith(self.encoder.fast) else slow).append(weight)
        optimizer = self._make_optimizer([{"params": slow}, {"params": fast}])
        optimizer.param_groups[1]["lr"] *= self.schedule.vectors
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, self._rate),
                "interval": "step",
            },
        }

    def _rate(self, step: int) -> float:
        return self.schedule.rate(step, self._total_steps)


if TYPE_CHECKING:
    from hatten.checkpoint import load_reference_checkpoint

__all__ = ["load_reference_checkpoint"]


def __getattr__(name: str) -> object:
    if name == "load_reference_checkpoint":  # on demand: torch is heavy, and configuration needs none of it
        from hatten.checkpoint import load_reference_checkpoint

        return load_reference_checkpoint
    raise AttributeError(name)
