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

    def __init__(self, steps: int | None = None) -> None:
        """steps: of the whole run, where its rounds are not of the same length."""
        self._steps = steps
        self._start: float | None = None
        self._said = 0.0
        self._ended: float | None = None
        self._pause: float | None = None

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start = None  # rounds differ in speed: a rate is that of its round
        if self._ended is not None:
            self._pause = time.monotonic() - self._ended  # what is done between two rounds

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._ended = now = time.monotonic()
        if self._start is None:  # the first step warms up, so it does not count
            self._start = self._said = now
            self._first = trainer.global_step
            return
        if now - self._said < SAY_EVERY or trainer.global_step == self._first:
            return
        self._said = now
        rounds = trainer.max_epochs or 1
        total = self._steps or int(trainer.num_training_batches) * rounds
        rate = (trainer.global_step - self._first) / (now - self._start)
        left = (total - trainer.global_step) / rate + (rounds - trainer.current_epoch) * (self._pause or 0.0)
        loss = float(outputs["loss"]) * trainer.accumulate_grad_batches  # by which Lightning has divided it
        what = "" if self._pause is not None else "of training "
        log.info(
            f"round {trainer.current_epoch + 1} of {rounds}, "
            f"step {trainer.global_step} of {total}, loss {loss:.4f}, "
            f"{rate:.2f} steps/s, about {left / 60:.1f} min {what}left"
        )
