"""The prefetching benchmark: recall@k over all candidates (Gu et al. 2022, table 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.contexts.shared import (
    CorpusBenchmark,
    Outcome,
    Task,
    evaluated_protocols,
    group_rows,
    index_text,
    measure_names,
    open_index,
    pool_text,
)
from citerec.evaluation.plots import recall_plot
from citerec.evaluation.protocol import GROUPS, metric_key
from citerec.evaluation.report import Column, Metrics, comparison, markdown_table, print_table
from citerec.evaluation.settings import DRAFT, INDUCTIVE, TRANSDUCTIVE, ContextSettings, PrefetchSettings
from citerec.evaluation.significance import DRAWS

PLOT = "recall.png"
COSTS = (
    Column("seconds_per_query", "ms", decimals=2, scale=1000),
    Column("index_bytes", "MB", decimals=1, scale=1e-6),
    Column("papers_per_second", "papers/s", decimals=0),
)


class Prefetch(CorpusBenchmark):
    """Evaluates how a retriever ranks all candidates."""

    name = "prefetch"
    settings_class: ClassVar[type[ContextSettings]] = PrefetchSettings
    columns: ClassVar[Sequence[str]] = (
        *("mrr", "recall@10", "recall@100", "recall@1000", "recall@2000"),
        "seconds_per_query",
    )
    about = f"""\
- A query is a context with the title and abstract of its citing paper, which is never among its candidates.
  R@k is the share of the cited papers among the top k, MRR the mean of 1 / rank. The best value of a column
  is bold.
- In brackets: 95 % confidence intervals. Intervals and tests draw citing papers with all of their queries
  ({DRAWS:,} times), since the contexts of one paper are not independent (`evaluation/significance.py`).
- ms: time per query in batches, including encoding. MB: size of the index. Papers/s: indexing, including
  encoding; empty if the index was loaded from disk.
- Tables are transductive (all queries, all candidates) unless they say otherwise. Inductive: queries whose
  cited papers no training context cites, among the candidates that none cites, a different pool.
- Draft: the citing paper's other citations are known, and may include the cited paper."""

    def measure(self, task: Task) -> tuple[dict[str, Any], dict[str, list[Outcome]]]:
        metrics: dict[str, Any] = {}
        index, outcomes = open_index(task), []
        for protocol in task.protocols:
            name, given = task.retriever.name, self.settings
            queries, k = protocol.retriever_queries(task.corpus), given.cutoffs[-1]
            ranking, seconds = self.search(task.retriever, queries, k, protocol.filters)
            cutoffs = self.usable_cutoffs(task.retriever, protocol)
            outcomes.append(Outcome.measure(protocol, task.corpus, ranking, name, cutoffs, seconds, given.f1))
            metrics |= outcomes[-1].metrics(given.seed)
        return metrics | index, {"": outcomes}

    def report(self, metrics: Metrics, lines: list[str], folder: Path) -> list[str]:
        # One protocol only: others have different queries and pools, so their curves are not comparable.
        first = evaluated_protocols(metrics)[0]
        groups = {
            f"{label} ({metrics[key]:,} queries)": group
            for group, label in GROUPS[first].items()
            if metrics.get(key := f"{group}/queries" if group else "queries")
        }
        title = f"{metrics['retriever']} on {metrics['data']}, split {metrics['split']}"
        pool = metrics[metric_key("candidates", first)]
        curves = dict.fromkeys(groups, metrics)
        recall_plot(folder / PLOT, curves, f"{title}: {pool:,} candidates", groups=groups)
        parts = [f"# Prefetching: {title}", "## Protocol", "\n".join(f"- {line}" for line in lines)]
        for protocol in evaluated_protocols(metrics):
            head, *rows = group_rows(metrics, protocol, interval=True)
            parts += [f"## Results, {protocol}", pool_text(metrics, protocol), markdown_table(head, rows)]
        seconds = metrics[metric_key("seconds_per_query", evaluated_protocols(metrics)[0])]
        costs = f"Search in batches, including query encoding: {1000 * seconds:.3f} ms per query."
        parts += [f"![recall@k]({PLOT})", "## Time and size"]
        parts += [f"{index_text(metrics)} {costs} {metrics['processors']} processors."]
        tuned = [f"{key[6:]}: {value}" for key, value in metrics.items() if key.startswith("tuned/")]
        return [*parts, *([f"Chosen on the validation split: {', '.join(tuned)}."] if tuned else [])]

    def show(self, metrics: Metrics, folder: Path) -> None:
        for protocol in evaluated_protocols(metrics):
            where = f"{metrics['data']}, split {metrics['split']}, {protocol}"
            print_table(group_rows(metrics, protocol), f"{metrics['retriever']} on {where}")
        super().show(metrics, folder)

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        results = {name: output.metrics for name, output in outputs.items()}
        first = next(iter(results.values()))
        processors = sorted({str(metrics["processors"]) for metrics in results.values()})
        parts = [
            f"{pool_line(first, TRANSDUCTIVE)} {' or '.join(processors)} processors.",
            comparison(results, [*measure_columns(first, TRANSDUCTIVE), *COSTS]),
        ]
        if len(results) > 2:  # fewer lines show no more than the table
            highlight = [name for name, output in outputs.items() if output.highlight]
            recall_plot(plot, results, f"{title}: {first['candidates']:,} candidates", highlight)
            parts.append(f"![R@k]({plot.name})")
        tuned = [
            f"{name}: " + ", ".join(f"{key[6:]} {metrics[key]}" for key in keys)
            for name, metrics in results.items()
            if (keys := [key for key in metrics if key.startswith("tuned/")])
        ]
        parts += ["Chosen on the validation split: " + "; ".join(tuned) + "."] if tuned else []
        if first.get("seen/queries") and first.get("unseen/queries"):
            columns = [
                Column(f"{group}/{key}", f"{label} {group}", interval=key != "mrr", best=True)
                for key, label in {"mrr": "MRR", **cls.compared}.items()
                for group in ("seen", "unseen")
            ]
            parts += [
                "### Seen and unseen targets",
                f"Seen: the {first['seen/queries']:,} queries with a cited paper that training contexts "
                f"also cite; unseen: the {first['unseen/queries']:,} others. All {first['candidates']:,} "
                "candidates.",
                comparison(results, columns),
            ]
        for protocol in (INDUCTIVE, DRAFT):
            if found := {name: of for name, of in results.items() if metric_key("queries", protocol) in of}:
                one = next(iter(found.values()))
                others = f"{pool_line(one, protocol)} Not comparable with the other tables."
                parts += [f"### {protocol.capitalize()}", others]
                parts += [comparison(found, measure_columns(one, protocol))]
        return parts


def pool_line(metrics: Metrics, protocol: str) -> str:
    """Describe queries, protocol and pool in one sentence."""
    queries, papers, candidates = (
        metrics[metric_key(name, protocol)] for name in ("queries", "citing_papers", "candidates")
    )
    where = f"split {metrics['split']}, {protocol}"
    return f"{queries:,} queries of {papers:,} citing papers ({where}), {candidates:,} candidates."


def measure_columns(metrics: Metrics, protocol: str) -> list[Column]:
    """Return columns for MRR and each R@k, with intervals for the compared measures."""
    columns = []
    for key in measure_names(metrics, protocol):
        name = key.removeprefix(metric_key("", protocol))
        if name == "mrr" or name.startswith("recall@"):
            label = "MRR" if name == "mrr" else name.replace("recall@", "R@")
            columns.append(Column(key, label, interval=name in Prefetch.compared, best=True))
    return columns
