"""The Lightning module shared by all models: weight averaging, learning rates, seeds of rounds."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn

from citerec.base.errors import InputError
from citerec.retrieval.encoders.nets import weights_hash
from citerec.training.processes import WHOLE, Share
from citerec.training.settings import RESTART, FineTuningSettings, OptimizerSettings, RateSettings

Net = TypeVar("Net", bound=nn.Module)


def prepare_transformer(encoder: Any, config: FineTuningSettings) -> None:
    """Set the dropout of an encoder with a pretrained transformer, and freeze layers that are not trained;
    InputError if it has fewer layers than should be trained."""
    encoder.train()  # pretrained encoders are loaded in evaluation mode
    for part in encoder.modules():
        if isinstance(part, nn.Dropout):
            part.p = config.dropout
    if config.trained_layers:
        layers = next(part for part in encoder.model.modules() if isinstance(part, nn.ModuleList))
        if config.trained_layers > len(layers):
            raise InputError(
                f"model.trained_layers={config.trained_layers}: the transformer has {len(layers)} layers"
            )
        encoder.model.requires_grad_(False)
        layers[-config.trained_layers :].requires_grad_(True)


class AveragedModule(pl.LightningModule, Generic[Net]):
    """Trains `encoder` with a moving average of its weights, which is validated and saved.

    Weights that are not trained, such as GloVe's vectors, are shared with the average; checkpoints contain
    only their hash.

    Subclasses implement `training_step`, and override `parameter_groups` for different learning rates.
    """

    some_weights: ClassVar[bool] = False
    """whether a step may train only some of the weights"""
    share = WHOLE

    def __init__(
        self,
        encoder: Net,
        optimizer: OptimizerSettings,
        schedule: RateSettings,
        ema: float,
        seed: int,
        total_steps: int,
    ) -> None:
        """ema: decay of the moving average per step, 0 for none."""
        super().__init__()
        self.encoder, self.schedule, self.seed, self.total_steps = encoder, schedule, seed, total_steps
        weights = encoder.state_dict(keep_vars=True)
        self._fixed = {
            name: weight
            for name, weight in weights.items()
            if isinstance(weight, nn.Parameter) and not weight.requires_grad
        }
        self.average: Net | None = None
        if ema:
            shared = {id(weight): weight for weight in self._fixed.values()}
            self.average = deepcopy(encoder, shared).requires_grad_(False)
        self._averaged, self._optimizer, self._ema = 0, optimizer, ema

    @property
    def best_encoder(self) -> Net:
        """The encoder with averaged weights, which is validated and saved."""
        return self.encoder if self.average is None else self.average

    def setup(self, stage: str) -> None:
        self.share = Share.of(self.trainer)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for name in self._fixed_state():
            del checkpoint["state_dict"][name]
        checkpoint["fixed"] = self._fixed_hash

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if checkpoint.get("fixed") != self._fixed_hash:
            raise InputError(
                "the interrupted run began with other word vectors, another transformer or an old version; "
                f"use the same, or {RESTART}"
            )
        checkpoint["state_dict"] |= self._fixed_state()

    def _fixed_state(self) -> dict[str, nn.Parameter]:
        """The weights that are not trained, by their names in the module's state."""
        parts = ("encoder",) if self.average is None else ("encoder", "average")
        return {f"{part}.{name}": weight for part in parts for name, weight in self._fixed.items()}

    @cached_property
    def _fixed_hash(self) -> str:
        return weights_hash(nn.ParameterList(self._fixed.values()))

    def on_train_start(self) -> None:
        self._averaged = self.global_step

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # So that a resumed run draws the same numbers from any step on, and each process its own dropout.
        key = np.random.SeedSequence((self.seed, self.current_epoch, batch_idx, self.share.rank))
        torch.manual_seed(int(key.generate_state(1, np.uint64)[0]))

    def on_train_batch_end(self, outputs: object, batch: Any, batch_idx: int) -> None:
        if self.global_step > self._averaged:  # not between accumulated batches
            self.average_weights()

    @torch.no_grad()
    def average_weights(self) -> None:
        """Update the moving average with the current weights; the first step's are its first value."""
        if self.average is not None:
            pairs = zip(self.average.parameters(), self.encoder.parameters(), strict=True)
            own, new = zip(*((own, new) for own, new in pairs if own is not new), strict=True)
            torch._foreach_lerp_(own, new, 1.0 - self._ema if self._averaged else 1.0)
        self._averaged += 1

    def parameter_groups(self) -> list[tuple[list[nn.Parameter], float]]:
        """Groups of weights to train, with factors on the learning rate."""
        return [([weight for weight in self.encoder.parameters() if weight.requires_grad], 1.0)]

    def configure_optimizers(self) -> Any:
        settings = self._optimizer
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.name]
        optimizer = kind(
            [{"params": weights, "lr": factor * settings.lr} for weights, factor in self.parameter_groups()],
            lr=settings.lr,
            weight_decay=settings.weight_decay,
            eps=settings.eps,
            fused=True,  # all weights are updated in one kernel
        )
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.schedule.rate(step, self.total_steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}
