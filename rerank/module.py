"""The Lightning module that trains a reranker."""

from __future__ import annotations

import torch
from torch import Tensor

from rerank.cross_encoder import CrossEncoder
from rerank.data import ListBatch
from rerank.losses import distil_loss, list_loss
from rerank.settings import DistilLossSettings, ListLossSettings
from training.module import AveragedModule, Optimizer, prepare_transformer
from training.settings import FineTuningSettings, RateSettings

SHORT = 256
"""Tokens of a pair up to which plain attention trains faster on a CPU than torch's fused one (by a quarter at
128). Its memory grows with the square of the length."""


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
        self,
        encoder: CrossEncoder,
        optimizer: Optimizer,
        loss: ListLossSettings,
        schedule: RateSettings,
        ema: float,
        seed: int,
        total_steps: int,
        distil: DistilLossSettings | None = None,
    ) -> None:
        """distil: how batches with a teacher's logits are learned from."""
        super().__init__(encoder, optimizer, schedule, ema, seed, total_steps)
        self.loss, self.distil = loss, distil or DistilLossSettings(temperature=1.0)

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
