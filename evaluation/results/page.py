"""Run a plan of evaluations and write its results page: `citerec results reproduce/retrieval.yaml`.

Runs each evaluation that has no result for the current settings, after the trainings and builds it needs,
then writes the page from all results. A failed job does not stop the others.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from pkgutil import resolve_name
from typing import ClassVar

from citerec.base.arguments import command
from citerec.base.errors import InputError, fail
from citerec.base.files import write_text
from citerec.base.settings import Settings
from citerec.evaluation.benchmark import Benchmark, Output
from citerec.evaluation.comparison import HEADER, compare_change, compare_outputs, difference_rows
from citerec.evaluation.published import published_tables
from citerec.evaluation.report import markdown_table, to_markdown
from citerec.evaluation.results.jobs import job_metrics, job_settings, print_status, run_all, why_missing
from citerec.evaluation.results.plan import Job, Plan, read_plan
from citerec.evaluation.significance import DRAWS, Difference

ABOUT = """\
Generated from `{plan}` by one command; do not edit:

```sh
citerec results {plan}
```
"""
DIFFERENCES = (
    "Means over all queries, as shares. Intervals (95 %) and two-sided randomisation tests are clustered by "
    f"citing paper. p is at least {1 / (DRAWS + 1):.4f}, since {DRAWS:,} assignments are drawn; Holm's is "
    "corrected for all tests of the table."
)
BY_GROUP = (
    "Each pool size on its own, and whether A's lead over B at the largest size (A) differs from that at the "
    "smallest (B): what crosses over, and whether it does, is the point of Medić and Šnajder 2022."
)


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
    """only print how far the trainings are, and how long those that have begun still take"""
    outputs: str | None = None
    """folder of all outputs, instead of the plan's (e.g. /disk/outputs)"""


Benchmarks = dict[type[Benchmark], dict[str, Output]]
"""{benchmark: {name: output}} on one data set."""


def write_page(plan: Plan) -> None:
    """Write the page and its plots from all evaluations that match the plan's settings."""
    sections: list[str] = []
    kinds: dict[type[Benchmark], None] = {}
    for data in plan.file.data:
        finished, missing = finished_and_missing(plan.jobs_for(data))
        benchmarks: Benchmarks = {}
        for name, job in finished.items():
            settings = job_settings(job)["benchmark"]
            output = Output(job.folder, job_metrics(job), settings, name in plan.file.highlight)
            benchmarks.setdefault(resolve_name(settings["_target_"]), {})[name] = output
        kinds |= dict.fromkeys(benchmarks)
        sections += _section(plan, data, benchmarks, finished, missing)
    shown = {one.published for one in plan.file.data.values()}
    for name in dict.fromkeys(name for kind in kinds for name in kind.published if name not in shown):
        sections += [f"## As published: {name.replace('-', ' ')}", *published_tables(name)]
    about = "\n".join([ABOUT.format(plan=plan.path), *dict.fromkeys(kind.about for kind in kinds)])
    parts = [f"# {plan.file.title}", about.strip(), plan.file.notes.strip(), *sections]
    write_text(plan.page, "\n\n".join(part for part in parts if part) + "\n")


def _section(
    plan: Plan, data: str, benchmarks: Benchmarks, jobs: Mapping[str, Job], missing: Mapping[str, str]
) -> list[str]:
    """Return the section of the page on one data set."""
    one = plan.file.data[data]
    parts = [f"## {one.title}", one.notes.strip()]
    for kind, outputs in benchmarks.items():
        view = kind.view(outputs, f"{one.title}, split {one.split}")
        parts += to_markdown(view, plan.page.parent, f"{plan.page.stem}-{data}")
    if rows := _difference_rows(plan, benchmarks):
        about = [DIFFERENCES, *([BY_GROUP] if any(kind.compared_by_group for kind in benchmarks) else [])]
        parts += ["### Differences", " ".join(about), markdown_table(["A is", "B is", *HEADER], rows)]
    if rows := _training_rows(plan.jobs_for(data)):
        parts += ["### Trainings", markdown_table(["training", "validation", "after each round"], rows)]
    if missing:
        parts.append("Not evaluated: " + "; ".join(f"{name} ({why})" for name, why in missing.items()) + ".")
    if one.published:
        parts += [f"### As published, {one.title}", *published_tables(one.published)]
    if jobs:
        lines = dict.fromkeys(line for job in jobs.values() for line in job.commands)
        parts += [f"### Commands, {one.title}", "```sh\n" + "\n".join(lines) + "\n```"]
    return parts


def _training_rows(jobs: list[Job]) -> list[list[str]]:
    """Return the curves of the trainings that jobs need, as far as they are."""
    rows = []
    for step in {step.folder: step for job in jobs for step in job.needs}.values():
        path = step.folder / "history.csv"  # training.rounds.HISTORY, which would import torch
        if path.is_file():
            with path.open(newline="") as file:
                history = list(csv.DictReader(file))
            for name, label in (("recall@10", "R@10"), ("mrr", "MRR")):
                values = [f"{float(value):.3f}" for row in history if (value := row.get(f"val/{name}"))]
                rows.append([step.name, label, " ".join(values)])
    return rows


def _difference_rows(plan: Plan, benchmarks: Benchmarks) -> list[list[str]]:
    """Compare the plan's pairs whose groups are the same, on the measures of their benchmark."""
    outputs = {name: (kind, output) for kind, of in benchmarks.items() for name, output in of.items()}
    tested: dict[str, Difference] = {}
    pairs = []
    for a, b in plan.file.compare:
        if a in outputs and b in outputs:
            (kind, one), (_, other) = outputs[a], outputs[b]
            found = _differences(kind, one, other)
            tested |= {f"{a} {b} {label}": difference for label, difference in found.items()}
            pairs += [[a, b, label] for label in found]
    rows = difference_rows(tested)
    return [[*pair, *row[1:]] for pair, row in zip(pairs, rows, strict=True)]


def _differences(kind: type[Benchmark], one: Output, other: Output) -> dict[str, Difference]:
    """Compare two outputs, in each group of queries if the benchmark says so; {label of the measure: ..}."""
    groups = [[name for name, of in out.metrics.items() if isinstance(of, dict)] for out in (one, other)]
    folders = one.folder, other.folder
    if not kind.compared_by_group:
        if set(groups[0]) != set(groups[1]):
            return {}
        return {kind.compared[key]: of for key, of in compare_outputs(*folders, list(kind.compared)).items()}
    shared = sorted(set(groups[0]) & set(groups[1]), key=int)
    found = {
        f"{label}, {int(group):,}": compare_outputs(*folders, [key], group=group)[key]
        for key, label in kind.compared.items()
        for group in shared
    }
    if len(shared) > 1:
        first, last = shared[0], shared[-1]
        for key, label in kind.compared.items():
            change = compare_change(*folders, key, first, last)
            found[f"lead in {label}: {int(last):,}, {int(first):,}"] = change
    return found


def finished_and_missing(jobs: list[Job]) -> tuple[dict[str, Job], dict[str, str]]:
    """Return {name: job} for jobs with up-to-date results, and {name: reason} for the others."""
    finished, missing = {}, {}
    for job in jobs:
        try:
            reason = why_missing(job)
        except InputError as error:
            reason = str(error)
        if reason is None:
            finished[job.name] = job
        else:
            missing[job.name] = reason
    return finished, missing


def _unexpected(plan: Plan, job: Job) -> str:
    """Print a job's measures beside those that the plan expects; return which differ by more than allowed."""
    expected, wrong = plan.file.expected.get(str(job), {}), []
    found = job_metrics(job) if expected and why_missing(job) is None else {}
    groups = {group: of for group, of in found.items() if isinstance(of, dict)}  # pool sizes, fields, facets
    found |= {f"{group}/{name}": value for group, of in groups.items() for name, value in of.items()}
    for measure, value in expected.items():
        text = f"{measure} is {found.get(measure, 'missing')}, expected {value} ± {plan.file.tolerance}"
        print(f"{job}: {text}")
        if not abs(found.get(measure, inf) - value) <= plan.file.tolerance:
            wrong.append(text)
    return ", ".join(wrong)


def run_plan(given: ResultsSettings) -> None:
    """Run the jobs of a plan and write its page; exits with code 2 if a job failed."""
    plan = read_plan(Path(given.plan), given.outputs)
    for one in plan.file.data.values():
        if one.published:
            published_tables(one.published)  # fail before hours of work
    jobs = plan.select(given.jobs, given.without)
    if given.status:
        print_status(jobs)
        return
    failed = {} if given.page_only else run_all(jobs)
    for job in jobs:
        if str(job) not in failed and (wrong := _unexpected(plan, job)):
            failed[str(job)] = wrong
    write_page(plan)
    print(f"page: {plan.page}")
    if failed:
        reasons = "; ".join(f"{job}: {reason}" for job, reason in failed.items())
        fail(f"{len(failed)} of {len(plan.jobs)} jobs failed; {reasons}")


main = command("results", ResultsSettings, run_plan)
