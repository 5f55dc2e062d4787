"""Stage 1: the hierarchical attention encoder (HAtten) that prefetches candidates, and its training.

The Lightning module that trains an encoder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
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
from hatten.losses import encoder_loss
from hatten.recipe import Encoder
from hatten.settings import EncoderLossSettings, EncoderRateSettings

log = logging.getLogger(__name__)

Optimizer = Callable[[Iterable[dict[str, Any]]], torch.optim.Optimizer]


class EncoderModule(pl.LightningModule):
    """Trains `encoder`; `average`, the moving average of its weights, is validated, mined with and saved."""

    def __init__(
        self,
        encoder: Encoder,
        optimizer: Optimizer,
        loss: EncoderLossSettings,
        schedule: EncoderRateSettings,
        ema: float,
        seed: int,
        total_steps: int,
    ) -> None:
        """ema: decay of the moving average at each step; 0: the weights themselves."""
        super().__init__()
        has_mean_path = isinstance(encoder, HAttenEncoder) and encoder.mean is not None
        if schedule.mean_only_rounds and not has_mean_path:
            raise InputError("model.schedule.mean_only_rounds needs model.encoder.residual=mean")
        self.encoder, self.loss, self.schedule, self.seed = encoder, loss, schedule, seed
        self.average = AveragedModel(encoder, multi_avg_fn=get_ema_multi_avg_fn(ema))
        self.stale: NDArray[np.float32] | None = None
        """[P, D] what the two levels gave for each paper after the last round (EncoderBatchSettings.stale)"""
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
        return encoder_loss(self.loss, similarity, levels, log_rate)

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
