"""Fixtures for training."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

import hatten.train
import training.loop

CONF = Path(__file__).parents[2] / "conf"


@pytest.fixture(scope="session")
def composed() -> Callable[..., DictConfig]:
    """What an entry point would run with, given overrides."""

    def compose_(entry: str, *overrides: str) -> DictConfig:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose(entry, list(overrides))

    return compose_


class StopAt(pl.Callback):
    """Ends a run as a crash would, after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        if trainer.global_step == self.step:
            raise RuntimeError("crash")


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, DictConfig], None]:
    """Trains and crashes after a step."""

    def train(step: int, config: DictConfig) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(training.loop, "Progress", lambda: StopAt(step))
            with pytest.raises(RuntimeError, match="crash"):
                hatten.train.train(config)

    return train


@pytest.fixture
def trained_twice(
    composed: Callable[..., DictConfig], crash: Callable[[int, DictConfig], None], tmp_path: Path
) -> Callable[..., tuple[Path, Path]]:
    """Trains by overrides in one go, and with a crash after a step from which it resumes: what was saved.

    The states of both runs, weights and averages and optimiser, and what was measured are equal bit for bit.
    """

    def train(step: int, *overrides: str) -> tuple[Path, Path]:
        given = [*overrides, "resume=true"]
        whole = hatten.train.train(composed("train", *given, f"output_dir={tmp_path / 'whole'}"))
        broken = composed("train", *given, f"output_dir={tmp_path / 'broken'}")
        crash(step, broken)
        resumed = hatten.train.train(broken)
        assert_same_run(whole.parent, resumed.parent)
        return whole, resumed

    return train


def history(out: Path) -> list[dict[str, str]]:
    with (out / "history.csv").open() as file:
        return list(csv.DictReader(file))


def assert_same_run(one: Path, other: Path) -> None:
    states = [torch.load(out / "last.ckpt", weights_only=True) for out in (one, other)]
    for part in ("state_dict", "optimizer_states", "global_step"):
        assert same(states[0][part], states[1][part]), part
    measured = [
        [{name: value for name, value in row.items() if "second" not in name} for row in history(out)]
        for out in (one, other)
    ]
    assert measured[0] == measured[1]


def same(one: Any, other: Any) -> bool:
    """Whether nested lists, dictionaries and tensors are equal bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)
