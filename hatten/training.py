"""Training an encoder from a configuration: `python train.py model=hatten|nnselect|biencoder`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl
import torch
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from datasets.errors import InputError
from datasets.store import Corpus
from hatten.batches import BatchConfig, steps_per_round
from hatten.callbacks import MINED, Rounds
from hatten.datamodule import TrainingData
from hatten.history import HISTORY
from hatten.mining import MiningConfig
from hatten.module import EncoderModule, LossConfig, ScheduleConfig
from hatten.options import options, own_options
from hatten.progress import Progress
from hatten.recipe import Recipe
from hatten.resuming import WholeFiles, fit, resume_point, saver, start_anew
from hatten.validation import ValidationConfig
from retrieval.encode import Reader

log = logging.getLogger(__name__)

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


def train(
    config: DictConfig,
    recipe: Recipe | None = None,
    data_of: Callable[[Reader, BatchConfig, int, int], TrainingData] = TrainingData,
    module_of: Callable[..., EncoderModule] = EncoderModule,
) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; gives the file or folder of the best weights.

    recipe: in place of the one that the configuration names. data_of: (reader, batch, seed, workers) -> what
    is read. module_of: takes what EncoderModule takes.
    """
    model, folder, seed = config.model, Path(config.output_dir), config.seed
    if type(seed) is not int or seed < 0:
        raise InputError(f"seed={seed}: must be a whole number, not below 0")
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    # What is wrong with the options should be said before anything is prepared.
    batch = options(BatchConfig, plain["model"]["batch"], "model.batch")
    mining = None
    if "mining" in plain["model"]:
        mining = options(MiningConfig, plain["model"]["mining"], "model.mining")
    loss = options(LossConfig, plain["model"]["loss"], "model.loss")
    schedule = options(ScheduleConfig, plain["model"]["schedule"], "model.schedule")
    validation = options(ValidationConfig, plain["model"]["validation"], "model.validation")
    run = own_options(RunConfig, plain["model"])
    recipe = recipe or get_class(model.recipe)(plain["model"])
    assert recipe is not None
    of_mean_path = {"batch.stale": batch.stale, "schedule.mean_only_rounds": schedule.mean_only_rounds}
    for name, wanted in of_mean_path.items():
        if wanted and not recipe.mean_path:
            raise InputError(f"model.{name}={wanted}: needs model.encoder.residual=mean, of model=hatten")
    pl.seed_everything(seed, verbose=False)
    # Nothing here reads memory that is not filled.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    corpus: Corpus = instantiate(config.data)
    parts = recipe.build(corpus, config)
    data = data_of(parts.reader, batch, seed, run.workers)
    rounds, steps = run.rounds, steps_per_round(batch, len(data.split))
    module = module_of(
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
        **data.about,
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
    settings = {part: plain[part] for part in (*SETTINGS, *recipe.groups)}
    settings |= {"corpus": corpus.fingerprint, **data.about}
    last = resume_point(folder, settings) if config.resume else None
    if last is None:
        start_anew(folder, recipe.file, settings, others=[MINED])
    log.info(
        f"training on {corpus.name}: {len(data.split):,} contexts, {rounds} rounds of {steps} steps, "
        f"{batch.queries} queries a step, in {parts.encoder.precision}, {torch.get_num_threads()} threads; "
        f"output in {folder}"
    )
    fit(trainer, module, data, last)
    log.info(f"weights of the best round: {best}; history: {folder / HISTORY}")
    return best
