"""Plans: YAML files that describe a results page, data sets times retrievers, and their trainings.

PlanFile, DataSet and Trainable define the format. In overrides, `{NAME}` stands for the checkpoint of the
training of that name, `{results}` for the folder of the data set's outputs.

`run_all` runs the evaluations that have no up-to-date result, each in its own process. It can be stopped or
killed at any time: the same command continues.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import msgspec
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import citerec.evaluation.settings  # noqa: F401  (schemas of the configuration)
from citerec.base.configuration import prepare_hydra
from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.base.help import CONF
from citerec.evaluation.report import METRICS
from citerec.formats.json_lines import validate

PLACEHOLDER = re.compile(r"(?<!\$)\{([\w+.-]+)\}")


class DataSet(msgspec.Struct, forbid_unknown_fields=True):
    """retrievers: instead of the plan's."""

    title: str
    overrides: list[str]
    split: str = "test"
    notes: str = ""
    retrievers: dict[str, list[str]] | None = None


class Trainable(msgspec.Struct, forbid_unknown_fields=True):
    """A training by citerec train with these overrides, per data set or `shared` by all of them."""

    overrides: list[str]
    checkpoint: str
    shared: bool = False


class PlanFile(msgspec.Struct, forbid_unknown_fields=True):
    """page: file to write; outputs: folder of all outputs; compare: pairs of retrievers to test; highlight:
    retrievers to colour in the plot of recall (default: the best); shown: retrievers in the page's table
    (default: all; the others are in its CSV files); expected: {DATA/NAME: {measure: value}},
    from which results may differ by tolerance."""

    page: str
    outputs: str
    title: str
    data: dict[str, DataSet]
    retrievers: dict[str, list[str]]
    notes: str = ""
    training: dict[str, Trainable] = {}
    compare: list[tuple[str, str]] = []
    highlight: list[str] = []
    shown: list[str] = []
    expected: dict[str, dict[str, float]] = {}
    tolerance: float = 0.005


@dataclass(frozen=True)
class Step:
    """A training that jobs need: it writes the checkpoint `output`. needs: trainings to run first."""

    name: str
    folder: Path
    output: Path
    overrides: list[str]
    needs: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """A run of `citerec evaluate` with these overrides into `folder`, after the trainings that it needs."""

    data: str
    name: str
    folder: Path
    overrides: list[str]
    needs: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.data}/{self.name}"

    @property
    def commands(self) -> list[str]:
        """The command lines that reproduce the result."""
        runs = [*(["train", *step.overrides] for step in self.needs), ["evaluate", *self.overrides]]
        return [shlex.join(["citerec", *run]) for run in runs]


@dataclass(frozen=True)
class Plan:
    """A results page: its plan file and jobs."""

    path: Path
    file: PlanFile
    jobs: list[Job]

    @property
    def page(self) -> Path:
        return Path(self.file.page)

    def select(self, names: Sequence[str], without: Sequence[str] = ()) -> list[Job]:
        """Select jobs by DATA/NAME or DATA (empty means all), `without` those of DATA/NAME, DATA or NAME.

        Raises InputError for unknown names.
        """
        names_known = {*map(str, self.jobs), *self.file.data}
        for name in [*names, *without]:
            if name not in names_known | ({job.name for job in self.jobs} if name in without else set()):
                raise InputError(f"no job {name!r} in the plan; choose from {', '.join(map(str, self.jobs))}")
        jobs = [job for job in self.jobs if not names or str(job) in names or job.data in names]
        return [job for job in jobs if not {str(job), job.data, job.name} & set(without)]


def read_plan(path: Path, elsewhere: str | None = None) -> Plan:
    """Read a plan; InputError names the faulty part. elsewhere: folder of outputs, instead of the plan's."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    file = validate(content, PlanFile, str(path))
    outputs, jobs = Path(elsewhere or file.outputs), dict[str, Job]()
    for data, data_set in file.data.items():
        steps: dict[str, Step] = {}
        for name, training in file.training.items():
            results = outputs if training.shared else outputs / data
            folder = results / "train" / name
            where = f"{path}, training.{name}"
            overrides, needs = _fill_placeholders(training.overrides, results, steps, where)
            own = [] if training.shared else data_set.overrides
            overrides = [*own, *overrides, f"output_dir={folder}"]
            steps[name] = Step(name, folder, folder / training.checkpoint, overrides, needs)
        rows = {key: [] for key in file.retrievers} if data_set.retrievers is None else data_set.retrievers
        for name, own in rows.items():
            where = f"{path}, data.{data}.retrievers"
            if not own and name not in file.retrievers:
                raise InputError(f"{where}: unknown retriever {name!r}; list its overrides")
            overrides = [*data_set.overrides, *file.retrievers.get(name, []), *own]
            overrides, needs = _fill_placeholders(overrides, outputs / data, steps, f"{where}.{name}")
            folder = outputs / data / name
            overrides = [*overrides, f"split={data_set.split}", f"output_dir={folder}"]
            jobs[f"{data}/{name}"] = Job(data, name, folder, overrides, needs)
    retrievers = {job.name for job in jobs.values()}
    compared = [name for pair in file.compare for name in pair]
    for key, names in (("highlight", file.highlight), ("shown", file.shown), ("compare", compared)):
        if unknown := sorted({*names} - retrievers):
            raise InputError(
                f"{path}, {key}: there is no retriever {unknown[0]!r}; choose from "
                f"{', '.join(sorted(retrievers))}"
            )
    if unknown := sorted(file.expected.keys() - jobs.keys()):
        raise InputError(f"{path}, expected: no job {unknown[0]!r}; choose from {', '.join(jobs)}")
    return Plan(path, file, list(jobs.values()))


def _fill_placeholders(
    overrides: list[str], results: Path, steps: Mapping[str, Step], where: str
) -> tuple[list[str], list[Step]]:
    """Replace `{NAME}` in overrides; return them and the trainings that they need, in order."""
    places = {"results": results} | {name: step.output for name, step in steps.items()}
    named = {name for override in overrides for name in PLACEHOLDER.findall(override)}
    if unknown := sorted(named - places.keys()):
        raise InputError(f"{where}: no training {unknown[0]!r} above it; choose from {', '.join(places)}")
    overrides = [PLACEHOLDER.sub(lambda match: str(places[match[1]]), override) for override in overrides]
    needed = {
        step.name: step for last in steps.values() if last.name in named for step in (*last.needs, last)
    }
    return overrides, list(needed.values())


OUTPUT = "output.txt"
"""Log of a job, in its folder."""

UNFINISHED = "unfinished.txt"
"""Marks a checkpoint whose training may not have finished."""

SETTINGS = ("data", "retriever", "benchmark", "filters", "split", "index_dir")
"""Parts of its configuration that `citerec evaluate` uses."""

STEP = re.compile(r"round \d+ of \d+, step \d+ of \d+, .*steps/s, about ([\d.]+) min .*left")
"""Progress in the log of a training (training.loop.Progress), with the minutes left."""

PATIENCE = 10.0
"""Seconds that a command has to stop, which a training uses for a checkpoint."""

STOPPED = (130, -signal.SIGINT, -signal.SIGTERM)
"""Exit codes of commands that somebody stopped: 130 is that of an interrupt (citerec.base.errors)."""


def why_missing(job: Job) -> str | None:
    """Return why a job has no up-to-date result, or None if it has one.

    A result is up to date if its settings, including defaults, are the current ones and none of the files
    that they name is newer. Code changes are not detected: delete the job's folder to run it again.
    """
    metrics = job.folder / METRICS
    if not metrics.is_file():
        return "missing"
    try:
        settings = _resolved(OmegaConf.load(job.folder / ".hydra" / "config.yaml"))
    except (OSError, yaml.YAMLError, OmegaConfBaseException):
        return "settings unreadable"
    if settings != job_settings(job):
        return "settings changed"
    inputs = [path for override in job.overrides if (path := Path(override.partition("=")[2])).is_file()]
    for path in [*inputs, *(step.output for step in job.needs)]:
        files = [path] if path.is_file() else path.rglob("*")
        if any(file.stat().st_mtime > metrics.stat().st_mtime for file in files):
            return f"{path} is newer"
    return None


def is_trained(step: Step) -> bool:
    """True if a training has finished."""
    return step.output.exists() and not (step.folder / UNFINISHED).exists()


def job_settings(job: Job) -> dict[str, Any]:
    """Return the settings with which `citerec evaluate` would run a job; InputError for unknown options."""
    return _settings(tuple(job.overrides))


@cache
def _settings(overrides: tuple[str, ...]) -> dict[str, Any]:
    prepare_hydra()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return _resolved(compose("evaluate", list(overrides)))
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(f"configuration: {' '.join(str(error).split())}") from None


def _resolved(config: Any) -> dict[str, Any]:
    """Return the part of a configuration that affects the results."""
    whole: Any = OmegaConf.to_container(config, resolve=True)
    return {key: whole.get(key) for key in SETTINGS}


def job_metrics(job: Job) -> dict[str, Any]:
    """Read the metrics of a finished job."""
    metrics: dict[str, Any] = json.loads((job.folder / METRICS).read_text("utf-8"))
    return metrics


def run_all(jobs: list[Job]) -> dict[str, str]:
    """Run all jobs that have no up-to-date result, one after the other; return {failed job: reason}."""
    failed: dict[str, str] = {}
    for number, job in enumerate(jobs, 1):
        started = time.perf_counter()
        _print(f"[{number} of {len(jobs)}] {job}: ")
        try:
            missing = why_missing(job)
            if missing is None:
                _print("up to date\n")
                continue
            for step in job.needs:
                if not is_trained(step):
                    _print(f"training {step.name}, ")
                    _train(step)
            _print(f"evaluating ({missing}), ")
            (job.folder / METRICS).unlink(missing_ok=True)  # a failure must not leave an outdated result
            _run_script("evaluate", job.overrides, job.folder)
            _print(f"done in {time.perf_counter() - started:.0f} s\n")
        except InputError as error:
            failed[str(job)] = str(error)
            _print(f"failed: {error}\n")
    return failed


def print_status(jobs: list[Job]) -> None:
    """Print the progress of the trainings of jobs, from their logs, and the time left for those running."""
    steps = {step.folder: step for job in jobs for step in job.needs}
    minutes, waiting = 0.0, 0
    for step in steps.values():
        last = None if is_trained(step) else _last_progress(step.folder)
        waiting += not is_trained(step) and last is None
        minutes += float(last[1]) if last else 0.0
        _print(f"{step.name}: {'finished' if is_trained(step) else last[0] if last else 'not begun'}\n")
    _print(f"about {minutes / 60:.1f} h left of what has begun; not begun: {waiting} of {len(steps)}\n")


def _last_progress(folder: Path) -> re.Match[str] | None:
    """Return the last progress in a log, if there is any."""
    try:
        text = (folder / OUTPUT).read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    return next((match for line in reversed(text.split("\n")) if (match := STEP.search(line))), None)


def _train(step: Step) -> None:
    mark = step.folder / UNFINISHED
    write_text(mark, "the training has not finished here; continue it with resume=true\n")
    _run_script("train", [*step.overrides, "resume=true"], step.folder)
    if not step.output.exists():
        raise InputError(f"training {step.name} did not write {step.output}")
    mark.unlink()


def _run_script(script: str, overrides: list[str], folder: Path) -> None:
    """Run a command of citerec; InputError with its last line of output if it fails, KeyboardInterrupt if it
    or this process was stopped, by SIGINT or SIGTERM."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / OUTPUT
    with output.open("ab" if script == "train" else "wb") as file:
        command = [sys.executable, "-m", "citerec", script, *overrides]
        code = _wait(command, file)
    if code in STOPPED:  # others must not begin
        raise KeyboardInterrupt(f"citerec {script} was stopped; the same command goes on")
    if code:
        lines = output.read_text("utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
        raise InputError(f"{last.removeprefix('error: ')} (citerec {script} exited with {code}; {output})")


def _wait(command: list[str], output: IO[bytes]) -> int:
    """Run a command to its end and return its exit code; it ends before this process does, unless that is
    killed."""
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)
    # In a session of its own, it is not interrupted by the keyboard, but told to stop below.
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    # On Linux, sessions share the processors alike by default, however nice their processes are.
    with suppress(OSError, AttributeError):
        Path(f"/proc/{process.pid}/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)), "ascii")
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        with suppress(subprocess.TimeoutExpired, ProcessLookupError):
            try:
                process.wait(PATIENCE)
            finally:
                os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        process.wait()
        raise KeyboardInterrupt("the same command goes on") from None
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _print(text: str) -> None:
    print(text, end="", flush=True)
