"""Fixtures for training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from hatten.train import train
from tests.runs import Composed, assert_same_run, configured, crashed


@pytest.fixture(scope="session")
def composed() -> Composed:
    """What an entry point would run with, given overrides."""

    def compose(entry: str, *overrides: str) -> DictConfig:
        return configured(entry, list(overrides))

    return compose


@pytest.fixture
def trained_twice(composed: Composed, tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Trains by overrides in one go, and with a crash after a step from which it resumes: what was saved.

    Both runs are the same bit for bit.
    """

    def twice(step: int, *overrides: str) -> tuple[Path, Path]:
        given = [*overrides, "resume=true"]
        whole = train(composed("train", *given, f"output_dir={tmp_path / 'whole'}"))
        broken = composed("train", *given, f"output_dir={tmp_path / 'broken'}")
        crashed(train, step, broken)
        resumed = train(broken)
        assert_same_run(whole.parent, resumed.parent)
        return whole, resumed

    return twice
