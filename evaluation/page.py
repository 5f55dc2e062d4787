"""The page of all results of a plan, as Markdown with plots.

Tables of global benchmarks over several retrievers, a row each, in percent.
What a page of results says of two stages: base and reranked side by side, by depth, and as published.
What a page of results says of papers that ask: BM25 by the form of the query, and reranked.
The page of a plan whose queries are papers, as Markdown with plots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.errors import InputError
from evaluation.benchmarks.csfcube import ALL, COLUMNS, FACETS
from evaluation.benchmarks.mdcr import AVERAGE, TYPES
from evaluation.benchmarks.pools import Table, read_json
from evaluation.benchmarks.sampled import SAMPLE
from evaluation.compare import HEAD, compare, difference_rows
from evaluation.files import write_text
from evaluation.jobs import commands_of, result_of, settings_of, there_and_missing
from evaluation.pipeline import BASE, GAIN, depth_columns, depths_of, pipeline_name
from evaluation.plan import Building, Job, Plan
from evaluation.plots import recall_plot, recalls, reranking_plot, size_plot
from evaluation.pool_curves import read_curves
from evaluation.protocol import INDUCTIVE, TRANSDUCTIVE, key_of
from evaluation.published import published_pipelines, published_tables, read_published
from evaluation.published import published_rerankers_of_reranking_published as published_rerankers
from evaluation.report import Metrics, markdown_table, measure_cell
from evaluation.significance import DRAWS
from evaluation.summary import F1, by_tokens, is_pipeline, point

LABELS = {**COLUMNS, "map": "MAP", "ndcg": "nDCG", "recall_30": "R@30", "recall_5": "R@5"}
SAMPLED = ("map", "ndcg", "recall_30")
FACET_MEASURES = ("mean_av_precision", "ndcg%20")

Tables = Mapping[str, Table]
"""{retriever: {group: {measure: percent}}}"""


def size_tables(tables: Tables) -> list[str]:
    """Of dataset-level evaluations: a table for each measure, a column for each size."""
    sizes = sorted(groups_of(tables), key=int)
    return _by_group(tables, sizes, SAMPLED, lambda size: f"{int(size):,}")


def field_tables(tables: Tables) -> list[str]:
    """Of field-level evaluations: a table for each measure, a column for each field, as their Table 2."""
    return _by_group(tables, groups_of(tables), SAMPLED)


def mdcr_tables(tables: Tables, types: Tables) -> list[str]:
    """Of MDCR or a benchmark like it: by field (as their Table 3), and by type of candidates (Table 4)."""
    measures = ("map", "recall_5")
    parts = _by_group(tables, groups_of(tables), measures)
    kinds = groups_of(types)
    columns = [(kind, measure) for kind in kinds for measure in measures]
    rows = {who: [of.get(kind, {}).get(measure) for kind, measure in columns] for who, of in types.items()}
    found = [_mean([row[place] for row in rows.values()]) for place in range(len(columns))]
    head = ["", *(f"{kind} {LABELS[measure]}" for kind, measure in columns)]
    return [
        *parts,
        "By type of candidates: the cited ones and those of the type alone, means over the fields. The last "
        "row is the mean of the others.",
        markdown_table(head, [*marked(rows), ["mean", *map(percent, found)]]),
    ]


def csfcube_tables(tables: Tables) -> list[str]:
    """Of CSFCube: all facets together by all measures, and the facets by two of them; split test."""
    head = ["all facets", *COLUMNS.values()]
    rows = {who: [of.get(ALL, {}).get(measure) for measure in COLUMNS] for who, of in tables.items()}
    columns = [(facet, measure) for facet in FACETS for measure in FACET_MEASURES]
    facets = {
        who: [of.get(facet, {}).get(measure) for facet, measure in columns] for who, of in tables.items()
    }
    return [
        markdown_table(head, marked(rows)),
        markdown_table(["", *(f"{facet} {LABELS[measure]}" for facet, measure in columns)], marked(facets)),
    ]


def task_tables(tables: Tables) -> list[str]:
    """Of SciDocs: MAP and nDCG of each task."""
    columns = [(task, measure) for task in groups_of(tables) for measure in ("map", "ndcg")]
    rows = {who: [of.get(task, {}).get(measure) for task, measure in columns] for who, of in tables.items()}
    return [markdown_table(["", *(f"{task} {LABELS[measure]}" for task, measure in columns)], marked(rows))]


def groups_of(tables: Tables) -> list[str]:
    """The groups that any of the tables has, as they come; the average last."""
    groups = dict.fromkeys(group for of in tables.values() for group in of)
    return sorted(groups, key=lambda group: group == AVERAGE)


def _by_group(
    tables: Tables, groups: Sequence[str], measures: Sequence[str], label: Callable[[str], str] = str
) -> list[str]:
    parts = []
    for measure in measures:
        rows = {who: [of.get(group, {}).get(measure) for group in groups] for who, of in tables.items()}
        spread = {
            who: [_deviation(of.get(group, {}), measure) for group in groups] for who, of in tables.items()
        }
        parts.append(markdown_table([LABELS[measure], *map(label, groups)], marked(rows, spread)))
    return parts


def marked(
    rows: Mapping[str, Sequence[float | None]], spread: Mapping[str, Sequence[float | None]] | None = None
) -> list[list[str]]:
    """Rows of numbers as text, the best of several in a column bold; with ± where a deviation is known."""
    columns = list(zip(*rows.values(), strict=True))
    shown = []
    for who, row in rows.items():
        cells = [who]
        for place, value in enumerate(row):
            others = [other for other in columns[place] if other is not None]
            text = percent(value)
            if value is not None and len(others) > 1 and text == percent(max(others)):
                text = f"**{text}**"
            deviation = spread[who][place] if spread else None
            cells.append(text if deviation is None else f"{text} ± {deviation:.2f}")
        shown.append(cells)
    return shown


def _deviation(row: Mapping[str, float], measure: str) -> float | None:
    """Of several samplings; else there is none."""
    return row.get(f"{measure}_sd") if row.get("samplings", 1) > 1 else None


def percent(value: float | None) -> str:
    """Two places, or nothing."""
    return "" if value is None else f"{value:.2f}"


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


RERANKING_PAGE_HEAD = [
    "",
    "stages",
    "candidates",
    "queries",
    "base R@10",
    "R@10",
    "ratio",
    "base MRR",
    "MRR",
    "ceiling",
]

PIPELINE = (
    "Base: the prefetcher alone, then what reranking made of its first candidates. Ceiling: the share of the "
    "cited papers that is among them. s/query: prefetching, and the candidates by the pairs a second."
)
ORACLE = (
    "Candidates that hold the cited paper for certain, as Gu et al. 2022, table 3: not comparable with the "
    "tables above."
)


def reranked_parts(plot: Path, title: str, results: Mapping[str, Metrics]) -> list[str]:
    """Markdown of the pipelines among the metrics of jobs; draws their plot. Empty where there is none."""
    found = {name: metrics for name, metrics in results.items() if is_pipeline(metrics)}
    oracle = {name: metrics for name, metrics in found.items() if metrics["benchmark"] == "rerank"}
    pipelines = {name: metrics for name, metrics in found.items() if name not in oracle}
    parts = []
    if pipelines:
        parts += ["### Reranked", PIPELINE, _table(pipelines)]
        curves = {name: depths_of(metrics) for name, metrics in pipelines.items()}
        bases = {name: float(metrics[f"{BASE}recall@10"]) for name, metrics in pipelines.items()}
        reranking_plot(plot, curves, title, bases)
        parts += ["### R@10 by the number of reranked candidates"]
        parts += [
            markdown_table(*depth_columns(curves, "recall@10")),
            f"![R@10 by candidates]({plot.name})",
        ]
    if oracle:
        parts += ["### Candidates of an oracle", ORACLE, _table(oracle)]
    return parts


def published_parts(results: Iterable[Metrics]) -> list[str]:
    """The published figures of the benchmarks of two stages that are among the metrics."""
    there = {metrics.get("benchmark") for metrics in results}
    pipelines = published_pipelines() if "pipeline" in there else []
    return [*pipelines, *(published_rerankers() if "rerank" in there else [])]


def _table(results: Mapping[str, Metrics]) -> str:
    rows = []
    for name, metrics in results.items():
        base, final = (float(metrics[key]) for key in (f"{BASE}recall@10", "recall@10"))
        rows.append(
            [
                name,
                pipeline_name(metrics),
                f"{metrics['reranked']:,}",
                f"{metrics['queries']:,}",
                measure_cell(metrics, f"{BASE}recall@10", True, places=3),
                measure_cell(metrics, "recall@10", True, places=3),
                f"{final / base:.2f}" if base else "",
                measure_cell(metrics, f"{BASE}mrr", False, places=3),
                measure_cell(metrics, "mrr", False, places=3),
                measure_cell(metrics, "ceiling", False, places=3),
                f"{metrics['pairs_per_second']:,.1f}",
                f"{metrics['seconds_per_query']:.2f}",
            ]
        )
    return markdown_table([*RERANKING_PAGE_HEAD, "pairs/s", "s/query"], rows)


MEASURES = {F1: "F1@20", "mrr": "MRR", "recall@100": "R@100", "recall@1000": "R@1000"}

SHARES = "As shares, not percent, as the paper has them."
GAINS = (
    "Gain: F1@20 against the first stage, with its 95 % interval and p. Ceiling: the share of the cited "
    "papers that is among the reranked candidates; the others keep their order behind them."
)

GlobalRerankingPageResults = Mapping[str, Mapping[str, Any]]
"""Of one data set, the metrics of each job that has a result."""


def form_tables(results: GlobalRerankingPageResults) -> list[str]:
    """Markdown of outputs of benchmark=global_prefetch, a row each (Nogueira et al. 2020, table 4)."""
    rows = [[name, *_cells(metrics)] for name, metrics in results.items()]
    return [f"{_asked(results)} {SHARES}", markdown_table(["", *MEASURES.values()], rows)]


def reranked_tables(results: GlobalRerankingPageResults, plot: Path) -> list[str]:
    """Markdown of outputs of benchmark=global_rerank, a row each after that of their first stage (table 2).

    Where they divide the tokens of a pair in several ways, with figure 1, which is drawn into `plot`.
    """
    firsts = {str(metrics["retriever"]): _cells(metrics, BASE) for metrics in results.values()}
    rows = [[name, "", "", *cells, "", "", "", ""] for name, cells in firsts.items()]
    for name, metrics in results.items():
        gain = f"{GAIN}{F1}"
        low, high = (metrics.get(f"{gain}/{end}") for end in ("low", "high"))
        rows.append(
            [
                name,
                pipeline_name(metrics),
                f"{metrics['reranked']:,}",
                *_cells(metrics),
                f"{metrics['ceiling']:.3f}",
                f"{metrics[gain]:+.3f}",
                "" if low is None else f"{low:+.3f} to {high:+.3f}",
                f"{metrics[f'{gain}/p']:.4f}",
            ]
        )
    head = ["", "stages", "candidates", *MEASURES.values(), "ceiling", "gain", "95 %", "p"]
    parts = [f"{_asked(results)} {SHARES} {GAINS}", markdown_table(head, rows), *_by_depth(results)]
    tokens = by_tokens(map(point, results.values()), plot)
    return parts if tokens is None else [*parts, f"### {tokens.heading}", *tokens.body]


def _by_depth(results: GlobalRerankingPageResults) -> list[str]:
    """MRR where fewer candidates are reranked."""
    curves = {name: depths_of(metrics) for name, metrics in results.items()}
    head, rows = depth_columns(curves, "mrr", "MRR by reranked candidates")
    return [markdown_table(head, rows)] if len(head) > 2 else []


def _asked(results: GlobalRerankingPageResults) -> str:
    """How many queries and papers; several, where the jobs differ."""
    asked = {
        f"{metrics['queries']:,} queries of split {metrics['split']}, {metrics['candidates']:,} papers"
        for metrics in results.values()
    }
    return "; ".join(sorted(asked)) + "."


def _cells(metrics: Mapping[str, Any], stage: str = "") -> list[str]:
    found = [metrics.get(stage + measure) for measure in MEASURES]
    return ["" if value is None else f"{value:.3f}" for value in found]


GLOBAL_PAGE_ABOUT = """\
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
    parts = [f"# {plan.title}", GLOBAL_PAGE_ABOUT.format(plan=plan.path), plan.notes.strip()]
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
        sections += _section_of_results_page(plan, data, there, results, missing)
    about = ABOUT.format(plan=plan.path, processors=" or ".join(sorted(processors)) or "no")
    parts = [f"# {plan.title}", about, plan.notes.strip(), *sections, *published_parts(everything)]
    write_text(plan.page, "\n\n".join(part for part in parts if part) + "\n")


def _section_of_results_page(
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
    parts += [
        *reranked_parts(plot, f"{one.title}, split {one.split}", results),
        *_differences_of_results_page(plan, jobs),
    ]
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


def _differences_of_results_page(plan: Plan, jobs: Mapping[str, Job]) -> list[str]:
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
