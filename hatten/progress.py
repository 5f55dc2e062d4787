"""Lines that say how far a training run is."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytorch_lightning as pl

from retrieval.encode import SAY_EVERY

log = logging.getLogger(__name__)


class Progress(pl.Callback):
    """A line on how far the run is and how long it will take, every few seconds."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._said = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start = None  # rounds differ in speed: a rate is that of its round

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now = time.monotonic()
        if self._start is None:  # the first step warms up, so it does not count
            self._start = self._said = now
            self._first = trainer.global_step
            return
        if now - self._said < SAY_EVERY:
            return
        self._said = now
        total = int(trainer.num_training_batches) * (trainer.max_epochs or 1)
        rate = (trainer.global_step - self._first) / (now - self._start)
        left = (total - trainer.global_step) / rate
        log.info(
            f"round {trainer.current_epoch + 1} of {trainer.max_epochs}, "
            f"step {trainer.global_step} of {total}, loss {float(outputs['loss']):.4f}, "
            f"{rate:.2f} steps/s, about {left / 60:.1f} min left"
        )
