"""Fixtures for training."""

from __future__ import annotations

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
    """Of an entry point and its overrides, what it would run with."""

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
def trained_twice(
    composed: Callable[..., DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Path, Path]]:
    """Trains by overrides at one go, and with a crash after a step from which it goes on: what was saved.

    The whole states of both runs, weights and averages and optimiser, have been found equal bit for bit.
    """

    def train(crash: int, *overrides: str) -> tuple[Path, Path]:
        given = [*overrides, "resume=true"]
        whole = hatten.train.train(composed("train", *given, f"output_dir={tmp_path / 'whole'}"))
        broken = composed("train", *given, f"output_dir={tmp_path / 'broken'}")
        with monkeypatch.context() as patch:
            patch.setattr(training.loop, "Progress", lambda: StopAt(crash))
            with pytest.raises(RuntimeError, match="crash"):
                hatten.train.train(broken)
        resumed = hatten.train.train(broken)
        states = [torch.load(best.parent / "last.ckpt", weights_only=True) for best in (whole, resumed)]
        for part in ("state_dict", "optimizer_states"):
            assert same(states[0][part], states[1][part]), part
        return whole, resumed

    return train


def same(one: Any, other: Any) -> bool:
    """Whether nested lists, dictionaries and tensors are equal bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)
