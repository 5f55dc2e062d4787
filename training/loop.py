"""The folder of a training run: what it keeps to go on after an interrupt, and how it is run.

Lines that say how far a training run is.
The course of a run: history.csv of all rounds, training.png with the curves, metrics.json of the best.
"""

from __future__ import annotations

import csv
import json
import logging
import shutil
import sys
import time
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import OmegaConf
from pytorch_lightning.plugins.io import TorchCheckpointIO

from datasets.errors import InputError
from datasets.files import written_whole
from retrieval.vectors import SAY_EVERY
from training.checkpoint import save_torch

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


HISTORY, CURVES = "history.csv", "training.png"

METRICS = "metrics.json"
"""As of an evaluation (evaluation.files): the table of a sweep reads it."""

SHOWN = ("mrr", "recall@10", "recall@100", "recall@2000")


class History:
    """Rows of what was measured after each round; round 0 is before training."""

    def __init__(self, folder: Path, shown: Sequence[str] = SHOWN) -> None:
        """shown: measures of validation that are logged and drawn."""
        self.folder, self.shown = folder, shown
        self.rows: list[dict[str, float]] = []

    def add(self, done: int, row: dict[str, float], monitor: str) -> bool:
        """Log, keep and write a row; True when the round is the best so far, or can't be compared."""
        earlier = [old[monitor] for old in self.rows if monitor in old and old["round"] > 0]
        self.rows.append({"round": done, **row})
        shown = [f"{name} {row[f'val/{name}']:.3f}" for name in self.shown if f"val/{name}" in row]
        spent = [f"{name[:-8]} {row[name]:.0f} s" for name in row if name.endswith("/seconds")]
        if "val/papers" in row:
            shown.append(f"in a sample of {row['val/papers']:,.0f} papers")
        loss = [f"loss {row['train/loss']:.4f}"] if "train/loss" in row else []
        log.info(f"round {done} done: " + ", ".join(loss + shown + spent))
        self._write()
        best = monitor not in row or all(row[monitor] > value for value in earlier)
        if best and done:
            with written_whole(self.folder / METRICS) as path:
                path.write_text(json.dumps(self.rows[-1], indent=1) + "\n", encoding="utf-8")
        return best

    def _write(self) -> None:
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with written_whole(self.folder / HISTORY) as path, path.open("w", newline="") as file:
            table = csv.DictWriter(file, names)
            table.writeheader()
            table.writerows(self.rows)
        self._plot()

    def _plot(self) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for axis, names in ((left, ["train/loss"]), (right, [f"val/{name}" for name in self.shown])):
            for name in names:
                points = [(row["round"], row[name]) for row in self.rows if name in row]
                if points:
                    axis.plot(*zip(*points, strict=True), marker="o", label=name)
            axis.set_xlabel("rounds trained")
            axis.grid(alpha=0.3)
            if axis.has_data():
                axis.legend()
        left.set_ylabel("mean loss of the round")
        right.set_ylim(0, 1)
        with written_whole(self.folder / CURVES) as path:
            figure.savefig(path, format="png", dpi=120)


# Lightning's tips, and its warnings of what is meant to be so: files of the run are already in its folder.
logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", module="pytorch_lightning")

LAST = "last.ckpt"
"""The whole state of a run after its last round; what resume=true goes on from."""

WRITTEN_SETTINGS = "config.yaml"
"""The settings of the run in a folder; a resumed run must have the same."""


def fit(
    trainer: pl.Trainer, module: pl.LightningModule, data: pl.LightningDataModule, last: Path | None
) -> None:
    """Train, from the state in `last` on where there is one. An interrupt is a KeyboardInterrupt."""
    try:
        trainer.fit(module, datamodule=data, ckpt_path=str(last) if last else None, weights_only=True)
    except SystemExit:
        if trainer.interrupted:  # Lightning makes an exit of an interrupt; the entry point wants to see it
            raise KeyboardInterrupt from None
        raise
    finally:
        wandb = sys.modules.get("wandb")  # there only with logger=wandb
        if wandb is not None and wandb.run is not None:
            wandb.finish()  # or the next job of a sweep would go on with this one's run


class WholeFiles(TorchCheckpointIO):
    """Checkpoints whole or not at all: Lightning moves them out of /tmp, which may be another device."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save_torch(checkpoint, Path(path))


def saver(folder: Path) -> pl.Callback:
    """Writes the state of the run after each round."""
    from pytorch_lightning.callbacks import ModelCheckpoint

    return ModelCheckpoint(
        dirpath=folder,
        filename=LAST.removesuffix(".ckpt"),
        save_top_k=1,
        monitor=None,
        every_n_epochs=1,
        save_on_train_epoch_end=True,
        enable_version_counter=False,
    )


def start_anew(folder: Path, best: str, settings: dict[str, Any], others: Sequence[str] = ()) -> None:
    """Write down the settings of the run. What an earlier one left goes to `earlier`.

    best: the name of what is saved; others: names of more that a run writes.
    """
    names = (LAST, best, HISTORY, CURVES, METRICS, WRITTEN_SETTINGS, *others)
    left = [name for name in names if (folder / name).exists()]
    if LAST in left or best in left:
        earlier = folder / "earlier"
        shutil.rmtree(earlier, ignore_errors=True)
        earlier.mkdir()
        for name in left:
            (folder / name).rename(earlier / name)
        log.info(f"the run that was in {folder} is now in {earlier}; resume=true would have gone on with it")
    with written_whole(folder / WRITTEN_SETTINGS) as path:
        OmegaConf.save(settings, path)


def resume_point(folder: Path, settings: dict[str, Any]) -> Path | None:
    """The state to go on from, None when there is none; InputError if it is damaged or of other settings."""
    last, written = folder / LAST, folder / WRITTEN_SETTINGS
    if not last.exists():
        log.info(f"nothing to resume in {folder}: starting from the beginning")
        return None
    earlier = OmegaConf.to_container(OmegaConf.load(written)) if written.exists() else None
    anew = "or start anew with resume=false or another output_dir"
    for part, value in settings.items():
        if not isinstance(earlier, dict) or earlier.get(part) != value:
            what = "other data" if part == "corpus" else f"other settings of `{part}`"
            raise InputError(f"{written}: the interrupted run had {what}; give the same, {anew}")
    if not zipfile.is_zipfile(last):
        raise InputError(f"{last}: damaged, cannot go on from it; put a whole one there, {anew}")
    return last
