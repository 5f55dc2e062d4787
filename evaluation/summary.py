"""Hydra callback that summarises all jobs of a multirun in one table, even if some of them fail.

Light to import, since trainings use it too; benchmarks are imported only at the end of a sweep.
"""

from __future__ import annotations

import csv
import fnmatch
import io
import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback

from citerec.base.errors import error_line, fail
from citerec.base.files import write_text
from citerec.evaluation.report import (
    METRICS,
    REPORT,
    align_columns,
    flatten_groups,
    markdown_table,
    print_line,
    print_table,
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

    kind, settings: of an evaluation, its benchmark.
    """

    folder: Path
    overrides: dict[str, str]
    metrics: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    kind: type[Benchmark] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def flat(self) -> dict[str, Any]:
        """The metrics of all groups."""
        return flatten_groups(self.metrics)

    def label(self, keys: Sequence[str]) -> str:
        """Label the job by its values of these keys, or by its folder."""
        values = [f"{key}={self.overrides[key]}" for key in keys if key in self.overrides]
        return " ".join(values) or self.folder.name


class Summary(Callback):
    """Prints and writes a table of the jobs of a multirun (summary.md; summary.csv with all metrics).

    A failed job does not stop the multirun: the table shows its error, and the program exits with code 2 at
    the end. A single run that fails with an InputError ends with one line and code 2.
    columns: metrics of trainings to show, or patterns; benchmarks define their own.
    """

    def __init__(
        self, columns: Sequence[str] = ("mrr", "recall@10", "recall@100", "seconds_per_query")
    ) -> None:
        self.columns = list(columns)
        self._started = 0.0
        self._folders: list[Path] = []

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self._started, self._folders = time.time(), []

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
        sweep = Path(config.hydra.sweep.dir)
        # Launchers that run jobs in other processes record nothing here: look for new folders.
        jobs = [read_job(folder) for folder in self._folders or find_jobs(sweep, self._started)]
        if not jobs:
            return
        keys = list(dict.fromkeys(key for job in jobs for key in job.overrides))
        varied = [key for key in keys if len({job.overrides.get(key) for job in jobs}) > 1] or keys
        labels = [job.label(varied) for job in jobs]
        kinds = dict.fromkeys(job.kind for job in jobs if job.kind)
        columns = [*(name for kind in kinds for name in kind.columns), *self.columns]
        rows = _rows(jobs, varied, columns)
        text = [_markdown(sweep, jobs, labels, rows), *_plots(sweep, jobs, labels)]
        write_text(sweep / "summary.md", "\n\n".join(text) + "\n")
        write_text(sweep / "summary.csv", _csv(jobs, keys))
        print_table(rows, f"{len(jobs)} jobs")
        for job, label in zip(jobs, labels, strict=True):
            print_line(f"{label}: {job.failure or job.folder / result_file(job)}")
        print_line(f"table: {sweep / 'summary.md'}")
        failed = [f"{label}: {job.failure}" for job, label in zip(jobs, labels, strict=True) if job.failure]
        if failed:
            fail(f"{len(failed)} of {len(jobs)} jobs failed; {failed[0]}")


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


def result_file(job: SweepJob) -> str:
    """Return the name of the file to link: a training's plot or an evaluation's report."""
    return TRAINING if (job.folder / TRAINING).is_file() else REPORT


def _rows(jobs: Sequence[SweepJob], varied: Sequence[str], patterns: Sequence[str]) -> list[list[str]]:
    """Return header and rows: varied options, then the metrics that match; without empty columns."""
    results = [job.flat for job in jobs]
    names = dict.fromkeys(name for metrics in results for name in metrics)
    columns = list(dict.fromkeys(name for pattern in patterns for name in fnmatch.filter(names, pattern)))
    pools = [metrics["candidates"] for metrics in results if isinstance(metrics.get("candidates"), int)]
    pool = max(pools, default=math.inf)  # recall@k is trivial for k >= pool size
    columns = [name for name in columns if not name.startswith("recall@") or int(name[7:]) < pool]
    rows = align_columns([[metrics.get(name) for metrics in results] for name in columns]) or [
        [] for _ in jobs
    ]
    for job, row in zip(jobs, rows, strict=True):
        if job.failure and row:
            row[0] = "failed"
        row[:0] = [job.overrides.get(key, "") for key in varied]
    return [[*varied, *columns], *rows]


def _markdown(sweep: Path, jobs: list[SweepJob], labels: list[str], rows: list[list[str]]) -> str:
    lines = [f"# {len(jobs)} jobs", "", markdown_table(rows[0], rows[1:]), ""]
    for job, label in zip(jobs, labels, strict=True):
        folder = job.folder.absolute()  # those of other processes are relative
        if folder.is_relative_to(sweep.absolute()):
            folder = folder.relative_to(sweep.absolute())
        name = result_file(job).partition(".")[0]
        lines.append(f"- {label}: {job.failure or f'[{name}]({folder}/{result_file(job)})'}")
    return "\n".join(lines)


def _plots(sweep: Path, jobs: Sequence[SweepJob], labels: Sequence[str]) -> list[str]:
    """Draw the curves of the finished jobs of each benchmark; return links to them."""
    from citerec.evaluation.benchmark import Output
    from citerec.evaluation.plots import draw_curves
    from citerec.evaluation.report import Curves

    outputs: dict[type[Benchmark], dict[str, Output]] = {}
    for job, label in zip(jobs, labels, strict=True):
        if job.kind and job.metrics:
            outputs.setdefault(job.kind, {})[label] = Output(job.folder, job.metrics, job.settings)
    links = []
    for kind, shown in outputs.items():
        for plot in kind.view(shown, sweep.name):
            if isinstance(plot, Curves):
                draw_curves(sweep / f"{plot.name}.png", plot)
                links.append(f"![{plot.alt}]({plot.name}.png)")
    return links


def _csv(jobs: list[SweepJob], keys: list[str]) -> str:
    names = list(dict.fromkeys(name for job in jobs for name in job.flat))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(f"override:{key}" for key in keys), *names, "folder", "failure"])
    for job in jobs:
        overrides = [job.overrides.get(key, "") for key in keys]
        writer.writerow([*overrides, *(job.flat.get(name, "") for name in names), job.folder, job.failure])
    return text.getvalue()
