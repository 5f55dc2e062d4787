"""Runs the evaluations of a plan that have no result yet, each in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

import evaluation.settings  # noqa: F401  (schemas of the configuration)
from datasets.configuration import store_schemas
from datasets.errors import InputError
from datasets.files import write_text
from evaluation.build_mdcr import FILE
from evaluation.plan import BUILD, TRAIN, Job, Step
from evaluation.report import METRICS

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = "output.txt"
"""What a job printed."""

UNFINISHED = "unfinished.txt"
"""Lies beside a checkpoint that may not be the last of its training."""

MADE = "made.txt"
"""Lies beside a benchmark and says by which command it was made."""

SETTINGS = ("data", "retriever", "benchmark", "filters", "split", "index_dir")
"""What `evaluate.py` takes from its configuration."""


def why_missing(job: Job) -> str | None:
    """Why there is no result of this job as it is described now; None when there is one.

    A result is taken as it is when its settings, defaults included, are those of today, and no file that they
    name is newer. Changes of the code are not seen: remove the job's folder to have it again.
    """
    metrics = job.folder / METRICS
    if not metrics.is_file():
        return "not there"
    try:
        made = _plain(OmegaConf.load(job.folder / ".hydra" / "config.yaml"))
    except (OSError, YAMLError, OmegaConfBaseException):
        return "its settings cannot be read"
    if made != job_settings(job):
        return "made with other settings"
    for step in job.needs:
        if step.script == BUILD and (reason := why_unmade(step)):
            return f"its benchmark {step.name}: {reason}"
    named = [path for override in job.overrides if (path := Path(override.partition("=")[2])).is_file()]
    for path in [*named, *(step.made for step in job.needs)]:
        if _changed(path) > metrics.stat().st_mtime:
            return f"{path} is newer"
    return None


def why_unmade(step: Step) -> str | None:
    """Why there is no checkpoint, or no benchmark by these settings of what its models rank today."""
    if step.script == TRAIN:
        there = step.made.exists() and not (step.folder / UNFINISHED).exists()
        return None if there else "not there"
    made = step.folder / MADE
    if not (step.made / FILE).is_file() or not made.is_file():
        return "not there"
    if made.read_text("utf-8") != step.command:
        return "made with other settings"
    for job in step.models:
        if reason := why_missing(job):
            return f"{job}: {reason}"
        if _changed(job.folder / METRICS) > _changed(made):
            return f"{job} is newer"
    return None


def _changed(path: Path) -> float:
    """When a file, or the latest in a folder, was written; 0 if there is none."""
    files = [path] if path.is_file() else path.rglob("*")
    return max((file.stat().st_mtime for file in files), default=0.0)


def job_settings(job: Job) -> dict[str, Any]:
    """What `evaluate.py` would run this job with; InputError for options that there are not."""
    return _settings(tuple(job.overrides))


@cache
def _settings(overrides: tuple[str, ...]) -> dict[str, Any]:
    store_schemas()
    try:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            return _plain(compose("evaluate", list(overrides)))
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(f"configuration: {' '.join(str(error).split())}") from None


def _plain(config: Any) -> dict[str, Any]:
    """The part of a configuration that numbers depend on; groups that the retriever does not name do not."""
    whole = OmegaConf.to_container(config, resolve=True)
    assert isinstance(whole, dict)
    return {key: whole.get(key) for key in SETTINGS}


def job_metrics(job: Job) -> dict[str, Any]:
    """The metrics of a job that is there."""
    metrics: dict[str, Any] = json.loads((job.folder / METRICS).read_text("utf-8"))
    return metrics


def run_all(jobs: list[Job]) -> dict[str, str]:
    """Run what is missing, one after the other; the reasons of the jobs that failed, by job."""
    failed: dict[str, str] = {}
    for number, job in enumerate(jobs, 1):
        started = time.perf_counter()
        _say(f"[{number} of {len(jobs)}] {job}: ")
        try:
            missing = why_missing(job)
            if missing is None:
                _say("there already\n")
                continue
            for step in job.needs:
                if reason := why_unmade(step):
                    training = step.script == TRAIN
                    _say(f"{'training' if training else 'building'} {step.name} ({reason}), ")
                    (_train if training else _build)(step)
            _say(f"evaluating ({missing}), ")
            _evaluate(job)
            _say(f"done in {time.perf_counter() - started:.0f} s\n")
        except InputError as error:
            failed[str(job)] = str(error)
            _say(f"failed: {error}\n")
    return failed


def _evaluate(job: Job) -> None:
    (job.folder / METRICS).unlink(missing_ok=True)  # what fails must not leave the result of other settings
    _python("evaluate.py", job.overrides, job.folder)
    if not (job.folder / METRICS).is_file():
        raise InputError(f"{job.folder}: evaluate.py ended without {METRICS}")


def _train(step: Step) -> None:
    mark = step.folder / UNFINISHED
    write_text(mark, "train.py has not ended here; it goes on with resume=true\n")
    _python(TRAIN, [*step.overrides, "resume=true"], step.folder)
    if not step.made.exists():
        raise InputError(f"training {step.name} did not write {step.made}")
    mark.unlink()


def _build(step: Step) -> None:
    for job in step.models:
        if reason := why_missing(job):
            raise InputError(f"building {step.name} needs {job} ({reason})")
    if step.made.exists():  # made of other lists
        shutil.rmtree(step.made)
    _python(BUILD, step.overrides, step.folder)
    write_text(step.folder / MADE, step.command)


def _python(script: str, overrides: list[str], folder: Path) -> None:
    """Run a script or a module; InputError with what it said last when it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / OUTPUT
    with output.open("wb") as file:
        called = [str(ROOT / script)] if script.endswith(".py") else ["-m", script]
        command = [sys.executable, *called, *overrides]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    if code:
        lines = output.read_text("utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        raise InputError(f"{last.removeprefix('error: ')} ({script} ended with {code}; {output})")


def _say(text: str) -> None:
    print(text, end="", flush=True)
