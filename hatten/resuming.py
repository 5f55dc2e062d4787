"""The folder of a training run: what it keeps to go on after an interrupt, and how it is run."""

from __future__ import annotations

import logging
import shutil
import sys
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import OmegaConf
from pytorch_lightning.plugins.io import TorchCheckpointIO

from datasets.atomic import written_whole
from datasets.errors import InputError
from hatten.checkpoint import save_torch
from hatten.history import CURVES, HISTORY, METRICS

log = logging.getLogger(__name__)

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
