"""The entry point evaluate.py; the table of a sweep: its columns, failed jobs, and which jobs it finds."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.conf import HydraConf, RuntimeConf, SweepDir
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from citerec.base.errors import InputError
from citerec.base.settings import SCHEMAS
from citerec.evaluation.summary import FAILURE, Summary
from citerec.tests.conftest import Done

ROOT = Path(__file__).parents[2]


def _config(sweep: Path, folder: Path | None = None, mode: RunMode = RunMode.MULTIRUN) -> DictConfig:
    runtime = RuntimeConf(output_dir=str(folder))
    return OmegaConf.create({"hydra": HydraConf(mode=mode, sweep=SweepDir(str(sweep)), runtime=runtime)})


def _job(folder: Path, overrides: list[str], metrics: dict[str, Any] | None) -> Path:
    (folder / ".hydra").mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(overrides), folder / ".hydra" / "overrides.yaml")
    if metrics is not None:
        (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def _finish(summary: Summary, sweep: Path, folder: Path, error: Exception | None = None) -> JobReturn:
    returned = JobReturn(status=JobStatus.FAILED if error else JobStatus.COMPLETED)
    returned.return_value = error
    summary.on_job_end(_config(sweep, folder), returned)
    return returned


def test_a_failure_becomes_a_result(tmp_path: Path) -> None:
    summary = Summary()
    folder = _job(tmp_path / "0", ["a=1"], None)
    returned = _finish(summary, tmp_path, folder, InputError("two\nlines"))
    assert returned.status == JobStatus.COMPLETED and returned.return_value is None
    assert (folder / FAILURE).read_text() == "two lines\n"
    # The same job again, successfully.
    _finish(summary, tmp_path, folder)
    assert not (folder / FAILURE).exists()


def test_a_single_run_that_fails_ends_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    returned = JobReturn(status=JobStatus.FAILED)
    returned.return_value = InputError("no such thing")
    with pytest.raises(SystemExit) as ended:
        Summary().on_job_end(_config(tmp_path, tmp_path, RunMode.RUN), returned)
    assert ended.value.code == 2 and capsys.readouterr().err == "error: no such thing\n"
    # A bug keeps its traceback: Hydra raises it.
    returned.return_value = KeyError("bug")
    Summary().on_job_end(_config(tmp_path, tmp_path, RunMode.RUN), returned)
    assert returned.status == JobStatus.FAILED


def test_the_table_has_the_varied_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary(columns=["mrr", "no such metric"])
    summary.on_multirun_start(_config(tmp_path))
    first = {"mrr": 0.5, "recall@1": 0.1, "recall@10": 0.2}
    for number, metrics in enumerate([first, first | {"mrr": 0.25, "queries": 1234}]):
        folder = _job(tmp_path / str(number), ["same=x", f"+new.k={number}"], metrics)
        _finish(summary, tmp_path, folder)
    summary.on_multirun_end(_config(tmp_path))
    lines = (tmp_path / "summary.md").read_text().splitlines()
    assert lines[2:4] == ["| job | mrr |", "| --- | ---: |"]
    assert lines[4:6] == ["| new.k=0 | 0.5000 |", "| new.k=1 | 0.2500 |"]
    assert "- new.k=0: [report](0/report.md)" in lines
    with (tmp_path / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["mrr"] for row in rows] == ["0.5", "0.25"] and rows[1]["queries"] == "1234"
    assert rows[0]["override:same"] == "x" and rows[0]["recall@10"] == "0.2"
    assert str(tmp_path / "1" / "report.md") in capsys.readouterr().out


def test_trainings_without_a_folder_get_one() -> None:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", ["model=static"], return_hydra_config=True)
    HydraConfig.instance().cfg = None  # as before the first job
    summary = Summary()
    summary.on_multirun_start(config)
    summary.on_multirun_end(config)
    assert config.hydra.sweep.dir.startswith("outputs/train/static-demo/")


def test_a_sweep_that_is_stopped_tells_of_the_jobs_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[tuple[Any, ...]] = []
    monkeypatch.setattr("atexit.register", lambda *call: at_exit.append(call))
    summary, before = Summary(["mrr"]), signal.getsignal(signal.SIGTERM)
    summary.on_multirun_start(_config(tmp_path))
    try:
        _finish(summary, tmp_path, _job(tmp_path / "0", ["k=0"], {"mrr": 0.5}))
        _job(tmp_path / "1", ["k=1"], None)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    [(write, *arguments)] = at_exit
    write(*arguments)
    lines = (tmp_path / "summary.md").read_text().splitlines()
    assert lines[0] == "# 1 job, then interrupted" and lines[4] == "| k=0 | 0.5000 |"


def test_jobs_of_other_processes_are_found_and_old_ones_are_not(tmp_path: Path) -> None:
    old = _job(tmp_path / "7", ["k=7"], {"mrr": 0.7})
    os.utime(old / ".hydra" / "overrides.yaml", (1, 1))
    summary = Summary(["mrr"])
    summary.on_multirun_start(_config(tmp_path))
    for number in (10, 9):
        _job(tmp_path / str(number), [f"k={number}"], {"mrr": number / 100})
    _job(tmp_path / "11", ["k=11"], None)
    with pytest.raises(SystemExit) as ended:
        summary.on_multirun_end(_config(tmp_path))
    assert ended.value.code == 2
    lines = (tmp_path / "summary.md").read_text().splitlines()
    assert lines[4:6] == ["| k=9 | 0.0900 |", "| k=10 | 0.1000 |"] and lines[9].startswith(
        "- k=11: no metrics"
    )


def test_a_sweep_shows_the_tables_of_its_benchmark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = Summary()
    target = vars(SCHEMAS["field_level"])["_target_"]
    row = {"map": 1.25, "ndcg": 56.1, "recall_30": 52.0, "queries": 9, "candidates": 30}
    for number in (0, 1):
        metrics = {"hep-th": row | {"map": 1.25 + number}, "AVG": row}
        folder = _job(tmp_path / str(number), [f"k={number}"], metrics)
        OmegaConf.save({"benchmark": {"_target_": target}}, folder / ".hydra" / "config.yaml")
        (folder / "sample.json").write_text('{"remarks": [], "tuned": null, "collection": null}')
        _finish(summary, tmp_path, folder)
    summary.on_multirun_end(_config(tmp_path))
    text = (tmp_path / "summary.md").read_text()
    assert "| MAP | hep-th | AVG |" in text and "| k=1 | **2.25** | **1.25** |" in text
    assert "MAP" in capsys.readouterr().out


def test_the_callback_imports_nothing_heavy() -> None:
    code = "import sys, evaluation.summary; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "numpy", "faiss", "matplotlib"} & set(done.stdout.split())


def test_jobs_with_the_same_values_are_told_apart(tmp_path: Path) -> None:
    summary = Summary(columns=["mrr"])
    for number in (0, 1):
        _finish(summary, tmp_path, _job(tmp_path / str(number), ["k=3"], {"mrr": number / 4}))
    summary.on_multirun_end(_config(tmp_path))
    text = (tmp_path / "summary.md").read_text()
    assert "| k=3 (0) | 0.0000 |" in text and "| k=3 (1) | 0.2500 |" in text


# evaluate.py, once in a subprocess and otherwise in this process.

DATA = ["data=custom", "data.dir=tiny", "data.cache_dir=cache"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["retriever=bm25", "retriver.k1=2"], "retriver"),
        (["retriever=bm24"], "bm24"),
        (["retriever=bm25", "split=dev"], "no split 'dev'; choose from train, val, test"),
    ],
)
def test_unusable_input_is_one_line_and_code_2(
    tiny_source: Path, evaluate: Callable[..., Done], arguments: list[str], message: str
) -> None:
    done = evaluate(*DATA, "output_dir=out", *arguments)
    assert done.code == 2
    assert done.err.startswith("error: ") and done.err.count("\n") == 1 and message in done.err
    assert not (tiny_source.parent / "out" / "metrics.json").exists()


@pytest.mark.slow
def test_output_dir_is_relative_to_the_current_folder(tiny_source: Path) -> None:
    command = [sys.executable, str(ROOT / "evaluate.py"), *DATA, "retriever=bm25", "output_dir=some/out"]
    done = subprocess.run(command, cwd=tiny_source.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    out = tiny_source.parent / "some" / "out"
    assert json.loads((out / "metrics.json").read_text())["recall@10"] == 1.0
    assert "data.dir=tiny" in (out / "report.md").read_text()
    assert "some/out/report.md" in done.stdout and "recall@10 " in done.stdout
    assert "recall@2000" not in done.stdout  # there are 11 candidates
