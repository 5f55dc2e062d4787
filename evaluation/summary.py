"""One table over all jobs of a Hydra multirun, also when some of them fail.

Several pipelines side by side: the tables and the plot of a sweep over reranked candidates.
What the summary of a sweep says of papers that ask: figure 1 and table 4 of Nogueira et al. 2020.
"""

from __future__ import annotations

import csv
import fnmatch
import io
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.experimental.callback import Callback
from omegaconf import OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from datasets.errors import fail, user_line
from evaluation.files import METRICS, REPORT, write_text
from evaluation.pipeline import BASE, OF_DEPTH, depths_of, pipeline_name
from evaluation.plots import RERANKING_PLOT, reranking_plot
from evaluation.published import Section, published_query_forms, published_query_tokens, published_rerankers
from evaluation.report import Metrics, markdown_table, number
from training.loop import CURVES


@dataclass(frozen=True)
class Series:
    """Evaluations of one pipeline that differ in the number of reranked candidates."""

    label: str
    jobs: Mapping[int, Metrics]

    @property
    def curve(self) -> dict[int, dict[str, float]]:
        """Of each number of candidates what depths_of gives, each from its own evaluation."""
        return {depth: depths_of(metrics)[depth] for depth, metrics in sorted(self.jobs.items())}

    @property
    def base(self) -> float:
        """R@10 of the prefetcher."""
        return float(next(iter(self.jobs.values()))[f"{BASE}recall@10"])


def is_pipeline(metrics: Metrics) -> bool:
    """Whether these are the metrics of two stages, for all queries and candidates."""
    return f"{BASE}recall@10" in metrics


def series_of(results: Sequence[tuple[str, Metrics]]) -> list[Series]:
    """The pipelines among (label, metrics); what has the same label differs in its candidates alone."""
    found: dict[str, dict[int, Metrics]] = {}
    for label, metrics in results:
        if is_pipeline(metrics):
            found.setdefault(label or pipeline_name(metrics), {})[int(metrics["reranked"])] = metrics
    return [Series(label, jobs) for label, jobs in found.items()]


def pipeline_sections(series: Sequence[Series], plot: str | None) -> list[str]:
    """Markdown: each pipeline by its candidates; and all of them in the form of Gu et al. 2022, table 4."""
    head = ["reranked candidates", "R@10", "MRR", "prefetch ceiling", "s/query", "base R@10", "base MRR"]
    parts = []
    for one in series:
        rows = [
            [
                f"{depth:,}",
                *(number(values[name]) for name in OF_DEPTH),
                *(number(one.jobs[depth][BASE + name]) for name in ("recall@10", "mrr")),
            ]
            for depth, values in one.curve.items()
        ]
        parts += [f"## {one.label}", markdown_table(head, rows)]
    depths = sorted({depth for one in series for depth in one.jobs})
    if len(depths) > 1:
        parts += ["## R@10 by the number of reranked candidates", table_4(series, depths)]
    if plot is not None:
        parts.append(f"![R@10 and seconds a query by reranked candidates]({plot})")
    return parts


def table_4(series: Sequence[Series], depths: Sequence[int]) -> str:
    """R@10: a row for each pipeline, a column for each number of reranked candidates."""
    rows = [
        [one.label, *(number(one.curve[k]["recall@10"]) if k in one.jobs else "" for k in depths)]
        for one in series
    ]
    return markdown_table(["pipeline", *(f"{depth:,}" for depth in depths)], rows)


def pipeline_plot(folder: Path, series: Sequence[Series]) -> str | None:
    """Draw all pipelines; the name of the file, or None where there is one point only."""
    if max((len(one.jobs) for one in series), default=0) < 2:
        return None
    curves = {one.label: one.curve for one in series}
    bases = {one.label: one.base for one in series}
    reranking_plot(folder / RERANKING_PLOT, curves, "reranked candidates", bases)
    return RERANKING_PLOT


if TYPE_CHECKING:
    pass

PLOT = "query-tokens.png"
F1 = "f1@20"


class Point(NamedTuple):
    """A training or an evaluation with a budget of tokens for each side, and what it measured."""

    query: int
    candidate: int
    f1: float
    mrr: float


def sections(folder: Path, jobs: Sequence[Job], varied: Sequence[str]) -> list[Section]:
    """More parts of the summary in `folder`, where the jobs are of that kind; draws their plot there.

    varied: what the jobs differ in.
    """
    found = []
    tokens = by_tokens(map(_point_of, jobs), folder / PLOT)
    if tokens is not None:
        found.append(tokens)
    if any(f"base/{F1}" in job.metrics for job in jobs):
        found.append(published_rerankers())
    elif "retriever.query" in varied and any(F1 in job.metrics for job in jobs):
        found.append(published_query_forms())
    return found


def point(metrics: Mapping[str, Any]) -> Point | None:
    """Of an evaluation; None for one that has no such budget, or no such measure."""
    if "query_tokens" not in metrics or F1 not in metrics:
        return None
    query, candidate = (int(metrics[f"{side}_tokens"]) for side in ("query", "candidate"))
    return Point(query, candidate, float(metrics[F1]), float(metrics["mrr"]))


def _point_of(job: Job) -> Point | None:
    """Of an evaluation, or of a training that measured F1 in its validations."""
    if f"val/{F1}" not in job.metrics:
        return point(job.metrics)
    config = OmegaConf.load(job.folder / ".hydra" / "config.yaml")
    pairs = OmegaConf.select(config, "model.pairs")
    if pairs is None or pairs.query_tokens is None:
        return None
    query = int(pairs.query_tokens)
    f1, mrr = (float(job.metrics[f"val/{name}"]) for name in (F1, "mrr"))
    return Point(query, int(pairs.max_tokens) - query, f1, mrr)


def by_tokens(given: Iterable[Point | None], plot: Path) -> Section | None:
    """The table of figure 1, drawn into `plot`; None where tokens are not divided in several ways."""
    points = sorted(one for one in given if one is not None)
    if len({(one.query, one.candidate) for one in points}) < 2:
        return None
    _draw(plot, points)
    rows = [[str(one.query), str(one.candidate), number(one.f1), number(one.mrr)] for one in points]
    return Section(
        "F1@20 by the tokens of query and candidate",
        "Of a training its best round, on validation queries; of an evaluation its queries.\n\n"
        f"![F1@20 by tokens of the query]({plot.name})\n\n"
        f"{published_query_tokens()}",
        [["tokens of the query", "of the candidate", "F1@20", "MRR"], *rows],
    )


def _draw(path: Path, points: Sequence[Point]) -> None:
    """F1@20 by the tokens of the query, a curve for each number of tokens of a pair."""
    from evaluation.plots import curve_plot

    curves: dict[str, dict[int, float]] = {}
    for one in points:
        curves.setdefault(f"{one.query + one.candidate} tokens a pair", {})[one.query] = one.f1
    curve_plot(path, curves, "F1@20 by the tokens of the query", "tokens of the query", "F1@20")


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
    from evaluation.pipeline import headline, pipeline_name, stage_rows

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
    pass

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
