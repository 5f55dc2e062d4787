"""Papers as queries, in one stage and in two (Nogueira et al. 2020, tables 2 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.contexts.pipeline import Pipeline
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.benchmarks.contexts.stages import BASE
from citerec.evaluation.report import Column, Metrics, Part, Table
from citerec.evaluation.settings import ContextSettings

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
    shown: ClassVar = MEASURES

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        """Return results beside those of their first stages (table 2)."""
        results = {name: output.metrics for name, output in outputs.items()}
        return [size_line(results), *super().view(outputs, title)[1:]]


def size_line(results: Mapping[str, Metrics]) -> str:
    """Describe the numbers of queries and papers, for all results that differ in them."""
    sizes = {
        f"{metrics['queries']:,} queries of split {metrics['split']}, {metrics['candidates']:,} papers"
        for metrics in results.values()
    }
    return f"{'; '.join(sorted(sizes))}. Shares, not percent, as in the paper."
