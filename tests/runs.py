"""Helpers for training tests: compose configurations, crash and resume runs, compare two runs."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from socket import socket
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from omegaconf import DictConfig
from pytorch_lightning.utilities import rank_zero_only
from safetensors.torch import load_file
from torch.testing import assert_close

import citerec.training.loop
from citerec.tests.composing import CONF, compose_config

Composed = Callable[..., DictConfig]


def overrides(*parts: Mapping[str, Any]) -> list[str]:
    """Return OPTION=VALUE overrides; later parts win."""
    options = {name: value for part in parts for name, value in part.items()}
    return [f"{name}={value}" for name, value in options.items()]


def train_config(*parts: Mapping[str, Any]) -> DictConfig:
    """Compose the configuration of train.py."""
    return compose_config("train", overrides(*parts))


class StopAt(pl.Callback):
    """Raises an error after a step, or sends its process a signal."""

    def __init__(self, step: int, number: int | None = None) -> None:
        self.step, self.number = step, number

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        if trainer.global_step == self.step and trainer.is_global_zero:
            if self.number is None:
                raise RuntimeError("crash")
            os.kill(os.getpid(), self.number)


def signal_at(step: int, number: int) -> str:
    """Return the override by which a training sends itself a signal after a step."""
    callback = f"{{_target_: {StopAt.__module__}.StopAt, step: {step}, number: {int(number)}}}"
    return f"+callbacks.signal={callback}"


def train_until_crash(train: Callable[[DictConfig], Path], step: int, config: DictConfig) -> None:
    """Train and crash after a step."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="crash"):
        patch.setattr(citerec.training.loop, "Progress", lambda: StopAt(step))
        train(config)


def train_twice(
    train: Callable[[DictConfig], Path], step: int, folder: Path, *parts: Mapping[str, Any]
) -> tuple[Path, Path]:
    """Train once without interruption and once with a crash after `step`; return the saved model of each.

    Asserts that the crash leaves a checkpoint of the step before, and that both runs are equal bit for bit.
    """
    one, other = (
        train_config(*parts, {"resume": True, "checkpoint_minutes": minutes, "output_dir": folder / name})
        for name, minutes in (("one", 5), ("other", 0))
    )
    whole = train(one)
    train_until_crash(train, step, other)
    assert steps_done(folder / "other") == step - 1
    resumed = train(other)
    assert_same_run(whole.parent, resumed.parent)
    return whole, resumed


def steps_done(out: Path) -> int:
    """Return the number of steps before the last checkpoint."""
    return int(torch.load(out / "last.ckpt", weights_only=True)["global_step"])


def history(out: Path) -> list[dict[str, float]]:
    """Return the measures of each round, without times."""
    with (out / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {name: float(value) for name, value in row.items() if value and "second" not in name} for row in rows
    ]


def assert_same_run(one: Path, other: Path) -> dict[str, Any]:
    """Assert that weights, averages, optimiser and measures are equal bit for bit; return the state."""
    states = [torch.load(out / "last.ckpt", weights_only=True) for out in (one, other)]
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "global_step"):
        assert same(states[0][part], states[1][part]), part
    assert history(one) == history(other)
    return dict(states[0])


def same(one: Any, other: Any) -> bool:
    """True if nested lists, dictionaries and tensors are equal bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


TWO = {"trainer.devices": 2, "trainer.strategy": "ddp"}
"""Options of a training in two processes."""


def run_training(given: list[str], out: Path) -> subprocess.CompletedProcess[str]:
    """Train with train.py, which starts the second process."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(CONF.parent / "train.py"), *given, f"output_dir={out}"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    ["citerec.train", "citerec.hatten.model", "citerec.rerank.cross_encoder.reranker"]
)


def run_forked(given: list[str], out: Path, processes: int = 1) -> subprocess.CompletedProcess[str]:
    """Run train.py in forks of a process that has imported all and computed nothing.

    Several are told of each other as torchrun does it.
    """
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "GROUP_RANK": 0, "MASTER_PORT": port}
    shared |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "tests"}
    forks, printed = [], [out.with_name(f"{out.name}.{kind}") for kind in ("out", "err")]
    for rank in range(processes):
        own = {**shared, "RANK": rank, "LOCAL_RANK": rank} if processes > 1 else {}
        options = [*given, f"output_dir={out}"]
        fork = FORKS.Process(target=_run_here, args=(options, own, printed))
        fork.start()
        forks.append(fork)
    for fork in forks:
        fork.join(600)
    codes = [fork.exitcode or 0 for fork in forks]
    texts = [path.read_text("utf-8") for path in printed]
    return subprocess.CompletedProcess(given, next(filter(None, codes), 0), *texts)


def _run_here(given: list[str], environment: Mapping[str, Any], printed: list[Path]) -> None:
    os.environ.update({"HF_HUB_OFFLINE": "1", **{name: str(value) for name, value in environment.items()}})
    torch.set_num_threads(1)
    vars(rank_zero_only)["rank"] = int(environment.get("RANK", 0))  # Lightning reads it when imported
    for number, path in enumerate(printed, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.argv = ["train.py", *given]
    import_module("citerec.train").main()


def assert_same_up_to_rounding(one: Path, other: Path, model: str) -> None:
    """Assert that the histories and the saved weights of two runs are equal up to rounding."""
    rows, others = history(one), history(other)
    assert rows
    for row, of_other in zip(rows, others, strict=True):
        assert row == pytest.approx(of_other, rel=1e-5, abs=1e-5)
    files = sorted(path.name for path in (one / model).glob("*.safetensors"))
    assert files == sorted(path.name for path in (other / model).glob("*.safetensors")) != []
    for file in files:
        weights = [load_file(out / model / file) for out in (one, other)]
        assert weights[0].keys() == weights[1].keys()
        for key, value in weights[0].items():
            assert_close(value, weights[1][key], atol=1e-5, rtol=1e-4, msg=key)
