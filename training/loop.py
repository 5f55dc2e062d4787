"""The story of a training, the same for all models: train.py calls what `model.train` names.

A model's `train(config)` reads its settings, so that what is wrong with them is said first, and calls

    run(config, build)

where `build(given: TrainingRun) -> Training` makes of the prepared corpus what is trained:

    module     an AveragedModule (training/module.py): the net, its loss, its optimiser
    data       a LightningDataModule, read anew each round
    rounds     a Rounds callback (training/rounds.py): what is measured after a round, how weights are saved
    count      rounds of the training, which are Lightning's epochs
    settings   what a resumed run must share beside `data`, `model` and `seed` of the configuration
    summary    of the log line at the start
    files      what the model writes into the folder beside what every training writes
    trainer    more arguments of Lightning's Trainer
    check      is told the Trainer before anything is written

The output folder keeps config.yaml (settings), last.ckpt (the whole state after the last round), history.csv,
training.png, metrics.json (the best round) and the best weights. `resume=true` goes on from last.ckpt and
gives the weights of an uninterrupted run, on a CPU bit for bit; settings must be those of config.yaml.

A new run writes below `unfinished` until its first round is saved. Only then do its files take their place in
the output folder; those of a run that was there move to `earlier`, into a folder of their own.
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

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import atomic_write
from retrieval.vectors import SAY_EVERY
from training.checkpoint import save_torch
from training.module import AveragedModule
from training.rounds import CURVES, HISTORY, METRICS, Rounds
from training.settings import DATED, LATEST

log = logging.getLogger(__name__)

# Lightning's tips, and its warnings of what is meant to be so: files of the run are already in its folder.
logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", module="pytorch_lightning")

LAST = "last.ckpt"
"""The whole state of a run after its last round; resume=true goes on from it."""
WRITTEN_SETTINGS = "config.yaml"
"""The settings of the run in a folder; a resumed run must have the same."""
UNFINISHED, EARLIER = "unfinished", "earlier"
"""Folders in that of a run: of one whose first round is not saved yet, and of the runs before it."""
SETTINGS = ("data", "model", "seed")
"""The parts of the configuration that the weights of every model depend on."""


@dataclass(frozen=True)
class TrainingRun:
    """What a model is built from. settings: the whole configuration as plain values."""

    config: DictConfig
    settings: dict[str, Any]
    folder: Path
    seed: int
    corpus: Corpus

    @property
    def about(self) -> dict[str, Any]:
        """What every model saves with its weights."""
        known = {"data": self.corpus.name, "corpus": self.corpus.fingerprint}
        known["tokenizer"] = self.corpus.settings["tokenizer"]
        return {**known, "model": self.settings["model"], "seed": self.seed}


@dataclass(frozen=True)
class Training:
    """What a model brings to be trained; the module's docstring says what each part is."""

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
    """Train by `config` (conf/train.yaml) in its output_dir; gives the file or folder of the best weights."""
    folder, seed, first = Path(config.output_dir), config.seed, getattr(rank_zero_only, "rank", 0) == 0
    if type(seed) is not int or seed < 0:
        raise InputError(f"seed={seed}: must be a whole number, not below 0")
    if config.trainer.accelerator in ("gpu", "cuda") and not CUDAAccelerator.is_available():
        raise InputError(f"trainer.accelerator={config.trainer.accelerator}: no GPU found; use trainer=cpu")
    if not first:
        logging.getLogger().setLevel(logging.WARNING)  # the first process speaks for all
    pl.seed_everything(seed, verbose=False)
    # Nothing here reads memory that is not filled.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    plain = plain_config(config)
    corpus: Corpus = instantiate(config.data)
    training = build(TrainingRun(config, plain, folder, seed, corpus))
    saves = Saves(folder, training.rounds, training.files)
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
            saves,
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
        saves.start_anew(settings if first else None)
    log.info(
        f"training on {corpus.name}: {training.summary}, {torch.get_num_threads()} threads; "
        f"output in {folder}"
    )
    fit(trainer, training.module, training.data, last)
    log.info(f"weights of the best round: {training.rounds.best}; history: {folder / HISTORY}")
    return training.rounds.best


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


class AtomicCheckpointIO(TorchCheckpointIO):
    """Checkpoints whole or not at all: Lightning moves them out of /tmp, which may be another device."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save_torch(checkpoint, Path(path))


class Progress(pl.Callback):
    """Logs every few seconds how far the run is and how long it will take."""

    def __init__(self) -> None:
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
        rounds, total = trainer.max_epochs or 1, cast(AveragedModule[Any], pl_module).total_steps
        rate = (trainer.global_step - self._first) / (now - self._start)
        left = (total - trainer.global_step) / rate + (rounds - trainer.current_epoch) * (self._pause or 0.0)
        loss = float(outputs["loss"]) * trainer.accumulate_grad_batches  # by which Lightning has divided it
        what = "" if self._pause is not None else "of training "
        log.info(
            f"round {trainer.current_epoch + 1} of {rounds}, step {trainer.global_step} of {total}, "
            f"loss {loss:.4f}, {rate:.2f} steps/s, about {left / 60:.1f} min {what}left"
        )


class Saves(Checkpoint):
    """Saves the whole state after each round. A new run takes its place in the folder once that is done."""

    def __init__(self, folder: Path, rounds: Rounds, others: Sequence[str] = ()) -> None:
        """others: names of what the run writes beside what every run does."""
        self.folder, self.rounds = folder, rounds
        self.names = [*others, rounds.best.name, HISTORY, CURVES, METRICS, WRITTEN_SETTINGS, LAST]

    def start_anew(self, settings: dict[str, Any] | None) -> None:
        """Let a new run write below `unfinished`, first its settings (None: another process writes them)."""
        unfinished = self.folder / UNFINISHED
        self.rounds.move(unfinished)
        if settings is None:
            return
        shutil.rmtree(unfinished, ignore_errors=True)
        with atomic_write(unfinished / WRITTEN_SETTINGS) as path:
            OmegaConf.save(settings, path)
        if (self.folder / LAST).exists():
            log.info(
                f"the run in {self.folder}, which resume=true would resume, stays until the first round of "
                f"this one is saved, and then moves to {self.folder / EARLIER}"
            )

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint(self.rounds.folder / LAST, weights_only=False)
        if self.rounds.folder == self.folder:
            return
        if trainer.is_global_zero:
            self._take_place()
        self.rounds.move(self.folder)

    def _take_place(self) -> None:
        there = [name for name in self.names if (self.folder / name).exists()]
        if there:
            earlier = self.folder / EARLIER / time.strftime(DATED)
            while earlier.exists():
                earlier = earlier.with_name(f"{earlier.name}-again")
            earlier.mkdir(parents=True)
            for name in there:
                (self.folder / name).rename(earlier / name)
            log.info(f"moved the earlier run of {self.folder} to {earlier}")
        for name in self.names:  # last.ckpt at the end: where it is, all is
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.rounds.folder / name, self.folder / name)
        shutil.rmtree(self.rounds.folder, ignore_errors=True)
        link_latest(self.folder)


def link_latest(folder: Path) -> None:
    """Link `latest` to a folder named by date and time: this one, or the one that holds it (a sweep)."""
    for place in (folder.absolute(), folder.absolute().parent):
        try:
            time.strptime(place.name, DATED)
        except ValueError:
            continue
        link = place.with_name(f".{LATEST}-{os.getpid()}")
        try:
            link.symlink_to(place.name, target_is_directory=True)
            link.replace(place.with_name(LATEST))
        except OSError as error:
            link.unlink(missing_ok=True)
            log.warning(f"{place.with_name(LATEST)}: not linked to {place.name} ({error.strerror})")
        return


def resume_point(folder: Path, settings: dict[str, Any]) -> Path | None:
    """The state to resume, None when there is none; InputError if it is damaged or of other settings."""
    last, written = folder / LAST, folder / WRITTEN_SETTINGS
    if not last.exists():
        log.info(f"nothing to resume in {folder}: starting from the beginning")
        return None
    earlier = OmegaConf.to_container(OmegaConf.load(written)) if written.exists() else None
    anew = "or restart with resume=false or another output_dir"
    for part, value in settings.items():
        if not isinstance(earlier, dict) or earlier.get(part) != value:
            what = "other data" if part == "corpus" else f"other settings of `{part}`"
            raise InputError(f"{written}: the interrupted run had {what}; use the same, {anew}")
    if not zipfile.is_zipfile(last):
        raise InputError(f"{last}: damaged, cannot resume from it; restore it, {anew}")
    return last
