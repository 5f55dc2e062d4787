"""The Lightning module that trains an encoder: cosines of a batch, the loss, stale negatives."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from hatten.batches import Batch
from hatten.encoder import Encoder, HAttenEncoder
from hatten.losses import encoder_loss
from hatten.settings import EncoderRateSettings, EncoderTraining
from training.module import AveragedModule, Optimizer


class EncoderModule(AveragedModule[Encoder]):
    """Trains an encoder on batches of queries and papers."""

    schedule: EncoderRateSettings

    def __init__(
        self, encoder: Encoder, optimizer: Optimizer, settings: EncoderTraining, seed: int, total_steps: int
    ) -> None:
        super().__init__(encoder, optimizer, settings.schedule, settings.ema, seed, total_steps)
        self.loss = settings.loss
        self.stale: NDArray[np.float32] | None = None
        """[P, D] what the two levels gave for each paper after the last round (model.batch.stale)"""

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
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

    def parameter_groups(self) -> list[tuple[list[nn.Parameter], float]]:
        """The slow weights, and those that the encoder calls fast."""
        slow: list[nn.Parameter] = []
        fast: list[nn.Parameter] = []
        for name, weight in self.encoder.named_parameters():
            if weight.requires_grad:
                (fast if name.startswith(self.encoder.fast) else slow).append(weight)
        return [(slow, 1.0), (fast, self.schedule.vectors)]
