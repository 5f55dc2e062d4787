"""The page of a plan whose queries are papers, as Markdown with plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from datasets.errors import InputError
from evaluation.compare import HEAD, compare, difference_rows
from evaluation.files import write_text
from evaluation.global_benchmarks.mdcr import TYPES
from evaluation.global_benchmarks.pool_benchmark import Table, read_json
from evaluation.global_page_published import published_tables
from evaluation.global_reranking_page import form_tables, reranked_tables
from evaluation.global_reranking_summary import F1
from evaluation.global_sampling.sampled import SAMPLE
from evaluation.global_tables import (
    Tables,
    csfcube_tables,
    field_tables,
    groups_of,
    mdcr_tables,
    size_tables,
    task_tables,
)
from evaluation.jobs import commands_of, result_of, settings_of, there_and_missing
from evaluation.plan import Building, Job, Plan
from evaluation.plots import size_plot
from evaluation.pool_curves import read_curves
from evaluation.report import markdown_table

ABOUT = """\
Made from `{plan}` by one command; not to be edited:

```sh
python -m evaluation.results {plan}
```

- A query is a paper, by its title and abstract; the papers that it cites, or that are like it, are to be
  found. Percent, where nothing else is said; the best of a column is bold, ± is the standard deviation over
  samplings of pools.
- What stands under "as published" is of other data, unless the text says otherwise: to be read for the
  distances between the models."""

DIFFERENCES = (
    "As shares, not percent: means over all queries in all pools, also of all samplings; 95 % "
    "intervals and two-sided randomisation test by citing paper, not corrected for their number."
)

Jobs = Mapping[str, Job]
"""Those of one data set that have a result, by retriever."""


def write_global_page(plan: Plan) -> None:
    """Write the page and its plots from what has been evaluated with the plan's settings."""
    parts = [f"# {plan.title}", ABOUT.format(plan=plan.path), plan.notes.strip()]
    for data in plan.data:
        parts += _section(plan, data)
    write_text(plan.page, "\n\n".join(part for part in parts if part) + "\n")


def _section(plan: Plan, data: str) -> list[str]:
    """What the page says of one data set."""
    one = plan.data[data]
    there, missing = there_and_missing(plan.of_data(data))
    parts = [f"## {one.title}", one.notes.strip()]
    if there:
        kind = str(settings_of(next(iter(there.values())))["benchmark"]["_target_"]).rpartition(".")[2]
        plot = plan.page.with_name(f"{plan.page.stem}-{data}.png")
        if kind not in KINDS:
            raise InputError(f"{plan.path}, data.{data}: a page of kind {plan.kind} has no tables for {kind}")
        parts += [*KINDS[kind](there, plot), *_differences(plan, there)]
    if missing:
        parts.append("Not evaluated: " + "; ".join(f"{name} ({why})" for name, why in missing.items()) + ".")
    if one.published:
        parts += [f"### As published, {one.title}", *published_tables(one.published)]
    if there:
        lines = dict.fromkeys(line for job in there.values() for line in commands_of(job))
        parts += [f"### Commands, {one.title}", "```sh\n" + "\n".join(lines) + "\n```"]
    return parts


def _tables(jobs: Jobs) -> dict[str, Table]:
    return {name: result_of(job) for name, job in jobs.items()}


def _dataset_level(jobs: Jobs, plot: Path) -> list[str]:
    tables = read_curves({name: job.folder for name, job in jobs.items()})
    curves = {name: {int(size): row["map"] for size, row in of.items()} for name, of in tables.items()}
    size_plot(plot, curves, "MAP by the number of papers in the pool")
    asked = next(iter(next(iter(tables.values())).values()))
    return [
        f"{int(asked['queries']):,} queries. {_sampled(jobs)}",
        *size_tables(tables),
        f"![MAP by the size of the pool]({plot.name})",
    ]


def _field_level(jobs: Jobs, plot: Path) -> list[str]:
    tables = _tables(jobs)
    first = next(iter(tables.values()))
    counts = [[name, row.get("queries"), row.get("candidates")] for name, row in first.items()]
    rows = [[str(name), f"{int(q):,}", f"{int(c):,}"] for name, q, c in counts if q and c]
    return [
        _sampled(jobs),
        *field_tables(tables),
        markdown_table(["field", "queries", "candidates"], rows),
    ]


def _sampled(jobs: Jobs) -> str:
    """What was drawn and left out, and what was tuned."""
    samples = {name: read_json(job.folder / SAMPLE) for name, job in jobs.items()}
    remarks = next(iter(samples.values())).get("remarks", [])
    tuned = [f"{name}: {sample['tuned']}." for name, sample in samples.items() if sample.get("tuned")]
    return " ".join([*remarks, *tuned])


def _mdcr(jobs: Jobs, plot: Path) -> list[str]:
    types = {name: read_json(job.folder / TYPES) for name, job in jobs.items()}
    built = {building.name: building for job in jobs.values() for building in job.building}
    return [
        *(part for building in built.values() for part in _building(building)),
        *mdcr_tables(_tables(jobs), types),
    ]


def _building(building: Building) -> list[str]:
    """The report on a benchmark that was made, without its head."""
    report = (building.place / "report.md").read_text("utf-8")
    return [part.strip() for part in report.split("\n\n")[1:]]


def _csfcube(jobs: Jobs, plot: Path) -> list[str]:
    return csfcube_tables(_tables(jobs))


def _scidocs(jobs: Jobs, plot: Path) -> list[str]:
    return task_tables(_tables(jobs))


KINDS: dict[str, Callable[[Jobs, Path], list[str]]] = {
    "DatasetLevel": _dataset_level,
    "FieldLevel": _field_level,
    "MDCR": _mdcr,
    "CSFCube": _csfcube,
    "SciDocs": _scidocs,
    "Prefetch": lambda jobs, plot: form_tables(_tables(jobs)),
    "GlobalReranking": lambda jobs, plot: reranked_tables(_tables(jobs), plot),
}
"""What is said of the results of each benchmark, and draws their plot."""


def _differences(plan: Plan, jobs: Jobs) -> list[str]:
    """Pairs of the plan that were asked the same."""
    rows = []
    for a, b in plan.compare:
        if a not in jobs or b not in jobs:
            continue
        tables: Tables = _tables({a: jobs[a], b: jobs[b]})
        if all(F1 in table for table in tables.values()):
            found = compare(jobs[a].folder, jobs[b].folder, [F1, "mrr"])
            rows += [[a, b, *row] for row in difference_rows(found)]
        elif groups_of({a: tables[a]}) == groups_of({b: tables[b]}):
            measure = "map" if "map" in next(iter(tables[a].values())) else "av_precision"
            found = compare(jobs[a].folder, jobs[b].folder, [measure])
            rows += [[a, b, "MAP", *row[1:]] for row in difference_rows(found)]
    return ["### Differences", DIFFERENCES, markdown_table(["A is", "B is", *HEAD], rows)] if rows else []
