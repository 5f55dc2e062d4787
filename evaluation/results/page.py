"""Run a plan of evaluations and write its results page: `citerec results reproduce/retrieval.yaml`.

Runs each evaluation that has no result for the current settings, after the trainings and builds it needs,
then writes the page from all results. A failed job does not stop the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar

from citerec.base.arguments import command
from citerec.base.errors import InputError, fail
from citerec.base.files import write_text
from citerec.base.settings import Settings
from citerec.evaluation.benchmark import Benchmark, Output
from citerec.evaluation.comparison import HEADER, compare_outputs, difference_rows
from citerec.evaluation.plots import Curves, draw_curves, draw_intervals
from citerec.evaluation.report import Column, Part, Table, flatten_groups, to_csv
from citerec.evaluation.results.jobs import job_metrics, job_settings, print_status, run_all, why_missing
from citerec.evaluation.results.plan import Job, Plan, read_plan
from citerec.evaluation.significance import Difference

ABOUT = """\
Generated from `{plan}` by one command; do not edit:

```sh
citerec results {plan}
```
"""


@dataclass(frozen=True, kw_only=True)
class ResultsSettings(Settings):
    """Run a plan of evaluations and write its results page."""

    positional: ClassVar[str] = "plan"

    plan: str
    """YAML file of data sets and retrievers (format: evaluation/results/plan.py; e.g.
    reproduce/retrieval.yaml)"""
    jobs: tuple[str, ...] = ()
    """jobs to run, DATA/NAME or DATA; empty: all. The page always covers all"""
    without: tuple[str, ...] = ()
    """jobs to skip, DATA/NAME, DATA or NAME"""
    page_only: bool = False
    """only write the page"""
    status: bool = False
    """only print how far the trainings are, and how much longer those that have begun will take"""
    outputs: str | None = None
    """folder of all outputs, instead of the plan's (e.g. /disk/outputs)"""


Benchmarks = dict[type[Benchmark], dict[str, Output]]
"""{benchmark: {name: output}} on one data set."""


@dataclass
class Shown:
    """What a page shows: rows of its table, {label: {DATA/key: value}}, their columns, plots and sentences.

    files: all tables, by the names of their CSV files.
    """

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: list[Column] = field(default_factory=list)
    curves: list[Curves] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: dict[str, Table] = field(default_factory=dict)


def write_page(plan: Plan) -> None:
    """Write the page from all evaluations that match the plan's settings: its command, what the plan says, a
    picture, and a table of the most telling measures.

    A folder with the page's name gets all tables as CSV files, including differences and commands.
    """
    shown = Shown()
    for data in plan.file.data:
        _add_data(shown, plan, data)
    texts = [f"# {plan.file.title}", ABOUT.format(plan=plan.path).strip(), plan.file.notes.strip()]
    if shown.rows:
        texts += [_picture(plan, shown), str(Table.of(shown.rows, shown.columns))]
    folder = plan.page.with_suffix("")
    for stem, table in shown.files.items():
        write_text(folder / f"{stem}.csv", to_csv(table))
    links = [f"[{stem}]({folder.name}/{stem}.csv)" for stem in shown.files]
    texts += [*shown.notes, f"All tables, as CSV: {', '.join(links)}." if links else ""]
    write_text(plan.page, "\n\n".join(filter(None, texts)) + "\n")


def _add_data(shown: Shown, plan: Plan, data: str) -> None:
    """Add the existing results of one data set."""
    data_set, several = plan.file.data[data], len(plan.file.data) > 1
    jobs = [job for job in plan.jobs if job.data == data]
    finished = {job.name: job for job in jobs if _is_finished(job)}
    missing = [job.name for job in jobs if job.name not in finished]
    benchmarks: Benchmarks = {}
    for name, job in finished.items():
        settings = job_settings(job)["benchmark"]
        output = Output(job.folder, job_metrics(job), settings, name in plan.file.highlight)
        benchmarks.setdefault(resolve_name(settings["_target_"]), {})[name] = output
    facts = [data_set.notes.strip()]
    for kind, outputs in benchmarks.items():
        parts = kind.view(outputs, f"{data_set.title}, split {data_set.split}")
        facts += [_first_sentence(part) for part in parts[:1] if isinstance(part, str)]
        shown.files |= _files(f"{data}-{kind.__name__.lower()}" if len(benchmarks) > 1 else data, parts)
        rows, columns = kind.headlines(outputs)
        chosen = [name for name in rows if not plan.file.shown or name in plan.file.shown]
        shown.curves += [part for part in parts if isinstance(part, Curves) and chosen]
        for name in chosen:
            values = {f"{data}/{key}": value for key, value in rows[name].items()}
            shown.rows.setdefault(name, {}).update(values)
        for column in columns if chosen else ():
            label = f"{data_set.title}: {column.label}" if several else column.label
            added = replace(column, key=f"{data}/{column.key}", label=label)
            shown.columns += [] if added in shown.columns else [added]
    if tests := _difference_rows(plan, benchmarks, facts):
        shown.files[f"{data}-differences"] = Table(["A is", "B is", *HEADER], tests)
    if lines := dict.fromkeys(line for job in finished.values() for line in job.commands):
        shown.files[f"{data}-commands"] = Table(["command"], [[line] for line in lines])
    facts += [f"Not run: {', '.join(missing)}."] if missing else []
    text = " ".join(filter(None, facts))
    shown.notes += [f"**{data_set.title}.** {text}" if several else text] if text else []


def _picture(plan: Plan, shown: Shown) -> str:
    """Draw the first curves, or else a measure's columns, with intervals if any has them; return the link, or
    nothing without values."""
    picture = plan.page.with_suffix(".png")
    if shown.curves:
        draw_curves(picture, shown.curves[0])
        return f"![{shown.curves[0].alt}]({picture.name})"
    columns = [column for column in shown.columns if any(map(column.format_value, shown.rows.values()))]
    if not columns:
        return ""
    columns = [column for column in columns if column.interval] or columns
    measure = columns[0].key.rpartition("/")[2]  # others have another scale
    panels: dict[str, dict[str, tuple[float, float, float]]] = {}
    for column in columns:
        if column.key.rpartition("/")[2] == measure:
            ends = [f"{column.key}/{end}" if column.interval else column.key for end in ("low", "high")]
            panels[f"{column.label}{', with 95 % intervals' * column.interval}"] = {
                name: (row[column.key], row.get(ends[0], row[column.key]), row.get(ends[1], row[column.key]))
                for name, row in shown.rows.items()
                if row.get(column.key) is not None
            }
    draw_intervals(picture, panels, plan.file.title)
    return f"![{'; '.join(panels)}]({picture.name})"


def _first_sentence(text: str) -> str:
    return "" if text.startswith("#") else re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def _files(start: str, parts: Sequence[Part]) -> dict[str, Table]:
    """Return tables by the names of their files, from the heading above them and their top-left cells."""
    files: dict[str, Table] = {}
    stem = start
    for part in parts:
        if isinstance(part, Table):
            taken = sum(name.startswith(stem) for name in files)
            files[_stem(stem, part.head[0] or str(taken + 1)) if taken else stem] = part
        elif isinstance(part, str) and part.startswith("#"):
            stem = _stem(start, part)
    return files


def _stem(start: str, text: str) -> str:
    return "-".join([start, *re.findall(r"[a-z0-9]+", text.lower())])


def _difference_rows(plan: Plan, benchmarks: Benchmarks, facts: list[str]) -> list[list[str]]:
    """Compare the plan's pairs whose groups are the same, on the measures of their benchmark, and add pairs
    that are not comparable to the `facts`."""
    outputs = {
        name: (kind, output) for kind, by_name in benchmarks.items() for name, output in by_name.items()
    }
    tested = dict[tuple[str, str, str], Difference]()
    for a, b in [pair for pair in plan.file.compare if {*pair} <= outputs.keys()]:
        try:
            differences = _differences(*outputs[a], outputs[b][1])
            tested |= {(a, b, label): difference for label, difference in differences.items()}
        except InputError as error:
            facts.append(f"{a} and {b} were not compared: {error}.")
    rows = difference_rows({" ".join(names): difference for names, difference in tested.items()})
    return [[*names, *row[1:]] for names, row in zip(tested, rows, strict=True)]


def _differences(kind: type[Benchmark], first: Output, second: Output) -> dict[str, Difference]:
    """Compare two outputs, in each group of queries if the benchmark says so; {label of the measure: ..}."""
    groups, others = (
        [name for name, measures in output.metrics.items() if isinstance(measures, dict)]
        for output in (first, second)
    )
    if kind.compared_by_group:
        shared = sorted({*groups} & {*others}, key=int)
        labels = {
            (key, group): f"{label}, {int(group):,}"
            for key, label in kind.compared.items()
            for group in shared
        }
    else:
        labels = {(key, ""): label for key, label in kind.compared.items() if {*groups} == {*others}}
    return {
        label: compare_outputs(first.folder, second.folder, [key], group=group)[key]
        for (key, group), label in labels.items()
    }


def _is_finished(job: Job) -> bool:
    """True if a job has an up-to-date result; False also if its settings are no longer valid."""
    with suppress(InputError):
        return why_missing(job) is None
    return False


def _unexpected(plan: Plan, job: Job) -> str:
    """Print a job's measures beside those that the plan expects; return which differ by more than allowed."""
    expected, wrong = plan.file.expected.get(str(job), {}), []
    measured = flatten_groups(job_metrics(job)) if expected and why_missing(job) is None else {}
    for measure, value in expected.items():
        text = f"{measure} is {measured.get(measure, 'missing')}, expected {value} ± {plan.file.tolerance}"
        print(f"{job}: {text}")
        if not abs(measured.get(measure, inf) - value) <= plan.file.tolerance:
            wrong.append(text)
    return ", ".join(wrong)


def run_plan(settings: ResultsSettings) -> None:
    """Run the jobs of a plan and write its page; exits with code 2 if a job failed."""
    plan = read_plan(Path(settings.plan), settings.outputs)
    jobs = plan.select(settings.jobs, settings.without)
    if settings.status:
        print_status(jobs)
        return
    failed = {} if settings.page_only else run_all(jobs)
    for job in jobs:
        if str(job) not in failed and (wrong := _unexpected(plan, job)):
            failed[str(job)] = wrong
    write_page(plan)
    print(f"page: {plan.page}")
    if failed:
        reasons = "; ".join(f"{job}: {reason}" for job, reason in failed.items())
        fail(f"{len(failed)} of {len(jobs)} jobs failed; {reasons}")


main = command("results", ResultsSettings, run_plan)
