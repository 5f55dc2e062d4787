"""One table over all jobs of a Hydra multirun, also when some of them fail."""

from __future__ import annotations

import csv
import fnmatch
import io
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from datasets.errors import fail, user_line
from evaluation.files import METRICS, REPORT, write_text
from evaluation.global_reranking_summary import sections
from evaluation.report import markdown_table, number
from hatten.history import CURVES

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

FAILURE = "failed.txt"
"""Lies in the folder of a job that failed, with the reason in one line."""


@dataclass
class Job:
    """A finished job: its folder, what it overrode, what it measured or why it failed."""

    folder: Path
    overrides: dict[str, str]
    metrics: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def shown(self) -> str:
        """The file that is to be looked at: of an evaluation, or of a training."""
        return CURVES if (self.folder / CURVES).is_file() else REPORT


class Summary(Callback):
    """Prints and writes a table of the jobs of a multirun (summary.md, summary.csv, recall.png).

    A job that fails does not end the multirun: the others go on, the table says what went wrong, and the
    program exits with 2 after it. A single run that fails by its input ends with one line and code 2.
    columns: metrics of the table, or patterns of their names as [0-9]*/map; summary.csv has all of them.
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
        """Note where the job wrote; keep its failure as a result: Hydra would raise it before the table."""
        from hydra.core.utils import JobStatus
        from hydra.types import RunMode

        if config.hydra.mode != RunMode.MULTIRUN:
            line = user_line(job_return._return_value) if job_return.status == JobStatus.FAILED else None
            if line:  # here, since Hydra would print a line of its own before it hands the error on
                fail(line)
            return
        folder = Path(config.hydra.runtime.output_dir)
        self._folders.append(folder)
        (folder / FAILURE).unlink(missing_ok=True)
        if job_return.status == JobStatus.FAILED:
            error = job_return._return_value
            line = user_line(error)
            log.error("%s", line or f"{type(error).__name__}: {error}", exc_info=None if line else error)
            write_text(
                folder / FAILURE, " ".join((line or f"{type(error).__name__}: {error}").split()) + "\n"
            )
            job_return.status, job_return.return_value = JobStatus.COMPLETED, None

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write and print the table; ends the program with code 2 if a job failed."""
        sweep = Path(config.hydra.sweep.dir)
        # A launcher that runs jobs in other processes notes nothing here: look for what is new.
        jobs = [read_job(folder) for folder in self._folders or new_folders(sweep, self._started)]
        if not jobs:
            return
        varied = _varied(jobs)
        labels = [_label(job, varied) for job in jobs]
        rows = self._rows(jobs, varied)
        more = sections(sweep, jobs, varied)
        parts = [*_pipelines(sweep, jobs, varied), *(section.markdown for section in more)]
        text = "\n\n".join([_markdown(sweep, jobs, labels, rows).rstrip(), *parts])
        write_text(sweep / "summary.md", text + "\n")
        write_text(sweep / "summary.csv", _csv(jobs))
        plot = _plot(sweep / "recall.png", jobs, labels)
        for table, title in [(rows, f"{len(jobs)} jobs"), *((one.rows, one.heading) for one in more)]:
            show(table, title)
        console = Console(soft_wrap=True, highlight=False)
        for job, label in zip(jobs, labels, strict=True):
            console.print(f"{label}: {job.failure or job.folder / job.shown}", markup=False)
        console.print(f"table: {sweep / 'summary.md'}{f', plot: {plot}' if plot else ''}", markup=False)
        failed = [f"{label}: {job.failure}" for job, label in zip(jobs, labels, strict=True) if job.failure]
        if failed:
            fail(f"{len(failed)} of {len(jobs)} jobs failed; {failed[0]}")

    def _rows(self, jobs: list[Job], varied: list[str]) -> list[list[str]]:
        """Head and rows: what the jobs differ in, then the metrics; a column that no job has is left out."""
        there = dict.fromkeys(name for job in jobs for name in job.metrics)
        columns = list(dict.fromkeys(name for like in self.columns for name in fnmatch.filter(there, like)))
        rows = [[*varied, *columns]]
        for job in jobs:
            values = [number(job.metrics[name]) if name in job.metrics else "" for name in columns]
            if job.failure and values:
                values[0] = "failed"
            rows.append([*(job.overrides.get(key, "") for key in varied), *values])
        return rows


def read_job(folder: Path) -> Job:
    """What a job left in its folder."""
    from omegaconf import OmegaConf

    overrides = OmegaConf.to_container(OmegaConf.load(folder / ".hydra" / "overrides.yaml"))
    pairs = [str(override).lstrip("+~").partition("=") for override in overrides or []]
    job = Job(folder, {key: value for key, _, value in pairs})
    try:
        if (folder / FAILURE).is_file():
            job.failure = (folder / FAILURE).read_text("utf-8").strip()
        else:
            job.metrics = flat(json.loads((folder / METRICS).read_text("utf-8")))
    except (OSError, ValueError) as error:
        job.failure = f"no metrics: {error}"
    return job


def flat(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics of groups by the names GROUP/METRIC.

    >>> flat({"mrr": 0.5, "AVG": {"map": 25.9}})
    {'mrr': 0.5, 'AVG/map': 25.9}
    """
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        found |= (
            {f"{name}/{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
        )
    return found


def new_folders(sweep: Path, since: float) -> list[Path]:
    """Folders of jobs below `sweep` that started after `since` (seconds of the epoch)."""
    found = [path for path in sweep.rglob(".hydra/overrides.yaml") if path.stat().st_mtime >= since - 1]
    return sorted((path.parent.parent for path in found), key=lambda folder: (len(folder.name), folder.name))


def print_metrics(metrics: dict[str, float | int | str], folder: Path) -> None:
    """Print the measures of a single evaluation, and where its report lies."""
    from evaluation.protocol import PROTOCOLS, key_of
    from evaluation.report import measure_rows

    for protocol in PROTOCOLS:
        if key_of("queries", protocol) in metrics:
            where = f"{metrics['data']}, split {metrics['split']}, {protocol}"
            if "reranker" in metrics:
                print_stages(metrics, protocol, where)
                continue
            head, rows = measure_rows(metrics, protocol)
            show([head, *rows], f"{metrics['retriever']} on {where}")
    Console(soft_wrap=True, highlight=False).print(f"report: {folder / REPORT}", markup=False)


def print_stages(metrics: dict[str, float | int | str], protocol: str, where: str) -> None:
    """Print what the prefetcher found beside what reranking made of it."""
    from evaluation.pipeline_report import headline, pipeline_name, stage_rows

    head, rows = stage_rows(metrics, protocol)
    show([head, *rows], f"{pipeline_name(metrics)} on {where}")
    Console(soft_wrap=True, highlight=False).print(headline(metrics, protocol), markup=False)


def show(rows: list[list[str]], title: str) -> None:
    """Print a table; the first row is its head, the first column stands to the left."""
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(rows[0]):
        table.add_column(escape(name), justify="left" if i == 0 else "right")
    for row in rows[1:]:
        table.add_row(*map(escape, row))  # a list, as [title], would be taken for a style
    console = Console()
    # A file or a pipe has no width: do not break rows for it.
    (console if console.is_terminal else Console(width=200)).print(table)


def _varied(jobs: list[Job]) -> list[str]:
    """What the jobs differ in; all that they override where they differ in nothing."""
    keys = list(dict.fromkeys(key for job in jobs for key in job.overrides))
    return [key for key in keys if len({job.overrides.get(key) for job in jobs}) > 1] or keys


def _label(job: Job, varied: list[str]) -> str:
    return (
        " ".join(f"{key}={job.overrides[key]}" for key in varied if key in job.overrides) or job.folder.name
    )


def _markdown(sweep: Path, jobs: list[Job], labels: list[str], rows: list[list[str]]) -> str:
    lines = [f"# {len(jobs)} jobs", "", markdown_table(rows[0], rows[1:]), ""]
    for job, label in zip(jobs, labels, strict=True):
        place = job.folder.absolute()  # those of other processes are relative
        if place.is_relative_to(sweep.absolute()):
            place = place.relative_to(sweep.absolute())
        name = job.shown.partition(".")[0]
        lines.append(f"- {label}: {job.failure or f'[{name}]({place}/{job.shown})'}")
    return "\n".join(lines) + "\n"


def _pipelines(sweep: Path, jobs: list[Job], varied: list[str]) -> list[str]:
    """What else the summary says of jobs of two stages; draws their plot."""
    from evaluation.pipeline_summary import pipeline_plot, pipeline_sections, series_of

    others = [key for key in varied if key != "candidates"]
    named = [(_label(job, others) if others else "", job.metrics) for job in jobs]
    series = series_of(named)
    return pipeline_sections(series, pipeline_plot(sweep, series))


def _csv(jobs: list[Job]) -> str:
    keys = list(dict.fromkeys(key for job in jobs for key in job.overrides))
    names = list(dict.fromkeys(name for job in jobs for name in job.metrics))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(f"override:{key}" for key in keys), *names, "folder", "failure"])
    for job in jobs:
        overrides = [job.overrides.get(key, "") for key in keys]
        writer.writerow([*overrides, *(job.metrics.get(name, "") for name in names), job.folder, job.failure])
    return text.getvalue()


def _plot(path: Path, jobs: list[Job], labels: list[str]) -> Path | None:
    from evaluation.plots import recall_plot, recalls

    curves = {
        label: recalls(job.metrics) for job, label in zip(jobs, labels, strict=True) if recalls(job.metrics)
    }
    if len(curves) < 2:
        return None
    recall_plot(path, curves, f"recall of {len(curves)} jobs")
    return path
