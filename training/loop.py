"""The training loop of all models: train.py calls the function named by `model.train`.

A model's `train(config)` reads its settings, so that their errors are reported first, and calls

    run(config, build)

where `build(given: TrainingRun) -> Training` creates the parts of the training from the prepared corpus:

    module     an AveragedModule (training/module.py): the network, its loss, its optimiser
    data       a LightningDataModule, reloaded each round
    rounds     a Rounds callback (training/rounds.py): measures and saves weights after each round
    count      number of rounds, which are Lightning's epochs
    settings   settings that a resumed run must share, besides `data`, `model` and `seed`
    summary    for the log line at the start
    files      files that the model writes besides those of every training
    trainer    further arguments of Lightning's Trainer
    check      called with the Trainer before anything is written

The output folder contains config.yaml (settings), last.ckpt (full state after the last round), history.csv,
training.png, metrics.json (best round) and the best weights. `resume=true` continues from last.ckpt to the
weights of an uninterrupted run, on a CPU bit for bit; settings must be those of config.yaml.

A new run writes to `unfinished` until its first round is saved. Then its files move to the output folder, and
those of an earlier run move to a subfolder of `earlier`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from lightning_utilities.core.rank_zero import rank_zero_only
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.accelerators import CUDAAccelerator
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from citerec.datasets.corpus import Corpus
from citerec.datasets.errors import InputError
from citerec.datasets.files import atomic_write
from citerec.retrieval.vectors import LOG_INTERVAL
from citerec.training.checkpoint import save_torch
from citerec.training.module import AveragedModule
from citerec.training.rounds import CURVES, HISTORY, METRICS, Rounds
from citerec.training.settings import DATE_FORMAT, LATEST

log = logging.getLogger(__name__)

# Lightning's tips, and warnings about intended behaviour, such as existing files in the folder.
logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", module="pytorch_lightning")

LAST = "last.ckpt"
"""The full state of a run after its last round, for resume=true."""
SAVED_SETTINGS = "config.yaml"
"""The settings of a run; a resumed run must have the same."""
UNFINISHED, EARLIER = "unfinished", "earlier"
"""Subfolders of the output folder: of a run before its first round is saved, and of earlier runs."""
SETTINGS = ("data", "model", "seed")
"""Configuration sections that the weights of every model depend on."""


@dataclass(frozen=True)
class TrainingRun:
    """The inputs for building a model. settings: the full configuration as plain values."""

    config: DictConfig
    settings: dict[str, Any]
    folder: Path
    seed: int
    corpus: Corpus

    @property
    def about(self) -> dict[str, Any]:
        """Provenance that every model saves with its weights."""
        return {
            "data": self.corpus.name,
            "corpus": self.corpus.fingerprint,
            "tokenizer": self.corpus.settings["tokenizer"],
            "model": self.settings["model"],
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Training:
    """The parts of a training, described in the module docstring."""

    module: AveragedModule[Any]
    data: pl.LightningDataModule
    rounds: Rounds
    count: int
    settings: Mapping[str, Any]
    summary: str
    files: Sequence[str] = ()
    trainer: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[pl.Trainer], None] = lambda trainer: None


def plain_config(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain values."""
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(name): value for name, value in plain.items()}


def run(config: DictConfig, build: Callable[[TrainingRun], Training]) -> Path:
    """Train as configured (conf/train.yaml); returns the file or folder of the best weights."""
    folder, seed, first = Path(config.output_dir), config.seed, getattr(rank_zero_only, "rank", 0) == 0
    if type(seed) is not int or seed < 0:
        raise InputError(f"seed={seed}: must be a non-negative integer")
    if config.trainer.accelerator in ("gpu", "cuda") and not CUDAAccelerator.is_available():
        raise InputError(f"trainer.accelerator={config.trainer.accelerator}: no GPU found; use trainer=cpu")
    if not first:
        logging.getLogger().setLevel(logging.WARNING)  # only the first process logs
    pl.seed_everything(seed, verbose=False)
    # Saves time: no uninitialised memory is read.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    plain = plain_config(config)
    corpus: Corpus = instantiate(config.data)
    training = build(TrainingRun(config, plain, folder, seed, corpus))
    checkpoint = RunCheckpoint(folder, training.rounds, training.files)
    trainer: pl.Trainer = instantiate(
        config.trainer,
        max_epochs=training.count,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        logger=list(instantiate(config.logger).values()),
        plugins=[AtomicCheckpointIO()],
        callbacks=[
            training.rounds,
            Progress(),
            *instantiate(config.callbacks or {}).values(),
            checkpoint,
        ],
        **training.trainer,
    )
    training.check(trainer)
    settings = {**{name: plain[name] for name in SETTINGS}, "corpus": corpus.fingerprint, **training.settings}
    last = None
    if config.resume and first:
        last = resume_point(folder, settings)
    elif config.resume and (folder / LAST).exists():
        last = folder / LAST
    if last is None:
        checkpoint.start_new_run(settings if first else None)
    log.info(
        f"training on {corpus.name}: {training.summary}, {torch.get_num_threads()} threads; "
        f"output in {folder}"
    )
    fit(trainer, training.module, training.data, last)
    log.info(f"best weights: {training.rounds.best}; history: {folder / HISTORY}")
    return training.rounds.best


def fit(
    trainer: pl.Trainer, module: pl.LightningModule, data: pl.LightningDataModule, last: Path | None
) -> None:
    """Train, resuming from the state in `last` if given. Interrupts raise KeyboardInterrupt."""
    try:
        trainer.fit(module, datamodule=data, ckpt_path=str(last) if last else None, weights_only=True)
    except SystemExit:
        if trainer.interrupted:  # Lightning turns an interrupt into an exit, the entry point handles it
            raise KeyboardInterrupt from None
        raise
    finally:
        wandb = sys.modules.get("wandb")  # imported only with logger=wandb
        if wandb is not None and wandb.run is not None:
            wandb.finish()  # otherwise the next job of a sweep continues this run


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically; Lightning moves them from /tmp, which may be another device."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save_torch(checkpoint, Path(path))


class Progress(pl.Callback):
    """Logs progress, speed and remaining time every LOG_INTERVAL seconds."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._logged = 0.0
        self._ended: float | None = None
        self._pause: float | None = None

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start = None  # rounds differ in speed, so measure it per round
        if self._ended is not None:
            self._pause = time.monotonic() - self._ended  # time spent between two rounds

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._ended = now = time.monotonic()
        if self._start is None:  # the first step warms up, so it does not count
            self._start = self._logged = now
            self._first = trainer.global_step
            return
        if now - self._logged < LOG_INTERVAL or trainer.global_step == self._first:
            return
        self._logged = now
        rounds, total = trainer.max_epochs or 1, cast(AveragedModule[Any], pl_module).total_steps
        rate = (trainer.global_step - self._first) / (now - self._start)
        left = (total - trainer.global_step) / rate + (rounds - trainer.current_epoch) * (self._pause or 0.0)
        loss = float(outputs["loss"]) * trainer.accumulate_grad_batches  # Lightning divides losses by it
        what = "" if self._pause is not None else "of training "
        log.info(
            f"round {trainer.current_epoch + 1} of {rounds}, step {trainer.global_step} of {total}, "
            f"loss {loss:.4f}, {rate:.2f} steps/s, about {left / 60:.1f} min {what}left"
        )


class RunCheckpoint(Checkpoint):
    """Saves the full state after each round; the first save moves a new run to the output folder."""

    def __init__(self, folder: Path, rounds: Rounds, others: Sequence[str] = ()) -> None:
        """others: names of files that the run writes besides those of every run."""
        self.folder, self.rounds = folder, rounds
        self.names = [*others, rounds.best.name, HISTORY, CURVES, METRICS, SAVED_SETTINGS, LAST]

    def start_new_run(self, settings: dict[str, Any] | None) -> None:
        """Start a run in `unfinished` by writing its settings (None if another process writes them)."""
        unfinished = self.folder / UNFINISHED
        self.rounds.move(unfinished)
        if settings is None:
            return
        shutil.rmtree(unfinished, ignore_errors=True)
        with atomic_write(unfinished / SAVED_SETTINGS) as path:
            OmegaConf.save(settings, path)
        if (self.folder / LAST).exists():
            log.info(
                f"starting a new run; the earlier run in {self.folder} can be resumed with resume=true until "
                f"the first round of this one is saved, and then moves to {self.folder / EARLIER}"
            )

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint(self.rounds.folder / LAST, weights_only=False)
        if self.rounds.folder == self.folder:
            return
        if trainer.is_global_zero:
            self._replace_earlier_run()
        self.rounds.move(self.folder)

    def _replace_earlier_run(self) -> None:
        existing = [name for name in self.names if (self.folder / name).exists()]
        if existing:
            earlier = self.folder / EARLIER / time.strftime(DATE_FORMAT)
            while earlier.exists():
                earlier = earlier.with_name(f"{earlier.name}-again")
            earlier.mkdir(parents=True)
            for name in existing:
                (self.folder / name).rename(earlier / name)
            log.info(f"moved the earlier run in {self.folder} to {earlier}")
        for name in self.names:  # last.ckpt comes last, so that a folder with it is complete
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.rounds.folder / name, self.folder / name)
        shutil.rmtree(self.rounds.folder, ignore_errors=True)
        link_latest(self.folder)


def link_latest(folder: Path) -> None:
    """Link `latest` to a folder named by date and time: this one or its parent (a sweep)."""
    for dated in (folder.absolute(), folder.absolute().parent):
        try:
            time.strptime(dated.name, DATE_FORMAT)
        except ValueError:
            continue
        link = dated.with_name(f".{LATEST}-{os.getpid()}")
        try:
            link.symlink_to(dated.name, target_is_directory=True)
            link.replace(dated.with_name(LATEST))
        except OSError as error:
            link.unlink(missing_ok=True)
            log.warning(f"{dated.with_name(LATEST)}: not linked to {dated.name} ({error.strerror})")
        return


def resume_point(folder: Path, settings: dict[str, Any]) -> Path | None:
    """The state to resume from; None if there is none, InputError if it is damaged or settings differ."""
    last, saved = folder / LAST, folder / SAVED_SETTINGS
    if not last.exists():
        log.info(f"nothing to resume in {folder}: starting from the beginning")
        return None
    earlier = OmegaConf.to_container(OmegaConf.load(saved)) if saved.exists() else None
    alternative = "or restart with resume=false or another output_dir"
    for section, value in settings.items():
        if not isinstance(earlier, dict) or earlier.get(section) != value:
            what = "other data" if section == "corpus" else f"other settings of `{section}`"
            raise InputError(f"{saved}: the interrupted run had {what}; use the same, {alternative}")
    if not zipfile.is_zipfile(last):
        raise InputError(f"{last}: damaged, cannot resume from it; restore it, {alternative}")
    return last
