"""Papers as queries, in one stage and in two (Nogueira et al. 2020, tables 2 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.contexts.pipeline import Pipeline, depth_columns
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.benchmarks.contexts.stages import BASE, GAIN, pipeline_name
from citerec.evaluation.report import Column, Metrics, Part, Table
from citerec.evaluation.settings import ContextSettings
from citerec.evaluation.significance import format_p, holm

F1 = "f1@20"
MEASURES = {F1: "F1@20", "mrr": "MRR", "recall@100": "R@100", "recall@1000": "R@1000"}


class GlobalPrefetch(Prefetch):
    """Evaluates a retriever on papers as queries, primarily by F1@20."""

    name, settings_class = "global_prefetch", ContextSettings
    compared: ClassVar = {F1: F1, "mrr": "mrr"}
    headline = (Column(F1, "F1@20", best=True), Column("mrr", "MRR", best=True))
    published = ("query-forms",)

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        results = {name: output.metrics for name, output in outputs.items()}
        columns = [Column(key, label) for key, label in MEASURES.items()]
        return [size_line(results), Table.of(results, columns)]


class GlobalReranking(Pipeline):
    """Evaluates a reranker on papers as queries.

    The paper's measures are F1@20 (`f1`), MRR over the top 1,000 papers (the largest cutoff), and R@1000.
    """

    name, heading = "global_rerank", "Global reranking"
    compared: ClassVar = GlobalPrefetch.compared
    headline = (Column(f"{BASE}{F1}", "F1@20 before"), *GlobalPrefetch.headline)
    published = ("rerankers",)

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        """Return results after those of their first stages (table 2)."""
        results = {name: output.metrics for name, output in outputs.items()}
        rows: dict[str, Metrics] = {}
        for metrics in results.values():
            rows[metrics["retriever"]] = {key: metrics.get(f"{BASE}{key}") for key in MEASURES}
        tests = {
            name: p for name, values in results.items() if (p := values.get(f"{GAIN}{F1}/p")) is not None
        }
        adjusted = dict(zip(tests, holm([*tests.values()]), strict=True))
        for name, metrics in results.items():
            low, high = (metrics.get(f"{GAIN}{F1}/{end}") for end in ("low", "high"))
            ends = "" if low is None else f"{low:+.3f} to {high:+.3f}"
            row = {"stages": pipeline_name(metrics), "ends": ends}
            if name in tests:
                row["p"] = format_p(tests[name])
                row["holm"] = format_p(adjusted[name], tests=len(tests))
            rows[name] = {**metrics, **row}
        columns = [
            *(Column("stages", "stages"), Column("reranked", "candidates")),
            *(Column(key, label) for key, label in MEASURES.items()),
            *(Column("ceiling", "ceiling"), Column(f"{GAIN}{F1}", "gain", signed=True)),
            *(Column("ends", "95 %"), Column("p", "p"), Column("holm", "p, Holm")),
        ]
        gains = (
            "Gain: difference in F1@20 to the first stage, with its 95 % interval and p; Holm's is corrected "
            "for all rows. Ceiling: the share of the cited papers among the reranked candidates; other "
            "papers follow in their original order."
        )
        depths = depth_columns(results, "mrr")
        by_depth = [Table.of(results, depths, "MRR by reranked candidates")] if len(depths) > 1 else []
        return [f"{size_line(results)} {gains}", Table.of(rows, columns), *by_depth]


def size_line(results: Mapping[str, Metrics]) -> str:
    """Describe the numbers of queries and papers, for all results that differ in them."""
    sizes = {
        f"{metrics['queries']:,} queries of split {metrics['split']}, {metrics['candidates']:,} papers"
        for metrics in results.values()
    }
    return f"{'; '.join(sorted(sizes))}. Shares, not percent, as in the paper."
