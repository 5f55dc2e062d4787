"""What happens between the rounds of a reranker's training: validate, keep the best, stop early."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from hatten.history import History
from rerank.module import RerankModule
from rerank.pairs import PairReader
from rerank.validation import Validation, ValidationConfig

log = logging.getLogger(__name__)

SHOWN = ("mrr", "recall@1", "recall@10", "base/mrr", "base/recall@10", "ceiling")


class Rounds(pl.Callback):
    """Validates after each round, saves the best weights, and ends the training when they are long past.

    What it needs to go on is in its state: the history.
    """

    def __init__(
        self,
        best: Path,
        config: ValidationConfig,
        validation: Validation | None,
        reader: PairReader,
        tokens: int,
        about: dict[str, Any],
    ) -> None:
        """best: the folder of the best weights, saved with what is known `about` them.

        validation: None where there is nothing to validate with; then the last weights are the best.
        """
        self.best, self.config, self.validation, self.about = best, config, validation, about
        self.reader, self.tokens = reader, tokens
        self.history = History(best.parent, tuple(dict.fromkeys([*SHOWN, config.monitor])))
        self._losses: list[Tensor] = []
        self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history.rows = list(state_dict["history"])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._past_best():  # of a resumed run that had ended early
            trainer.should_stop = True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start, self._losses, self._seen = time.monotonic(), [], 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(outputs["loss"].detach())
        self._seen += len(batch.place)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, RerankModule)
        start, seconds = time.monotonic(), time.monotonic() - self._start
        # Lightning has divided each by the number that a step accumulates.
        loss = torch.stack(self._losses).mean() * trainer.accumulate_grad_batches
        row = {
            "step": float(trainer.global_step),
            "train/loss": float(trainer.strategy.reduce(loss, reduce_op="mean")),
            "train/seconds": seconds,
            "train/pairs_per_second": self._pairs(trainer) / seconds,
        }
        if self.validation is not None:
            measured = self.validation.measure(
                pl_module.best_encoder,
                self.reader,
                self.tokens,
                trainer.global_rank,
                trainer.world_size,
                lambda own: torch.as_tensor(
                    trainer.strategy.reduce(own.to(pl_module.device), reduce_op="sum")
                ).cpu(),
            )
            row |= {f"val/{name}": value for name, value in measured.items()}
            row["val/seconds"] = time.monotonic() - start
        pl_module.log_dict(
            {name: value for name, value in row.items() if name != "step"}, rank_zero_only=True
        )
        if trainer.is_global_zero:
            self._keep(pl_module, trainer.current_epoch + 1, row)
        self.history.rows = trainer.strategy.broadcast(self.history.rows)
        if self._past_best():
            log.info(f"no better {self.config.monitor} in {self.config.patience} validations: training ends")
            trainer.should_stop = True

    def _pairs(self, trainer: pl.Trainer) -> float:
        """Pairs of the round, over all processes."""
        return float(trainer.strategy.reduce(torch.tensor(float(self._seen)), reduce_op="sum"))

    def _keep(self, module: RerankModule, done: int, row: dict[str, float]) -> None:
        """Write the history, and save the weights when they are the best so far."""
        if self.history.add(done, row, f"val/{self.config.monitor}"):
            # No times: the same run gives the same file.
            measured = {
                name: value for name, value in row.items() if not name.endswith(("seconds", "second"))
            }
            module.best_encoder.save(self.best, {**self.about, "round": done, **measured})

    def _past_best(self) -> bool:
        """Whether the last `patience` validations were all no better than one before."""
        values = [row[name] for row in self.history.rows if (name := f"val/{self.config.monitor}") in row]
        if not self.config.patience or not values:
            return False
        return len(values) - 1 - int(np.argmax(values)) >= self.config.patience
