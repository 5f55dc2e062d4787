"""What a run leaves for `resume=true`, and how it goes on from there.

The output folder contains config.yaml (settings), last.ckpt (full state of the last checkpoint), history.csv,
training.png, metrics.json (best round) and the folder of the best weights. A resumed run continues from
last.ckpt to the weights of an uninterrupted run, on a CPU bit for bit; its settings must be those of
config.yaml.

A folder with a checkpoint is only resumed: a new run needs another folder.
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.utilities.exceptions import SIGTERMException

from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.training.checkpoint import save_torch
from citerec.training.settings import LAST, RESTART

SAVED_SETTINGS = "config.yaml"
"""The settings of a run; a resumed run must have the same."""
CLIPPING = "trainer.gradient_clip_val"
"""A part of them, which files of earlier versions lack."""
LOCK = "lock"
"""Held by the process that trains in the folder."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically; Lightning moves them from /tmp, which may be on another device."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save_torch(checkpoint, Path(path))


class RunCheckpoint(Checkpoint):
    """Saves the full state after each round, within rounds every `seconds`, and when SIGTERM stops it."""

    def __init__(self, folder: Path, seconds: float = inf) -> None:
        self.folder, self.seconds = folder, seconds
        self._saved = time.monotonic()

    def start_new_run(self, settings: Mapping[str, Any]) -> None:
        """Write the settings of a new run; InputError if the folder has one already."""
        refuse_used(self.folder)
        text = yaml.safe_dump(plain(settings), sort_keys=False, allow_unicode=True)
        write_text(self.folder / SAVED_SETTINGS, text)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._saved = time.monotonic()

    # Not at the end of a batch: the moving average of the weights is updated only after the callbacks.
    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not batch_idx or batch_idx % trainer.accumulate_grad_batches:
            return
        if trainer.strategy.broadcast(time.monotonic() - self._saved >= self.seconds):
            self._save(trainer)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        # Lightning raises it between two batches, in one process.
        if isinstance(exception, SIGTERMException) and trainer.world_size == 1:
            done = trainer.fit_loop.epoch_loop.batch_progress.current.completed
            if done % trainer.accumulate_grad_batches == 0:
                self._save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(self.folder / LAST, weights_only=False)
        self._saved = time.monotonic()

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.strategy.barrier()  # all processes open the best weights, which the first one has written


def refuse_used(folder: Path) -> None:
    """Raise InputError if a run has saved its state in the folder."""
    if (folder / LAST).exists():
        raise InputError(f"{folder}: has a run; go on with resume=true, or name another output_dir")


def resume_point(folder: Path, settings: Mapping[str, Any]) -> Path | None:
    """The state to resume from; None if there is none, InputError if it is damaged or settings differ."""
    last, saved = folder / LAST, folder / SAVED_SETTINGS
    if not last.exists():
        return None
    earlier = yaml.safe_load(saved.read_text("utf-8")) if saved.exists() else None
    for section, value in plain(settings).items():
        default = value if section == CLIPPING else None
        if not isinstance(earlier, dict) or _lasting(earlier.get(section, default)) != _lasting(value):
            what = "other data" if section == "corpus" else f"other settings of `{section}`"
            raise InputError(f"{saved}: the interrupted run had {what}; use the same, or {RESTART}")
    if not zipfile.is_zipfile(last):
        raise InputError(f"{last}: damaged, cannot resume from it; restore it, or {RESTART}")
    return last


def _lasting(section: Any) -> Any:
    """A section without what may differ between machines and changes no weights."""
    if not isinstance(section, dict):
        return section
    return {name: value for name, value in section.items() if name not in ("cache_dir", "workers")}


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are read back from a file: lists for tuples, texts for paths."""
    values: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return values
