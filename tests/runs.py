"""What tests of trainings share: configurations, crashes, and what two runs have in common."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

import training.loop

CONF = Path(__file__).parents[1] / "conf"
Composed = Callable[..., DictConfig]


def configured(entry: str, overrides: list[str]) -> DictConfig:
    """What an entry point would run with."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(entry, overrides)


def overrides(*parts: Mapping[str, Any]) -> list[str]:
    """OPTION=VALUE; of options that several parts have, the last counts."""
    options = {name: value for part in parts for name, value in part.items()}
    return [f"{name}={value}" for name, value in options.items()]


def config(*parts: Mapping[str, Any]) -> DictConfig:
    """What train.py would run with."""
    return configured("train", overrides(*parts))


class StopAt(pl.Callback):
    """Ends a run as a crash would, after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        if trainer.global_step == self.step:
            raise RuntimeError("crash")


def crashed(train: Callable[[DictConfig], Path], step: int, config: DictConfig) -> None:
    """Train and crash after a step."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="crash"):
        patch.setattr(training.loop, "Progress", lambda: StopAt(step))
        train(config)


def trained_twice(
    train: Callable[[DictConfig], Path], step: int, folder: Path, *parts: Mapping[str, Any]
) -> tuple[Path, Path]:
    """Train in one go, and with a crash after a step from which it resumes: what each has saved.

    Both runs are the same bit for bit.
    """
    one, other = (config(*parts, {"resume": True, "output_dir": folder / name}) for name in ("one", "other"))
    whole = train(one)
    crashed(train, step, other)
    resumed = train(other)
    assert_same_run(whole.parent, resumed.parent)
    return whole, resumed


def history(out: Path) -> list[dict[str, float]]:
    """What was measured after each round, but for times."""
    with (out / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {name: float(value) for name, value in row.items() if value and "second" not in name} for row in rows
    ]


def assert_same_run(one: Path, other: Path) -> dict[str, Any]:
    """States (weights, averages, optimiser) and measures of two runs are equal bit for bit; the state."""
    states = [torch.load(out / "last.ckpt", weights_only=True) for out in (one, other)]
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "global_step"):
        assert same(states[0][part], states[1][part]), part
    assert history(one) == history(other)
    return dict(states[0])


def same(one: Any, other: Any) -> bool:
    """Whether nested lists, dictionaries and tensors are equal bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)
