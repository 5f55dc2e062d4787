"""Runs the evaluations of a plan that have no up-to-date result, each in its own process, and reports the
progress of its trainings. It can be stopped or killed at any time: the same command continues.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

import citerec.evaluation.settings  # noqa: F401  (schemas of the configuration)
from citerec.base.configuration import prepare_hydra
from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.base.help import CONF
from citerec.evaluation.report import METRICS
from citerec.evaluation.results.plan import Job, Step
from citerec.training.settings import LAST, RESTART

OUTPUT = "output.txt"
"""Log of a job, in its folder."""

UNFINISHED = "unfinished.txt"
"""Marks a checkpoint whose training may not have finished."""

SETTINGS = ("data", "retriever", "benchmark", "filters", "split", "index_dir")
"""Parts of its configuration that `citerec evaluate` uses."""

FOLDERS = ("checkpoint", "ranker", "drafts", "benchmark.model", "encoder.path")
"""Ends of the options that name folders of inputs; others name outputs."""

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
    except (OSError, YAMLError, OmegaConfBaseException):
        return "settings unreadable"
    if settings != job_settings(job):
        return "settings changed"
    data = settings["data"] or {}
    inputs = [Path(place) for place in (data.get("dir"), *(data.get("dirs") or ())) if place]
    for override in _resolve(job.overrides):
        key, _, value = override.partition("=")
        paths = [Path(name.strip()) for name in re.split(r"""[][,'"]""", value)]
        inputs += [path for path in paths if path.is_file() or (key.endswith(FOLDERS) and path.is_dir())]
    for path in [*inputs, *(step.output for step in job.needs)]:
        if _modified(path) > metrics.stat().st_mtime:
            return f"{path} is newer"
    return next((f"training {step.name} is not finished" for step in job.needs if _is_open(step)), None)


def is_trained(step: Step) -> bool:
    """True if a training with these options, and with the current results of those it needs, has finished."""
    return step.output.exists() and not _is_open(step) and not _is_older(step.output, step)


def _is_older(path: Path, step: Step) -> bool:
    """True if one of the trainings that a step needs has written its checkpoint after a file or folder."""
    return any(_modified(need.output) > _modified(path) for need in step.needs)


def _is_open(step: Step) -> bool:
    """True if a training was begun but not finished, or with other options (not the trainer's) than now."""
    begun: Any = step.overrides
    with suppress(OSError, YAMLError):
        begun = OmegaConf.to_container(OmegaConf.load(step.folder / ".hydra" / "overrides.yaml"))
    then, now = (
        {option for option in options if not option.startswith(("trainer.", "resume=", "output_dir="))}
        for options in (_resolve(begun), _resolve(step.overrides))
    )
    return then != now or (step.folder / UNFINISHED).exists()


def _resolve(options: list[str]) -> list[str]:
    """Replace variables of the environment, which may change, if Hydra can read options with their values."""
    prepare_hydra()
    resolved, parse = list(options), OverridesParser.create().parse_override
    for place, option in enumerate(options):
        with suppress(OmegaConfBaseException, HydraException):
            resolved[place] = str(parse(OmegaConf.create([option])[0]).input_line)
    return resolved


def _modified(path: Path) -> float:
    """Return the modification time of a file, or the latest one in a folder; 0 if there are no files."""
    files = [path] if path.is_file() else path.rglob("*")
    return max((file.stat().st_mtime for file in files), default=0.0)


def job_settings(job: Job) -> dict[str, Any]:
    """Return the settings with which `citerec evaluate` would run a job; InputError for unknown options."""
    return _settings(tuple(_resolve(job.overrides)))


@cache
def _settings(overrides: tuple[str, ...]) -> dict[str, Any]:
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
    return dict(json.loads((job.folder / METRICS).read_text("utf-8")))


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
            _run_script("evaluate", _resolve(job.overrides), job.folder)
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
    log = folder / OUTPUT
    text = log.read_text("utf-8", errors="replace") if log.exists() else ""
    return next((match for line in reversed(text.split("\n")) if (match := STEP.search(line))), None)


def _train(step: Step) -> None:
    mark, last = step.folder / UNFINISHED, step.folder / LAST
    if _is_older(last, step):  # it began with the earlier checkpoint
        last.unlink(missing_ok=True)
    write_text(mark, "the training has not finished here; continue it with resume=true\n")
    _run_script("train", [*_resolve(step.overrides), "resume=true"], step.folder)
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
        text = output.read_text("utf-8", errors="replace").replace(RESTART, f"remove or move {folder}")
        last = next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "no output")
        raise InputError(f"{last.removeprefix('error: ')} (citerec {script} exited with {code}; {output})")


def _wait(command: list[str], output: IO[bytes]) -> int:
    """Run a command to its end and return its exit code; the command ends before this process does, unless
    this process is killed."""
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)
    # In a session of its own, it is not interrupted by the keyboard, but told to stop below.
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    _keep_priority(process.pid)
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


def _keep_priority(process: int) -> None:
    """Give a session on Linux the niceness of its process. By default, sessions share the processors equally,
    so a command in a session of its own would take half of them, however nice it is."""
    with suppress(OSError, AttributeError):
        Path(f"/proc/{process}/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)), "ascii")


def _print(text: str) -> None:
    print(text, end="", flush=True)
