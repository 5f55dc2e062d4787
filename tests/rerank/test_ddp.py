"""Training on two processes (gloo, on a CPU) is training on one: the same steps, validations and weights."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def trained(given: list[str], out: Path) -> subprocess.CompletedProcess[str]:
    """Run train.py as users do; it starts the second process itself."""
    command = [sys.executable, str(ROOT / "train.py"), *given, f"output_dir={out}"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def history(out: Path) -> list[dict[str, float]]:
    with (out / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: float(value) for name, value in row.items() if "second" not in name} for row in rows]


@pytest.mark.parametrize("lists", ["cited", "top"])
def test_two_processes_do_what_one_does(
    tiny_options: Callable[..., list[str]], lists: str, tmp_path: Path
) -> None:
    """Two queries a step, one a process; that each pair is validated once is held by rerank.train."""
    more: dict[str, Any] = {"model.validation.every": 50, "model.ema": 0.5, "model.freeze_layers": 1}
    if lists == "top":
        more |= {"model.lists": "top", "model.loss.name": "pointwise", "model.pairs.query": "paper"}
    # Adam would make whole steps of gradients that are nothing but rounding.
    more |= {"model.optimizer._target_": "torch.optim.SGD", "model.optimizer.lr": 0.1}
    for name, devices in (("one", {}), ("two", {"trainer.devices": 2, "trainer.strategy": "ddp"})):
        done = trained(tiny_options(**more, **devices), tmp_path / name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("training on tiny") == 1, done.stdout
    one, two = (history(tmp_path / name) for name in ("one", "two"))
    assert one and all(row["val/ceiling"] > 0 for row in one)
    for row, other in zip(one, two, strict=True):
        assert row == pytest.approx(other, abs=1e-5)
    for file in ("model.safetensors", "head.safetensors"):
        weights = [load_file(tmp_path / name / "reranker" / file) for name in ("one", "two")]
        assert weights[0].keys() == weights[1].keys()
        for key, value in weights[0].items():
            assert_close(value, weights[1][key], atol=1e-5, rtol=1e-4, msg=key)


def test_queries_that_cannot_be_divided_are_one_line(
    tiny_options: Callable[..., list[str]], tmp_path: Path
) -> None:
    devices = {"trainer.devices": 2, "trainer.strategy": "ddp", "model.batch.queries": 1}
    done = trained(tiny_options(**devices), tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: model.batch.queries=1: cannot be divided among 2")
