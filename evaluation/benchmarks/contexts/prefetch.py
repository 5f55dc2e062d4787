"""The prefetching benchmark: recall@k over all candidates (Gu et al. 2022, table 2)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.contexts.shared import (
    CorpusBenchmark,
    Outcome,
    Task,
    cost_table,
    evaluated_protocols,
    group_table,
    measure_columns,
    open_index,
    pool_line,
)
from citerec.evaluation.plots import Curves
from citerec.evaluation.protocol import metric_key
from citerec.evaluation.report import Column, Metrics, Part, Table, under
from citerec.evaluation.settings import DRAFT, INDUCTIVE, TRANSDUCTIVE, ContextSettings, PrefetchSettings

COSTS = (
    Column("seconds_per_query", "ms", decimals=2, scale=1000),
    Column("index_bytes", "MB", decimals=1, scale=1e-6),
    Column("papers_per_second", "papers/s", decimals=0),
)


class Prefetch(CorpusBenchmark):
    """Evaluates how a retriever ranks all candidates."""

    name, heading = "prefetch", "Prefetching"
    settings_class: ClassVar[type[ContextSettings]] = PrefetchSettings
    headline: ClassVar[Sequence[Column]] = (
        Column("recall@10", "R@10", interval=True, best=True),
        Column("mrr", "MRR", best=True),
    )

    def measure(self, task: Task) -> tuple[dict[str, Any], dict[str, list[Outcome]]]:
        metrics: dict[str, Any] = {}
        index, outcomes = open_index(task), []
        for protocol in task.protocols:
            ranking, seconds = self.search(task.retriever, protocol, self.settings.cutoffs[-1])
            outcomes.append(self.outcome(task, protocol, ranking, seconds))
            metrics |= outcomes[-1].metrics(self.settings.seed)
        return metrics | index, {"": outcomes}

    def parts(self, metrics: Metrics) -> list[Part]:
        parts: list[Part] = []
        for protocol in evaluated_protocols(metrics):
            parts += [f"## Results, {protocol}", pool_line(metrics, protocol), group_table(metrics, protocol)]
        # One protocol only: others have different queries and pools, so their curves are not comparable.
        first = evaluated_protocols(metrics)[0]
        prefix = metric_key("", first)
        pool = metrics[f"{prefix}candidates"]
        title = f"{metrics['retriever']} on {metrics['data']}, split {metrics['split']}: {pool:,} candidates"
        curves = recall_curves({str(metrics["retriever"]): under(metrics, prefix)}, title, "recall@k")
        tuned = tuned_text({str(metrics["retriever"]): metrics})
        return [*parts, curves, "## Time and size", cost_table(metrics), *tuned]

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        results = {name: output.metrics for name, output in outputs.items()}
        whole = {name: row for name, row in results.items() if TRANSDUCTIVE in evaluated_protocols(row)}
        parts: list[Part] = []
        if whole:
            processors = sorted({str(metrics["processors"]) for metrics in results.values()})
            parts += [
                f"{pool_lines(whole, TRANSDUCTIVE)} {' or '.join(processors)} processors.",
                Table.of(results, [*recall_columns(whole, TRANSDUCTIVE, cls.compared), *COSTS]),
            ]
        if len(whole) > 2:  # fewer lines show no more than the table
            highlight = [name for name, output in outputs.items() if output.highlight]
            pools = " or ".join(dict.fromkeys(f"{row['candidates']:,}" for row in whole.values()))
            parts.append(recall_curves(whole, f"{title}: {pools} candidates", "R@k", highlight))
        parts += tuned_text(results)
        grouped = [row for row in whole.values() if row.get("seen/queries") and row.get("unseen/queries")]
        if grouped:
            columns = [
                Column(f"{group}/{key}", f"{label} {group}", interval=key != "mrr", best=True)
                for key, label in {"mrr": "MRR", **cls.compared}.items()
                for group in ("seen", "unseen")
            ]
            lines = dict.fromkeys(
                f"Seen: the {row['seen/queries']:,} queries with a cited paper that training contexts "
                f"also cite; unseen: the {row['unseen/queries']:,} others. All {row['candidates']:,} "
                "candidates."
                for row in grouped
            )
            parts += ["### Seen and unseen targets", " ".join(lines), Table.of(results, columns)]
        for protocol in (INDUCTIVE, DRAFT):
            if measured := {
                name: row for name, row in results.items() if metric_key("queries", protocol) in row
            }:
                others = f"{pool_lines(measured, protocol)} Not comparable with the other tables."
                parts += [f"### {protocol.capitalize()}", others]
                parts += [Table.of(measured, recall_columns(measured, protocol, cls.compared))]
        return parts


def recall_curves(
    results: Mapping[str, Metrics], title: str, alt: str, highlight: Sequence[str] = ()
) -> Curves:
    """Declare recall against the number of papers retrieved, for k below the pool size, with intervals.

    results: {label: flat metrics of a protocol}.
    """
    curves, intervals = {}, {}
    for label, metrics in results.items():
        recalls = under(metrics, "recall@")
        ks = [int(k) for k in recalls if k.isdecimal()]
        ks = [k for k in ks if k < metrics["candidates"]] or ks
        curves[label] = {k: recalls[str(k)] for k in ks}
        intervals[label] = {
            k: (recalls[f"{k}/low"], recalls[f"{k}/high"]) for k in ks if f"{k}/low" in recalls
        }
    axes = "k, papers retrieved", "recall@k"
    return Curves("recall", title, *axes, curves, alt, intervals=intervals, highlight=highlight, shares=True)


def tuned_text(results: Mapping[str, Metrics]) -> list[str]:
    """Describe the parameters that were chosen on the validation split, if there are any."""
    chosen = {name: under(metrics, "tuned/") for name, metrics in results.items()}
    texts = [
        f"{name}: {', '.join(f'{key} {value}' for key, value in tuned.items())}"
        for name, tuned in chosen.items()
        if tuned
    ]
    return [f"Chosen on the validation split: {'; '.join(texts)}."] if texts else []


def pool_lines(results: Mapping[str, Metrics], protocol: str) -> str:
    """Describe queries, protocol and pool of each different output in one sentence."""
    lines = dict.fromkeys(pool_line(metrics, protocol).rstrip(".") for metrics in results.values())
    return f"{'; '.join(lines)}."


def recall_columns(results: Mapping[str, Metrics], protocol: str, compared: Collection[str]) -> list[Column]:
    """Return columns for each measure of a protocol, with intervals for the compared ones."""
    columns = []
    measured = (measure_columns(metrics, protocol) for metrics in results.values())
    for name in (column.key for column in max(measured, key=len)):
        label = re.sub("recall|precision", lambda match: match[0][0], name).upper()
        interval = name in compared and name != "mrr"
        columns.append(Column(metric_key(name, protocol), label, interval=interval, best=True))
    return columns
