"""Training an encoder from a configuration: `python train.py model=hatten|nnselect|biencoder`."""

from __future__ import annotations

import logging
import shutil
import sys
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.plugins.io import TorchCheckpointIO

from datasets.atomic import written_whole
from datasets.errors import InputError
from datasets.store import Corpus
from hatten.batches import BatchConfig, steps_per_round
from hatten.callbacks import MINED, Rounds
from hatten.checkpoint import save_torch
from hatten.datamodule import TrainingData
from hatten.history import CURVES, HISTORY
from hatten.mining import MiningConfig
from hatten.module import EncoderModule, LossConfig, ScheduleConfig
from hatten.options import options, own_options
from hatten.progress import Progress
from hatten.recipe import Recipe
from hatten.validation import ValidationConfig

log = logging.getLogger(__name__)

# Lightning's tips, and its warnings of what is meant to be so: files of the run are already in its folder.
logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", module="pytorch_lightning")

LAST = "last.ckpt"
"""The whole state of a run after its last round; what resume=true goes on from."""

WRITTEN_SETTINGS = "config.yaml"
"""The settings of the run in a folder; a resumed run must have the same."""

SETTINGS = ("data", "model", "seed")
"""The parts of the configuration that the weights depend on, beside those that the recipe names."""


@dataclass(frozen=True)
class RunConfig:
    """What belongs to no part of a model (conf/model/*.yaml)."""

    rounds: int
    ema: float
    workers: int

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"model.rounds={self.rounds}: must be at least 1")


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; gives the file or folder of the best weights."""
    model, folder, seed = config.model, Path(config.output_dir), config.seed
    if type(seed) is not int or seed < 0:
        raise InputError(f"seed={seed}: must be a whole number, not below 0")
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    # What is wrong with the options should be said before anything is prepared.
    batch = options(BatchConfig, plain["model"]["batch"], "model.batch")
    mining = options(MiningConfig, plain["model"]["mining"], "model.mining")
    loss = options(LossConfig, plain["model"]["loss"], "model.loss")
    schedule = options(ScheduleConfig, plain["model"]["schedule"], "model.schedule")
    validation = options(ValidationConfig, plain["model"]["validation"], "model.validation")
    run = own_options(RunConfig, plain["model"])
    recipe: Recipe = get_class(model.recipe)(plain["model"])
    of_mean_path = {"batch.stale": batch.stale, "schedule.mean_only_rounds": schedule.mean_only_rounds}
    for name, wanted in of_mean_path.items():
        if wanted and not recipe.mean_path:
            raise InputError(f"model.{name}={wanted}: needs model.encoder.residual=mean, of model=hatten")
    pl.seed_everything(seed, verbose=False)
    # Nothing here reads memory that is not filled.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    corpus: Corpus = instantiate(config.data)
    parts = recipe.build(corpus, config)
    data = TrainingData(parts.reader, batch, seed, run.workers)
    rounds, steps = run.rounds, steps_per_round(batch, len(data.split))
    module = EncoderModule(
        parts.encoder,
        instantiate(model.optimizer),
        loss,
        schedule,
        ema=run.ema,
        seed=seed,
        total_steps=rounds * steps,
    )
    about = {
        "data": corpus.name,
        "corpus": corpus.fingerprint,
        **parts.about,
        "model": plain["model"],
        "seed": seed,
    }
    best = folder / recipe.file
    state = Rounds(best, parts.save, mining, validation, seed, about)
    trainer: pl.Trainer = instantiate(
        config.trainer,
        max_epochs=rounds,
        reload_dataloaders_every_n_epochs=1,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        logger=list(instantiate(config.logger).values()),
        plugins=[WholeFiles()],
        callbacks=[state, Progress(), saver(folder), *instantiate(config.callbacks or {}).values()],
    )
    settings = {**{part: plain[part] for part in (*SETTINGS, *recipe.groups)}, "corpus": corpus.fingerprint}
    last = resume_point(folder, settings) if config.resume else None
    if last is None:
        start_anew(folder, recipe.file, settings)
    log.info(
        f"training on {corpus.name}: {len(data.split):,} contexts, {rounds} rounds of {steps} steps, "
        f"{batch.queries} queries a step, in {parts.encoder.precision}, {torch.get_num_threads()} threads; "
        f"output in {folder}"
    )
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
    log.info(f"weights of the best round: {best}; history: {folder / HISTORY}")
    return best


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


def start_anew(folder: Path, best: str, settings: dict[str, Any]) -> None:
    """Write down the settings of the run. What an earlier one left goes to `earlier`."""
    left = [
        name for name in (LAST, best, HISTORY, CURVES, WRITTEN_SETTINGS, MINED) if (folder / name).exists()
    ]
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
