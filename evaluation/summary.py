"""Hydra callback that summarises all jobs of a multirun, even if some of them fail.

Light to import, since trainings use it too; benchmarks are imported only at the end of a sweep.
"""

from __future__ import annotations

import atexit
import csv
import io
import json
import logging
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback

from citerec.base.errors import count_noun, error_line, fail
from citerec.base.files import relative_path, write_text
from citerec.evaluation.report import (
    METRICS,
    REPORT,
    Column,
    Part,
    Table,
    flatten_groups,
    print_line,
    print_parts,
    to_markdown,
)

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig

    from citerec.evaluation.benchmark import Benchmark

log = logging.getLogger(__name__)

FAILURE = "failed.txt"
"""File in the folder of a failed job, with the reason in one line."""
TRAINING = "training.png"
"""Plot of a training, linked instead of a report."""


@dataclass
class SweepJob:
    """A finished job of a sweep: its folder, overrides, and metrics or the reason of its failure.

    kind, settings: those of the benchmark, if the job is an evaluation.
    """

    folder: Path
    overrides: dict[str, str]
    metrics: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    kind: type[Benchmark] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def label(self, keys: Sequence[str]) -> str:
        """Label the job by its values of these keys, or by its folder."""
        values = [f"{key}={self.overrides[key]}" for key in keys if key in self.overrides]
        return " ".join(values) or self.folder.name

    @property
    def file(self) -> str:
        """The name of the file to link: a training's plot or an evaluation's report."""
        return TRAINING if (self.folder / TRAINING).is_file() else REPORT


class Summary(Callback):
    """Prints and writes the tables and plots of the jobs of a multirun (summary.md; summary.csv with all
    metrics), as benchmarks declare them for results pages.

    A failed job does not stop the multirun: its error is listed below, and the program exits with code 2 at
    the end. A multirun that is interrupted, also by SIGTERM, reports the jobs before. A single run that fails
    with an InputError ends with one line and code 2.
    columns: metrics of trainings to show.
    """

    def __init__(
        self, columns: Sequence[str] = ("mrr", "recall@10", "recall@100", "seconds_per_query")
    ) -> None:
        self.columns = list(columns)
        self._started = 0.0
        self._folders: list[Path] = []

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self._started, self._folders = time.time(), []
        HydraConfig.instance().set_config(config)  # for ${hydra:...} in hydra.sweep.dir, before the first job
        signal.signal(signal.SIGTERM, _interrupt)
        # Hydra calls nothing after an interrupt.
        atexit.register(self._write, Path(config.hydra.sweep.dir), ", then interrupted")

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Record the job's folder and any failure, which Hydra would otherwise raise before the table."""
        from hydra.core.utils import JobStatus
        from hydra.types import RunMode

        error = job_return._return_value if job_return.status == JobStatus.FAILED else None
        line = error_line(error) if isinstance(error, BaseException) else None
        if config.hydra.mode != RunMode.MULTIRUN:
            if line:  # Hydra would print a line of its own before raising the error
                fail(line)
            return
        folder = Path(config.hydra.runtime.output_dir)
        self._folders.append(folder)
        (folder / FAILURE).unlink(missing_ok=True)
        if error is not None:
            reason = line or f"{type(error).__name__}: {error}"
            log.error("%s", reason, exc_info=None if line else error)
            write_text(folder / FAILURE, " ".join(reason.split()) + "\n")
            job_return.status, job_return.return_value = JobStatus.COMPLETED, None

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write and print the table; exit with code 2 if a job failed."""
        atexit.unregister(self._write)
        jobs = self._write(Path(config.hydra.sweep.dir))
        failed = [f"{label}: {job.failure}" for label, job in jobs.items() if job.failure]
        if failed:
            fail(f"{len(failed)} of {len(jobs)} jobs failed; {failed[0]}")

    def _write(self, sweep: Path, end: str = "") -> dict[str, SweepJob]:
        """Write and print the table; returns the jobs by label. end: why there are no more."""
        # Launchers that run jobs in other processes record nothing here: look for new folders.
        jobs = [read_job(folder) for folder in self._folders or find_jobs(sweep, self._started)]
        jobs = [job for job in jobs if job.metrics or (job.folder / FAILURE).is_file() or not end]
        if not jobs:
            return {}
        keys = list(dict.fromkeys(key for job in jobs for key in job.overrides))
        varied = [key for key in keys if len({job.overrides.get(key) for job in jobs}) > 1] or keys
        labels = [job.label(varied) for job in jobs]
        if len(set(labels)) < len(labels):  # a sweeper may try the same values twice
            labels = [f"{label} ({job.folder.name})" for label, job in zip(labels, jobs, strict=True)]
        by_label = dict(zip(labels, jobs, strict=True))
        parts, head = self._parts(by_label, sweep.name), count_noun(len(jobs), "job") + end
        links = []
        for label, job in by_label.items():
            path = relative_path(job.folder.absolute() / job.file, sweep.absolute())
            links.append(f"- {label}: {job.failure or f'[{Path(job.file).stem}]({path})'}")
        text = [f"# {head}", *to_markdown(parts, sweep), "\n".join(links)]
        write_text(sweep / "summary.md", "\n\n".join(text) + "\n")
        write_text(sweep / "summary.csv", _csv(jobs, keys))
        print_parts(parts, head)
        for label, job in by_label.items():
            print_line(f"{label}: {job.failure or job.folder / job.file}")
        print_line(f"tables: {sweep / 'summary.md'}")
        return by_label

    def _parts(self, jobs: Mapping[str, SweepJob], title: str) -> list[Part]:
        """Return what benchmarks show of their jobs, {label: job}, and a table of the trainings."""
        from citerec.evaluation.benchmark import Output

        kinds: dict[type[Benchmark], dict[str, Output]] = {}
        trained: dict[str, dict[str, Any]] = {}
        for label, job in jobs.items():
            if job.kind and job.metrics:
                outputs = kinds.setdefault(job.kind, {})
                outputs[label] = Output(job.folder, job.metrics, job.settings)
            elif job.metrics:
                trained[label] = job.metrics
        parts = [part for kind, outputs in kinds.items() for part in kind.view(outputs, title)]
        names = [name for name in self.columns if any(name in metrics for metrics in trained.values())]
        columns = [Column(name, name, decimals=4) for name in names]
        return [*parts, *([Table.of(trained, columns, "job")] if columns else [])]


def _interrupt(number: int, _: object) -> None:
    """Treat SIGTERM as an interrupt, unless Lightning handles it, which calls this handler after its own."""
    if signal.getsignal(number) is _interrupt:
        raise KeyboardInterrupt


def read_job(folder: Path) -> SweepJob:
    """Read overrides, benchmark and metrics, or the failure, from a job's folder."""
    from hydra.utils import get_class
    from omegaconf import OmegaConf

    overrides = OmegaConf.to_container(OmegaConf.load(folder / ".hydra" / "overrides.yaml"))
    pairs = [str(override).lstrip("+~").partition("=") for override in overrides or []]
    job = SweepJob(folder, {key: value for key, _, value in pairs})
    config = folder / ".hydra" / "config.yaml"
    if config.is_file() and (benchmark := OmegaConf.select(OmegaConf.load(config), "benchmark")):
        settings: Any = OmegaConf.to_container(benchmark, resolve=True)
        job.kind, job.settings = get_class(settings["_target_"]), settings
    try:
        if (folder / FAILURE).is_file():
            job.failure = (folder / FAILURE).read_text("utf-8").strip()
        else:
            job.metrics = json.loads((folder / METRICS).read_text("utf-8"))
    except (OSError, ValueError) as error:
        job.failure = f"no metrics: {error}"
    return job


def find_jobs(sweep: Path, since: float) -> list[Path]:
    """Return the folders of jobs below `sweep` that started after `since` (seconds since the epoch)."""
    paths = [path for path in sweep.rglob(".hydra/overrides.yaml") if path.stat().st_mtime >= since - 1]
    return sorted((path.parent.parent for path in paths), key=lambda folder: (len(folder.name), folder.name))


def _csv(jobs: list[SweepJob], keys: list[str]) -> str:
    flat = [flatten_groups(job.metrics) for job in jobs]
    names = list(dict.fromkeys(name for metrics in flat for name in metrics))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(f"override:{key}" for key in keys), *names, "folder", "failure"])
    for job, metrics in zip(jobs, flat, strict=True):
        overrides = [job.overrides.get(key, "") for key in keys]
        writer.writerow([*overrides, *(metrics.get(name, "") for name in names), job.folder, job.failure])
    return text.getvalue()
