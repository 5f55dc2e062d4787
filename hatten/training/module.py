"""The Lightning module that trains an encoder: similarities and loss of a batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from citerec.hatten.encoder import Encoder
from citerec.hatten.settings import EncoderRateSettings, EncoderTraining
from citerec.hatten.training.batches import Batch
from citerec.hatten.training.losses import build_loss
from citerec.training.module import AveragedModule


class EncoderModule(AveragedModule[Encoder]):
    """Trains an encoder on batches of queries and papers."""

    some_weights = True  # a process may have documents without words
    schedule: EncoderRateSettings

    def __init__(self, encoder: Encoder, settings: EncoderTraining, seed: int, total_steps: int) -> None:
        super().__init__(encoder, settings.optimizer, settings.schedule, settings.ema, seed, total_steps)
        self.loss, self.restart = build_loss(settings.loss), settings.restart

    def on_train_epoch_start(self) -> None:
        if self.restart and self.current_epoch:  # before the first step, nothing is averaged
            self.encoder.load_state_dict(self.best_encoder.state_dict())

    def training_step(self, batch: Batch, step: int) -> Tensor:
        levels, log_rate = (torch.as_tensor(x, device=self.device) for x in (batch.levels, batch.log_rate))
        loss = self.loss(self.similarity(batch), levels, log_rate, batch.positives)
        self.log("train/loss", loss.detach(), batch_size=len(batch.levels))
        return loss

    def similarity(self, batch: Batch) -> Tensor:
        """Cosines of the queries and papers of all processes [Q, N]; each process encodes a share of both."""
        queries = self.share.gather(self.encoder.encode(batch.queries), len(batch.levels))
        cited = self.share.gather(self.encoder.encode(batch.cited), batch.cited_count)
        other_count = batch.levels.shape[1] - batch.cited_count
        others = self.share.gather(self.encoder.encode(batch.others), other_count)
        return F.normalize(queries, dim=1) @ F.normalize(torch.cat([cited, others]), dim=1).T

    def parameter_groups(self) -> list[tuple[list[nn.Parameter], float]]:
        """Return (weights, factor on the learning rate) of the slow and of the fast weights."""
        slow: list[nn.Parameter] = []
        fast: list[nn.Parameter] = []
        for name, weight in self.encoder.named_parameters():
            if weight.requires_grad:
                (fast if name.startswith(self.encoder.fast_prefixes) else slow).append(weight)
        return [(slow, 1.0), (fast, self.schedule.vectors)]
