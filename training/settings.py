"""Training settings shared by all models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from citerec.base.errors import InputError
from citerec.base.settings import RESOLVERS, Settings, register, setting
from citerec.datasets.records import TRAIN
from citerec.retrieval.settings import measure_name

RECALL_AT = (1, 10, 50, 100, 500, 1000, 2000)
"""Cutoffs of recall in validation."""

LAST = "last.ckpt"
"""The full state of a run after its last round, or within a round."""
RESTART = "restart with resume=false or another output_dir"


def run_folder(base: str, resume: bool, now: str) -> str:
    """A new folder `now` in `base`; with `resume`, that of the last run or sweep with a checkpoint."""
    dated = "????-??-??_??-??-??"
    saved = [*Path(base).glob(f"{dated}/{LAST}"), *Path(base).glob(f"{dated}/*/{LAST}")] if resume else []
    return str(Path(base, max((path.relative_to(base).parts[0] for path in saved), default=now)))


def refuse_absent(config: Mapping[str, object]) -> None:
    """Raise InputError for saved models that are neither there nor on a hub; call it before a corpus is
    prepared.

    >>> refuse_absent({"checkpoint": "someone/hatten", "ranker": None})
    """
    for name in ("checkpoint", "ranker"):
        place = config.get(name)
        if isinstance(place, str) and not Path(place).exists():
            from citerec.datasets.published.releases import RELEASES  # most evaluations need none
            from citerec.training.hub import is_hub_id

            if place not in RELEASES and not is_hub_id(place):
                raise InputError(f"{name}={place}: no such file or folder")


def dense_checkpoint(checkpoint: str | None, ranker: str | None) -> str | None:
    """The model of a ranker's dense retriever: `checkpoint`, or else the one saved with the ranker."""
    if checkpoint is not None or ranker is None:
        return checkpoint
    places = (Path(ranker) / "ranker" / "dense", Path(ranker) / "dense")
    return next((str(place) for place in places if place.is_dir()), None)


def vectors_for(data: str, model: str = "") -> str:
    """The default word vectors: GloVe for the paper's data sets and model=hatten, else the corpus's own."""
    if model == "hatten":
        return "glove50" if data == "demo" else "glove"
    return "glove" if data in ("acl200", "fulltextpeerread", "refseer", "arxiv") else "word2vec"


def wandb_id(folder: str, resume: bool) -> str | None:
    """The id of the W&B run that a resumed run in a folder continues; None: a new one."""
    link = Path(folder, "wandb", "latest-run")
    return os.readlink(link).rpartition("-")[2] if resume and link.is_symlink() else None


RESOLVERS.update(wandb_id=wandb_id)
RESOLVERS.update(run_folder=run_folder, dense_checkpoint=dense_checkpoint, vectors_for=vectors_for)


@dataclass(frozen=True)
class RunSettings(Settings):
    """Options of a run that all models share (conf/train.yaml)."""

    seed: int = setting(0, least=0)
    """random seed"""
    resume: bool = False
    """resume from the last checkpoint in output_dir"""
    checkpoint_minutes: float = 5.0
    """minutes between checkpoints within a round"""


def check_monitor(monitor: str, depth: int) -> str:
    """Return the name of a measure of `depth` ranked papers; InputError for any other."""
    monitor = measure_name(monitor)
    measures = ["mrr", *(f"recall@{k}" for k in RECALL_AT if k <= depth)]
    if monitor not in measures:
        raise InputError(f"model.validation.monitor={monitor}: choose one of {', '.join(measures)}")
    return monitor


@dataclass(frozen=True, kw_only=True)
class QuerySettings(Settings):
    """Which queries a training reads, and how much of their texts."""

    where: ClassVar[str] = "model.batch"
    splits: tuple[str, ...] = (TRAIN,)
    """splits to train on, as far as the data has them (e.g. [train,train_named])"""
    shares: dict[str, float] = field(default_factory=dict)
    """data=several: each folder's share of the queries, as relative numbers; {}: by its number of queries"""
    abstracts: tuple[float, ...] = (1.0,)
    """shares of the abstracts to keep; one of them is drawn for the papers of each batch or list (e.g.
    [0,0.5,1])"""

    @property
    def varies_texts(self) -> bool:
        """Whether abstracts are left out."""
        return any(share < 1 for share in self.abstracts)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.abstracts or not all(0 <= share <= 1 for share in self.abstracts):
            raise InputError(f"{self.where}.abstracts={list(self.abstracts)}: must be numbers from 0 to 1")
        if not all(isinstance(share, int | float) and share > 0 for share in self.shares.values()):
            raise InputError(f"{self.where}.shares={dict(self.shares)}: must be numbers above 0 by name")


@dataclass(frozen=True)
class RateSettings(Settings):
    """Learning-rate schedule."""

    where: ClassVar[str] = "model.schedule"
    warmup: int = 0
    """linear warm-up steps"""
    decay: str = setting("none", choices=("none", "linear"))
    """none | linear (to 0 at the last step)"""

    def rate(self, step: int, total: int) -> float:
        """The learning rate at a step (from 0) of `total`, as a multiple of the optimiser's.

        >>> [RateSettings(2, "linear").rate(step, 4) for step in range(4)]
        [0.5, 0.75, 0.5, 0.25]
        """
        warmup = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return warmup if self.decay == "none" else warmup * max(0.0, 1.0 - step / total)


@dataclass(frozen=True)
class OptimizerSettings(Settings):
    """Optimiser of the weights."""

    where: ClassVar[str] = "model.optimizer"
    name: str = setting("adam", choices=("adam", "adamw"))
    """adam | adamw (decoupled weight decay)"""
    lr: float = setting(1e-3, above=0)
    """peak learning rate"""
    weight_decay: float = 0.0
    """adam: L2 penalty; adamw: decoupled weight decay"""
    eps: float = setting(1e-8, above=0)
    """added to the denominator"""


@dataclass(frozen=True)
class TrainerSettings(Settings):
    """Arguments of Lightning's Trainer."""

    where: ClassVar[str] = "trainer"
    accelerator: str = setting("auto", choices=("auto", "cpu", "gpu"))
    """auto (a GPU if there is one) | cpu | gpu"""
    devices: int = setting(1, least=1)
    """number of devices of a machine, with one process each; on a CPU, number of processes"""
    num_nodes: int = setting(1, least=1)
    """number of machines, on each of which torchrun starts the processes"""
    strategy: str = setting("auto", choices=("auto", "ddp"))
    """auto | ddp (the same with several processes: docs/research/scale.md, Several processes)"""
    gradient_clip_val: float | None = 1.0
    """maximum gradient norm; null: no clipping"""
    enable_progress_bar: bool = False
    """show a progress bar"""
    log_every_n_steps: int = setting(10, least=1)
    """steps between log entries"""
    deterministic: bool | None = None
    """use deterministic algorithms; null: on a CPU, where a resumed run has the same weights bit for bit"""

    @property
    def processes(self) -> int:
        """Number of processes on all machines."""
        return self.devices * self.num_nodes


@dataclass(frozen=True)
class FineTuningSettings(Settings):
    """Fine-tuning of a pretrained transformer."""

    where: ClassVar[str] = "model"
    precision: str = setting("auto", choices=("auto", "float32", "bfloat16"))
    """precision of matrix products; weights are float32"""
    dropout: float = setting(0.0, below=1)
    """dropout, in place of the pretrained model's; nearly doubles the time on a CPU"""
    trained_layers: int = setting(0, least=0)
    """number of the transformer's last layers that are trained; 0: all of it, with its embeddings. Two of
    MiniLM's six take less than half the time"""


register("trainer", TrainerSettings)
