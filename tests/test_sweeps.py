"""Multiruns of train.py with each launcher: successful jobs are kept, distinguished, closed and tabulated."""

from __future__ import annotations

import csv
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PLUGINS = {
    "joblib": "hydra_plugins.hydra_joblib_launcher",
    "submitit_local": "hydra_plugins.hydra_submitit_launcher",
}
OPTIONS = {"joblib": ["hydra.launcher.n_jobs=2"], "submitit_local": ["hydra.launcher.timeout_min=10"]}

pytestmark = pytest.mark.slow


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a W&B run file: fragments in LevelDB's log format after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    kind_of_record: Any = vars(wandb_internal_pb2)["Record"]  # created on import

    content, offset, record = path.read_bytes(), 7, b""
    while offset < len(content):
        if (left := 32768 - offset % 32768) < 7:  # no fragment begins at the end of a block
            offset += left
            continue
        length, kind = struct.unpack_from("<HB", content, offset + 4)
        record += content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # a complete record or its last fragment
            yield kind_of_record.FromString(record)
            record = b""


@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
def test_a_failed_job_keeps_the_others_and_each_has_its_own_wandb_run(
    launcher: str, tiny_source: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    if launcher in PLUGINS:
        pytest.importorskip(PLUGINS[launcher])
    options = {
        "model": "scibert_reranker",
        "data": "custom",
        "data.dir": tiny_source,
        "data.cache_dir": tmp_path / "cache",
        "encoder": "minilm",
        "encoder.path": tiny_bert,
        "model.pairs.max_tokens": 48,
        "model.negatives.count": 3,
        "model.negatives.depth": 6,
        "model.validation.candidates": 8,
        "model.validation.monitor": "mrr",
        "logger": "wandb",
        "seed": "0,-1,2",
        "hydra/launcher": launcher,
        "output_dir": "out",
    }
    arguments = [*(f"{name}={value}" for name, value in options.items()), *OPTIONS.get(launcher, [])]
    # An earlier test in this process may have left the address of a W&B service in another folder.
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("WANDB")},
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),  # users run from the project's folder
    }
    command = [sys.executable, str(ROOT / "train.py"), "-m", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    out = tmp_path / "out"
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors == ["error: 1 of 3 jobs failed; seed=-1: seed=-1: must not be below 0"]
    for number in "02":
        metrics = json.loads((out / number / "metrics.json").read_text())
        assert metrics["round"] == 1 and 0 < metrics["val/mrr"] <= 1
        assert (out / number / "reranker" / "model.safetensors").is_file()
        (run,) = (out / number / "wandb").glob("offline-run-*/run-*.wandb")
        kinds = [record.WhichOneof("record_type") for record in records(run)]
        assert kinds.count("run") == kinds.count("exit") == 1 and "history" in kinds  # closed
    assert not (out / "1" / "wandb").exists() and not (out / "1" / "metrics.json").exists()
    table = (out / "summary.md").read_text()
    assert "| job | val/mrr |" in table and "- seed=-1: seed=-1: must not be below 0" in table
    assert "- seed=2: [training](2/training.png)" in table
    with (out / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["override:seed"] for row in rows] == ["0", "-1", "2"]
    assert [row["failure"] == "" for row in rows] == [True, False, True]
    assert rows[0]["train/loss"] != rows[2]["train/loss"]
