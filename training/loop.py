"""The training loop of all models, which their `train(corpus, settings, run)` calls.

    run = TrainingRun("outputs/mine", resume=True)
    model = StaticModel.train(corpus, run=run, rounds=4)

What a run writes and how it is resumed: training.resume. What happens between rounds: training.rounds.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.accelerators import CUDAAccelerator
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import DDPStrategy
from torch.distributed import is_torchelastic_launched
from torch.utils.data import DataLoader, Dataset, Sampler

import citerec
from citerec.base.errors import InputError
from citerec.base.files import file_lock
from citerec.base.progress import LOG_INTERVAL, show_log
from citerec.base.settings import Settings, check_count
from citerec.datasets.corpus import Corpus
from citerec.retrieval.encoders.nets import find_device, to_device
from citerec.training.module import AveragedModule
from citerec.training.processes import WHOLE, Share
from citerec.training.resume import (
    CLIPPING,
    LOCK,
    SAVED_SETTINGS,
    AtomicCheckpointIO,
    RunCheckpoint,
    refuse_used,
    resume_point,
)
from citerec.training.rounds import HISTORY, Rounds
from citerec.training.settings import LAST, TrainerSettings

log = logging.getLogger(__name__)

# Lightning's tips, and warnings about intended behaviour, such as existing files in the folder.
logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
warnings.filterwarnings("ignore", message=".*sync_dist=True")
warnings.filterwarnings("ignore", message=".*your dataloader is not resumable")  # ours is: BatchesLeft
warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", module="pytorch_lightning")


class BatchesLeft(Sampler[int]):
    """The batches of a round from `first` on, in order; its length is that of the whole round."""

    def __init__(self, count: int, first: int) -> None:
        self.count, self.first = count, first

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.count))


def make_loader(batches: Dataset[Any], workers: int, seed: int, first: int = 0) -> DataLoader[Any]:
    """A loader of prepared batches, in order, from `first` on; workers: processes that prepare them."""
    # Each iterator draws a seed for its workers, and Lightning creates the first round's iterator at a
    # different point than later ones. Drawn from the global generator, the seed would change the dropout
    # of a resumed round.
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(
        batches,
        batch_size=None,
        sampler=BatchesLeft(len(batches), first),  # type: ignore[arg-type]
        num_workers=workers,
        generator=generator,
        worker_init_fn=_read_alone,
    )


def _read_alone(_: int) -> None:
    """Keep the tokeniser of a forked process from using threads, even where the user sets this variable to
    true: it would wait for threads that the fork left behind."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


class RoundData(pl.LightningDataModule):
    """Training batches, reloaded each round. Each process reads its share of a step."""

    share = WHOLE

    def setup(self, stage: str) -> None:
        assert self.trainer is not None
        self.share = Share.of(self.trainer)

    def first_batch(self) -> int:
        """Return the batch of the current round to begin with: 0, unless a run is resumed within a round."""
        loop = None if self.trainer is None else self.trainer.fit_loop
        return loop.epoch_loop.batch_progress.current.completed if loop and loop.restarting else 0

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return to_device(batch, device)


@dataclass(frozen=True)
class Training:
    """The parts of a training.

    count: number of rounds, which are Lightning's epochs. settings: what a resumed run must have in common
    with this one besides corpus, model settings and seed. summary: for the log line at the start.
    accumulate: backward passes per step.
    """

    module: AveragedModule[Any]
    data: RoundData
    rounds: Rounds
    count: int
    settings: Mapping[str, Any]
    summary: str
    accumulate: int = 1


@dataclass
class TrainingRun:
    """Where a training writes, and how Lightning runs it.

    folder: for checkpoints, history and the best weights; None: a temporary one, removed with this object.
    resume: continue the interrupted run in the folder, if there is one, to the same weights.
    checkpoint_minutes: time between two checkpoints within a round; there is always one at the round's end.
    """

    folder: str | Path | None = None
    seed: int = 0
    resume: bool = False
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    loggers: Sequence[Logger] = ()
    callbacks: Sequence[pl.Callback] = ()
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        show_log()
        bound_threads()

    @cached_property
    def path(self) -> Path:
        """The folder."""
        if self.folder is not None:
            return Path(self.folder)
        self._temporary = tempfile.TemporaryDirectory(prefix="citerec-training-")
        return Path(self._temporary.name)

    @property
    def device(self) -> torch.device:
        """Where the network is trained."""
        return find_device(self.trainer.accelerator)

    def workers(self, given: int | None) -> int:
        """The number of processes that read batches: `given`, or by default one that suits the device and the
        cores; InputError if there are fewer cores than `given`."""
        cores = os.cpu_count() or 1
        if given is not None and given > cores:
            raise InputError(f"model.workers={given}: this machine has {cores} cores")
        if given is not None:
            return given
        return 0 if self.device.type == "cpu" else min(4, cores - 1)

    @property
    def is_first(self) -> bool:
        """Whether this is the first of the processes, which logs and writes."""
        return getattr(rank_zero_only, "rank", 0) == 0

    def start(self, corpus: Corpus, settings: Settings, more: Mapping[str, Any] | None = None) -> None:
        """Seed the random number generators; InputError for a wrong seed, GPU or number of processes, and if
        the run to resume has other settings. more: the part of Training.settings that is known already."""
        check_count("seed", self.seed, least=0)
        if self.seed >= 2**32:
            raise InputError(f"seed={self.seed}: must be below {2**32}, NumPy's limit")
        if self.folder is None and self.trainer.processes > 1:
            raise InputError("several processes need a folder in common: TrainingRun(FOLDER)")
        if self.trainer.num_nodes > 1 and {"MASTER_ADDR", "SLURM_NTASKS"}.isdisjoint(os.environ):
            raise InputError(
                f"trainer.num_nodes={self.trainer.num_nodes}: start the processes with torchrun or Slurm "
                "(docs/research/scale.md)"
            )
        if self.trainer.accelerator == "gpu" and not CUDAAccelerator.is_available():
            raise InputError("trainer.accelerator=gpu: no GPU found; use trainer=cpu")
        if is_torchelastic_launched() and self.trainer.processes != int(os.environ["WORLD_SIZE"]):
            raise InputError(  # else each process might train alone
                f"trainer.devices={self.trainer.devices} trainer.num_nodes={self.trainer.num_nodes}: not the "
                f"{os.environ['WORLD_SIZE']} processes of torchrun's --nproc-per-node and --nnodes"
            )
        if not self.is_first:
            logging.getLogger().setLevel(logging.WARNING)
        elif not self.resume:
            refuse_used(self.path)
        elif resume_point(self.path, self._shared(corpus, settings, more or {})) is None:
            stopped = (self.path / SAVED_SETTINGS).exists()
            why = "the run was stopped before its state was first saved" if stopped else "nothing to resume"
            log.info(f"{self.path}: {why}: starting from the beginning")
        pl.seed_everything(self.seed, verbose=False)
        # Saves time: no uninitialised memory is read.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def _shared(self, corpus: Corpus, settings: Settings, more: Mapping[str, Any]) -> dict[str, Any]:
        """What a resumed run must have in common with this one."""
        own = {"seed": self.seed, CLIPPING: self.trainer.gradient_clip_val}
        return {"model": asdict(settings), "corpus": corpus.fingerprint, **own, **more}

    def about(self, corpus: Corpus, settings: Settings) -> dict[str, Any]:
        """Provenance that every model saves with its weights."""
        return {
            "data": corpus.name,
            "corpus": corpus.fingerprint,
            "tokenizer": corpus.settings["tokenizer"],
            "model": asdict(settings),
            "seed": self.seed,
        }

    def fit(self, corpus: Corpus, settings: Settings, training: Training) -> Path:
        """Train, or resume; returns the folder of the best weights. An interrupt raises KeyboardInterrupt.

        Only one process trains in a folder at a time; another one waits for it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with file_lock(self.path / LOCK, "trains in this folder") if self.is_first else nullcontext():
            return self._fit(corpus, settings, training)

    def _fit(self, corpus: Corpus, settings: Settings, training: Training) -> Path:
        checkpoint = RunCheckpoint(self.path, 60 * self.checkpoint_minutes)
        options = asdict(self.trainer) | {"accelerator": "cpu" if self.device.type == "cpu" else "gpu"}
        if self.trainer.deterministic is None:  # on a GPU it is slow, and not supported by all operations
            options["deterministic"] = self.device.type == "cpu"
        if self.trainer.processes > 1:
            options["strategy"] = DDPStrategy(
                find_unused_parameters=training.module.some_weights,
                forward_sync_buffers=False,  # they do not change
            )
        progress = Progress()
        trainer = pl.Trainer(
            **options,
            default_root_dir=self.path,
            max_epochs=training.count,
            enable_model_summary=False,
            reload_dataloaders_every_n_epochs=1,
            use_distributed_sampler=False,
            limit_val_batches=0,
            num_sanity_val_steps=0,
            accumulate_grad_batches=training.accumulate,
            logger=list(self.loggers),
            plugins=[AtomicCheckpointIO()],
            callbacks=[training.rounds, progress, *self.callbacks, checkpoint],
        )
        wanted = self._shared(corpus, settings, training.settings)
        last = None
        if self.resume and self.is_first:
            last = resume_point(self.path, wanted)
        elif self.resume and (self.path / LAST).exists():
            last = self.path / LAST
        if last is None and self.is_first:
            checkpoint.start_new_run(wanted)
        where = f"{torch.get_num_threads()} threads" if self.device.type == "cpu" else "on a GPU"
        log.info(f"training on {corpus.name}: {training.summary}, {where}; output in {self.path}")
        try:
            ckpt_path = str(last) if last else None
            trainer.fit(training.module, datamodule=training.data, ckpt_path=ckpt_path, weights_only=True)
        except SystemExit:
            if trainer.interrupted:  # Lightning turns an interrupt into an exit, the entry point handles it
                hint = ["go on with resume=true"] if (self.path / LAST).exists() else []
                raise KeyboardInterrupt(*hint) from None
            raise
        finally:
            wandb = sys.modules.get("wandb")  # imported only with logger=wandb
            if wandb is not None and wandb.run is not None:
                wandb.finish()  # otherwise the next job of a sweep continues this run
        if last is not None and not progress.steps:
            log.info(f"the run in {self.path} is finished; more rounds need another output_dir")
        log.info(f"best weights: {training.rounds.best}; history: {self.path / HISTORY}")
        return training.rounds.best


def bound_threads() -> None:
    """Let torch use no more threads than cores are free if its threads spin while they wait, which takes
    several times as long on a busy machine. They spin if torch was imported before citerec (`__init__`).
    """
    if not citerec.LATE or sys.platform != "linux":  # elsewhere torch has another OpenMP
        return
    others = max(os.getloadavg()[0] - 1, 0)  # this process computes, too
    free = max(1, round(len(os.sched_getaffinity(0)) - others))
    if free < (threads := torch.get_num_threads()):
        torch.set_num_threads(free)
        log.info(
            f"trains with {free} of {threads} threads, since the machine is busy; with citerec imported "
            "before torch, waiting threads cost nothing, and all are used"
        )


class Progress(pl.Callback):
    """Logs progress, speed and remaining time every LOG_INTERVAL seconds."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._logged = 0.0
        self._ended: float | None = None
        self._pause: float | None = None
        self.steps = 0
        """steps of this process, not those before it was resumed"""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start = None  # rounds differ in speed, so measure it per round
        if self._ended is not None:
            self._pause = time.monotonic() - self._ended  # time spent between two rounds

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._ended = now = time.monotonic()
        self.steps += 1
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
