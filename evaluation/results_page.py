"""The page of all results of a plan, as Markdown with plots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from datasets.errors import InputError
from evaluation.compare import HEAD, compare, difference_rows
from evaluation.files import write_text
from evaluation.jobs import commands_of, result_of, there_and_missing
from evaluation.pipeline_summary import is_pipeline
from evaluation.plan import Job, Plan
from evaluation.plots import recall_plot, recalls
from evaluation.protocol import INDUCTIVE, TRANSDUCTIVE, key_of
from evaluation.published import read_published
from evaluation.report import Metrics, markdown_table, measure_cell
from evaluation.reranking_page import published_parts, reranked_parts
from evaluation.significance import DRAWS

PUBLISHED = Path(__file__).parent / "published.yaml"

SURE = ("recall@10", "recall@100")
"""Measures whose intervals are shown, and by which retrievers are compared."""

ABOUT = f"""\
Made from `{{plan}}` by one command; not to be edited:

```sh
python -m evaluation.results {{plan}}
```

- A query is a context of the split with title and abstract of its citing paper, which it never finds itself.
  R@k is the share of the cited papers that are among the first k, MRR the mean of 1 / rank. The best of a
  column is bold.
- In brackets: 95 % confidence intervals. They and the tests draw citing papers with all of their queries
  ({DRAWS:,} times), since the contexts of one paper are not independent (`evaluation/significance.py`).
- ms: time of a query, encoding included, in batches. MB: what is searched. Papers/s: indexing, encoding
  included; no number where the index was read from disk. Measured with {{processors}} processors.
- Transductive, in all tables but one: all queries, all candidates. Inductive: queries whose cited papers no
  training context cites, among the candidates that none cites: another pool, whose numbers stand apart."""

Results = Mapping[str, Metrics]
"""Of one data set, the metrics of each retriever that has been evaluated."""


def write_page(plan: Plan) -> None:
    """Write the page and its plots from what has been evaluated with the plan's settings."""
    sections: list[str] = []
    everything: list[Metrics] = []
    processors: set[str] = set()
    for data in plan.data:
        there, missing = there_and_missing(plan.of_data(data))
        results = {name: result_of(job) for name, job in there.items()}
        everything += results.values()
        processors |= {str(metrics["processors"]) for metrics in results.values()}
        sections += _section(plan, data, there, results, missing)
    about = ABOUT.format(plan=plan.path, processors=" or ".join(sorted(processors)) or "no")
    parts = [f"# {plan.title}", about, plan.notes.strip(), *sections, *published_parts(everything)]
    write_text(plan.page, "\n\n".join(part for part in parts if part) + "\n")


def _section(
    plan: Plan, data: str, jobs: Mapping[str, Job], results: Results, missing: Mapping[str, str]
) -> list[str]:
    """What the page says of one data set."""
    one = plan.data[data]
    parts = [f"## {one.title}"]
    single = {name: metrics for name, metrics in results.items() if not is_pipeline(metrics)}
    if single:
        plot = plan.page.with_name(f"{plan.page.stem}-{data}.png")
        first = next(iter(single.values()))
        title = f"{one.title}, split {one.split}: {first['candidates']:,} candidates"
        recall_plot(plot, {name: recalls(metrics) for name, metrics in single.items()}, title)
        parts += [_pool(first, TRANSDUCTIVE), _measures(single, TRANSDUCTIVE), f"![R@k]({plot.name})"]
    parts.append(one.notes.strip())
    if single:
        parts += [*_tuned(single), *_seen(single), *_inductive(single)]
    plot = plan.page.with_name(f"{plan.page.stem}-{data}-reranked.png")
    parts += [*reranked_parts(plot, f"{one.title}, split {one.split}", results), *_differences(plan, jobs)]
    if missing:
        parts.append("Not evaluated: " + "; ".join(f"{name} ({why})" for name, why in missing.items()) + ".")
    if one.published:
        parts += published(one.published)
    if jobs:
        lines = dict.fromkeys(line for job in jobs.values() for line in commands_of(job))
        parts += [f"### Commands, {one.title}", "```sh\n" + "\n".join(lines) + "\n```"]
    return parts


def _pool(metrics: Metrics, protocol: str) -> str:
    queries, papers, candidates = (
        metrics[key_of(name, protocol)] for name in ("queries", "citing_papers", "candidates")
    )
    where = f"split {metrics['split']}, {protocol}"
    return f"{queries:,} queries of {papers:,} citing papers ({where}), {candidates:,} candidates."


def _measures(results: Results, protocol: str) -> str:
    """All retrievers by all measures, and for the transductive protocol what they cost."""
    prefix = key_of("", protocol)
    first = next(iter(results.values()))
    names = [name for name in first if name.startswith((f"{prefix}mrr", f"{prefix}recall@"))]
    names = [name for name in names if not name.endswith(("/low", "/high"))]
    costs = protocol == TRANSDUCTIVE
    head = ["", *map(_label, names), *(["ms", "MB", "papers/s"] if costs else [])]
    rows = [
        [
            name,
            *(_best(results, metrics, measure) for measure in names),
            *(_costs(metrics) if costs else []),
        ]
        for name, metrics in results.items()
    ]
    return markdown_table(head, rows)


def _best(results: Results, metrics: Metrics, measure: str) -> str:
    """The cell of a measure, bold where none of several is better."""
    cell = measure_cell(metrics, measure, measure.rpartition("/")[2] in SURE, places=3)
    shown = [measure_cell(other, measure, False, places=3) for other in results.values()]
    value, _, interval = cell.partition(" ")
    return f"**{value}** {interval}".strip() if value and len(shown) > 1 and value == max(shown) else cell


def _costs(metrics: Metrics) -> list[str]:
    speed = metrics.get("papers_per_second")
    return [
        f"{1000 * float(metrics['seconds_per_query']):.2f}",
        f"{int(metrics['index_bytes']) / 1e6:,.1f}",
        f"{speed:,.0f}" if speed is not None else "",
    ]


def _label(measure: str) -> str:
    name = measure.rpartition("/")[2]
    return name.replace("recall@", "R@") if name != "mrr" else "MRR"


def _tuned(results: Results) -> list[str]:
    """What was chosen on the validation split."""
    chosen = [
        f"{name}: " + ", ".join(f"{key.removeprefix('tuned/')} {metrics[key]}" for key in keys)
        for name, metrics in results.items()
        if (keys := [key for key in metrics if key.startswith("tuned/")])
    ]
    return ["Chosen on the validation split: " + "; ".join(chosen) + "."] if chosen else []


def _seen(results: Results) -> list[str]:
    first = next(iter(results.values()))
    if not first.get("seen/queries") or not first.get("unseen/queries"):
        return []
    names = [f"{group}/{name}" for name in ("mrr", *SURE) for group in ("seen", "unseen")]
    head = ["", *(f"{_label(name)} {name.partition('/')[0]}" for name in names)]
    rows = [[name, *(_best(results, metrics, key) for key in names)] for name, metrics in results.items()]
    counts = (
        f"Seen: the {first['seen/queries']:,} queries with a cited paper that training contexts cite too; "
        f"unseen: the {first['unseen/queries']:,} others. All {first['candidates']:,} candidates."
    )
    return ["### Seen and unseen targets", counts, markdown_table(head, rows)]


def _inductive(results: Results) -> list[str]:
    found = {name: metrics for name, metrics in results.items() if key_of("queries", INDUCTIVE) in metrics}
    if not found:
        return []
    first = next(iter(found.values()))
    pool = f"{_pool(first, INDUCTIVE)} Not comparable with the tables above."
    return ["### Inductive", pool, _measures(found, INDUCTIVE)]


def _differences(plan: Plan, jobs: Mapping[str, Job]) -> list[str]:
    rows = []
    for a, b in plan.compare:
        if a in jobs and b in jobs:
            found = compare(jobs[a].folder, jobs[b].folder, SURE)
            rows += [[a, b, _label(row[0]), *row[1:]] for row in difference_rows(found)]
    if not rows:
        return []
    text = "Transductive; two-sided randomisation test, not corrected for their number."
    return ["### Differences", text, markdown_table(["A is", "B is", *HEAD], rows)]


def published(name: str) -> list[str]:
    """The published figures of a data set, marked as such; InputError if there are none of that name."""
    content = read_published(PUBLISHED)
    if name not in content["results"]:
        raise InputError(f"{PUBLISHED}: no figures for {name!r}; there are {', '.join(content['results'])}")
    head = ["as published", *map(_label, content["measures"])]
    rows = [[who, *(f"{value:.3f}" for value in row)] for who, row in content["results"][name].items()]
    text = (
        f"**Other data: not comparable with the tables above.** {name}, from {content['source']}. "
        "To be read for the distances between the retrievers."
    )
    return [f"### As published: {name}", text, markdown_table(head, rows)]
