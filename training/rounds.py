"""After each round of a training: validate, write the history, save the best weights, stop early."""

from __future__ import annotations

import csv
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from citerec.base.errors import InputError
from citerec.base.files import atomic_write, write_text
from citerec.datasets.corpus import Corpus, Split
from citerec.training.hub import Pretrained
from citerec.training.module import AveragedModule
from citerec.training.processes import Share
from citerec.training.settings import RECALL_AT

log = logging.getLogger(__name__)

VALIDATION = "val"
"""The split to validate on, by default."""
HISTORY, CURVES = "history.csv", "training.png"
METRICS = "metrics.json"
"""Metrics of the best round, read by the table of a sweep."""
SHOWN = ("mrr", "recall@10", "recall@100", "recall@2000")
VALIDATION_SEED = 2
"""Second seed of validation samples, to make them independent of other uses of the seed."""


def validation_split(corpus: Corpus, name: str, queries: int, rng: np.random.Generator) -> Split | None:
    """Sample at most `queries` of the split to validate on, the same for all models with the same seed; None
    without any. InputError for an unknown split, unless it is the default, which a corpus may lack."""
    if queries and (name != VALIDATION or VALIDATION in corpus.splits) and len(split := corpus.split(name)):
        return split.take(np.sort(rng.permutation(len(split))[:queries]))
    log.warning(f"corpus {corpus.name}: no validation, so the last weights will be saved")
    return None


def recall_and_mrr(papers: NDArray[Any], positives: NDArray[Any]) -> dict[str, float]:
    """MRR and recall at RECALL_AT of ranked papers [Q, k]; positives [Q, most], padded with -1."""
    never = np.iinfo(np.int64).max - 1
    ranks = np.full(positives.shape, never)  # [Q, most]
    for row, ranked, wanted in zip(ranks, papers, positives[:, :, None], strict=True):
        hits = (ranked == wanted) & (wanted >= 0)  # one query at a time: [most, k] may be large
        row[:] = np.where(hits.any(1), hits.argmax(1), never)
    metrics = {"mrr": float((1.0 / (ranks.min(1, initial=never) + 1.0)).mean())}
    cited = (positives >= 0).sum(1)
    for k in RECALL_AT:
        if k <= papers.shape[1]:
            metrics[f"recall@{k}"] = float(((ranks < k).sum(1) / cited).mean())
    return metrics


class History:
    """Metrics after each round (0: before training), written to history.csv and plotted to training.png."""

    def __init__(self, folder: Path, shown: Sequence[str] = SHOWN) -> None:
        """shown: validation measures to log and plot."""
        self.folder, self.shown = folder, shown
        self.rows: list[dict[str, float]] = []

    def add(self, done: int, row: dict[str, float], monitor: str) -> bool:
        """Log and append a row; True if the round is the best so far or has no value of `monitor`."""
        earlier = [old[monitor] for old in self.rows if monitor in old and old["round"] > 0]
        self.rows.append({"round": done, **row})
        parts = [f"loss {row['train/loss']:.4f}"] if "train/loss" in row else []
        parts += [f"{name} {row[f'val/{name}']:.3f}" for name in self.shown if f"val/{name}" in row]
        if "val/papers" in row:
            parts.append(f"in a sampled pool of {row['val/papers']:,.0f} papers")
        parts += [
            f"{name.removesuffix('/seconds')} {row[name]:.0f} s" for name in row if name.endswith("/seconds")
        ]
        log.info(f"round {done} done: " + ", ".join(parts))
        self._write()
        best = monitor not in row or all(row[monitor] > value for value in earlier)
        if best and done:
            write_text(self.folder / METRICS, json.dumps(self.rows[-1], indent=1) + "\n")
        return best

    def _write(self) -> None:
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with (
            atomic_write(self.folder / HISTORY) as path,
            path.open("w", newline="", encoding="utf-8") as file,
        ):
            table = csv.DictWriter(file, names)
            table.writeheader()
            table.writerows(self.rows)
        self._plot()

    def _plot(self) -> None:
        from matplotlib.ticker import MaxNLocator

        from citerec.base.plots import draw, highlight_colours, name_curves, panels, save

        figure, axes = panels("Loss and validation by round", 2)
        parts = ("train/", ("loss",), "loss, mean of the round"), ("val/", self.shown, "validation")
        for axis, (prefix, names, title) in zip(axes, parts, strict=True):
            curves = {
                name: {row["round"]: row[prefix + name] for row in self.rows if prefix + name in row}
                for name in names
            }
            # Skip constant 1, such as recall@2000 in a smaller pool.
            curves = {name: curve for name, curve in curves.items() if set(curve.values()) - {1.0}}
            draw(axis, curves, colours := highlight_colours(curves))
            axis.set(xlabel="rounds trained", xlim=(-0.3, max(1, self.rows[-1]["round"]) + 0.3))
            low, high = axis.get_ylim()
            losses = [value for curve in curves.values() for value in curve.values()]
            if prefix == "train/" and losses and max(losses) > 10 * min(losses) > 0:
                axis.set_yscale("log")  # else the first round flattens the others
            else:
                axis.set_ylim((0, 1) if prefix == "val/" else (min(0, low), high))
            axis.set_title(title, loc="left", fontsize=9.5)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            if curves:
                name_curves(axis, curves, colours)
        save(figure, self.folder / CURVES)


class Rounds(pl.Callback):
    """Validates after each round, saves the best weights, and stops early.

    Subclasses implement `measure`. The callback's state contains what a resumed run needs.
    """

    def __init__(
        self,
        best: Path,
        model: Pretrained,
        about: dict[str, Any],
        monitor: str,
        patience: int = 0,
        shown: Sequence[str] = SHOWN,
    ) -> None:
        """best: folder to save the model of the best round in, with its provenance `about`.

        model: what is saved with the encoder, such as its vocabulary.

        monitor: the measure that decides which round is best; the last round if it is not measured.
        patience: stop after this many validations without improvement; 0 disables early stopping.
        """
        self.folder, self.best, self.model, self.about = best.parent, best, model, about
        self.monitor, self.patience = f"val/{monitor}", patience
        self.history = History(best.parent, shown)
        self._losses: list[Tensor] = []
        self._earlier = np.empty(0)  # losses of the round before the run was resumed
        self._start = 0.0

    def measure(self, trainer: pl.Trainer, module: Any, done: int) -> dict[str, float]:
        """Metrics for the history after `done` rounds: `val/...` and others."""
        raise NotImplementedError

    def speed(self, trainer: pl.Trainer, seconds: float) -> dict[str, float]:
        """Metrics of the speed of the round."""
        return {"train/steps_per_second": len(self._round_losses()) / seconds}

    def _round_losses(self) -> NDArray[np.float64]:
        """Return the loss of each batch of the round so far; waits for a GPU."""
        new = torch.stack(self._losses).cpu().numpy() if self._losses else np.empty(0)
        return np.concatenate([self._earlier, new.astype(np.float64)])

    def state_dict(self) -> dict[str, Any]:
        round_state = {"losses": self._round_losses().tolist(), "seconds": time.monotonic() - self._start}
        return {"history": self.history.rows, **round_state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history.rows = list(state_dict["history"])
        self._earlier, self._start = np.array(state_dict["losses"]), time.monotonic() - state_dict["seconds"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._out_of_patience():  # resumed after early stopping
            trainer.should_stop = True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start, self._losses, self._earlier = time.monotonic(), [], np.empty(0)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(outputs["loss"].detach())

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        losses = self._round_losses()  # the only wait for a GPU in a round
        seconds = time.monotonic() - self._start
        # Lightning divides each loss by the number of accumulated batches.
        loss = torch.tensor(losses.mean() * trainer.accumulate_grad_batches)
        share = Share.of(trainer)
        row = {"train/loss": float(share.sum(loss)) / share.processes, "train/seconds": seconds}
        if len(losses) and not np.isfinite(row["train/loss"]):
            raise InputError("the training diverged, its loss is not finite; lower model.optimizer.lr")
        row |= self.speed(trainer, seconds)
        done = trainer.current_epoch + 1
        row |= self.measure(trainer, pl_module, done)
        pl_module.log_dict({k: value for k, value in row.items() if k != "step"}, rank_zero_only=True)
        self.record(trainer, pl_module, done, row)
        if self._out_of_patience():
            log.info(f"no better {self.monitor[4:]} in {self.patience} validations: stopping early")
            trainer.should_stop = True

    def record(self, trainer: pl.Trainer, module: Any, done: int, row: dict[str, float]) -> None:
        """Write the history, and save the weights if they are the best so far."""
        assert isinstance(module, AveragedModule)
        if trainer.is_global_zero and self.history.add(done, row, self.monitor) and done:
            # Without durations, so that repeated runs write identical files.
            measured = {k: value for k, value in row.items() if not k.endswith(("seconds", "per_second"))}
            about = {**self.about, "round": done, **measured}
            self.model.with_encoder(module.best_encoder, about).save(self.best)
        self.history.rows = trainer.strategy.broadcast(self.history.rows)

    def _out_of_patience(self) -> bool:
        """True if the last `patience` validations brought no improvement."""
        values = [row[self.monitor] for row in self.history.rows if row["round"] > 0 and self.monitor in row]
        return bool(self.patience and values) and len(values) - 1 - int(np.argmax(values)) >= self.patience
