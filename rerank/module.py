"""The Lightning module that trains a reranker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from rerank.cross_encoder import CrossEncoder
from rerank.data import ListBatch
from rerank.losses import list_loss
from rerank.settings import ListLossSettings
from retrieval.vectors import precision
from training.settings import FineTuningSettings, RateSettings

SHORT = 256
"""Tokens of a pair up to which plain attention trains faster on a CPU than torch's fused one (by a quarter at
128), whose backward pass is slow there. Its memory grows with the square of the length."""

Optimizer = Callable[[Iterable[dict[str, Any]]], torch.optim.Optimizer]


def prepare_for_training(encoder: CrossEncoder, config: FineTuningSettings) -> None:
    """Set an encoder's precision, dropout and attention to those of a training."""
    encoder.train()  # a pretrained one comes in evaluation mode
    encoder.precision = precision(config.precision)
    for part in encoder.modules():
        if isinstance(part, nn.Dropout):
            part.p = config.dropout
    if not torch.cuda.is_available() and encoder.config.max_tokens <= SHORT:
        encoder.model.set_attn_implementation("eager")
    if config.gradient_checkpointing:
        encoder.model.gradient_checkpointing_enable({"use_reentrant": False})
    if (pooler := getattr(encoder.model, "pooler", None)) is not None:
        pooler.requires_grad_(False)  # the head takes its place


class RerankModule(pl.LightningModule):
    """Trains `encoder`; `best_encoder`, of averaged weights if wanted, is validated and saved."""

    def __init__(
        self,
        encoder: CrossEncoder,
        optimizer: Optimizer,
        loss: ListLossSettings,
        schedule: RateSettings,
        ema: float,
        seed: int,
        total_steps: int,
    ) -> None:
        """ema: decay of the moving average at each step; 0: the weights themselves."""
        super().__init__()
        self.encoder, self.loss, self.schedule, self.seed = encoder, loss, schedule, seed
        self.average: AveragedModel | None = None
        if ema:
            self.average = AveragedModel(encoder, multi_avg_fn=get_ema_multi_avg_fn(ema))
            self.average.requires_grad_(False)
        self._averaged = 0
        self._make_optimizer, self.total_steps = optimizer, total_steps

    @property
    def best_encoder(self) -> CrossEncoder:
        """The encoder that is validated and saved."""
        found = self.encoder if self.average is None else self.average.module
        assert isinstance(found, CrossEncoder)
        return found

    def on_train_epoch_start(self) -> None:
        # A resumed round draws the dropout of an uninterrupted one, each process its own.
        torch.manual_seed((self.seed * 1_000_003 + self.current_epoch) * 1_009 + self.global_rank)
        self._averaged = self.global_step

    def training_step(self, batch: ListBatch, step: int) -> Tensor:
        logits = torch.cat([self.encoder(*chunk) for chunk in batch.chunks])
        flat = logits.new_zeros(batch.there.numel()).index_copy(0, batch.place, logits)
        loss = list_loss(self.loss, flat.view(batch.there.shape), batch.there, batch.relevant)
        self.log("train/loss", loss.detach(), batch_size=len(batch.there))
        return loss

    def on_train_batch_end(self, outputs: object, batch: ListBatch, batch_idx: int) -> None:
        if self.average is not None and self.global_step > self._averaged:  # an optimiser step was made
            self.average.update_parameters(self.encoder)
            self._averaged = self.global_step

    def configure_optimizers(self) -> Any:
        trained = [weight for weight in self.encoder.parameters() if weight.requires_grad]
        optimizer = self._make_optimizer([{"params": trained}])
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.schedule.rate(step, self.total_steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}
