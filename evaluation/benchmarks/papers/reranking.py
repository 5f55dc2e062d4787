"""Papers as queries, in one stage and in two (Nogueira et al. 2020, tables 2 and 4)."""

from __future__ import annotations

from typing import ClassVar

from citerec.evaluation.benchmarks.contexts.pipeline import Pipeline
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.benchmarks.contexts.stages import BASE
from citerec.evaluation.report import Column
from citerec.evaluation.settings import ContextSettings

F1 = "f1@20"


class GlobalPrefetch(Prefetch):
    """Evaluates a retriever on papers as queries, primarily by F1@20."""

    name, settings_class = "global_prefetch", ContextSettings
    compared: ClassVar = {F1: "F1@20", "mrr": "MRR"}
    headline = (Column(F1, "F1@20", best=True), Column("mrr", "MRR", best=True))


class GlobalReranking(Pipeline):
    """Evaluates a reranker on papers as queries.

    The paper's measures are F1@20 (`f1`), MRR over the top 1,000 papers (the largest cutoff), and R@1000.
    """

    name, heading = "global_rerank", "Global reranking"
    compared: ClassVar = GlobalPrefetch.compared
    headline = (Column(f"{BASE}{F1}", "F1@20 before"), *GlobalPrefetch.headline)
    shown: ClassVar = {F1: "F1@20", "mrr": "MRR", "recall@1000": "R@1000"}
