"""Two-stage retrieval measured at several reranking depths, and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Split
from citerec.evaluation.benchmarks.contexts.shared import (
    Outcome,
    Task,
    measure_columns,
)
from citerec.evaluation.protocol import Protocol, metric_key
from citerec.evaluation.report import Column, Headline, Metrics, Table, under
from citerec.evaluation.settings import TRANSDUCTIVE, PipelineSettings
from citerec.evaluation.significance import format_p, paired_difference
from citerec.rerank.cross_encoder.scores import ScoredPairs, first_k, reorder
from citerec.retrieval.base import Ranking
from citerec.retrieval.fusion import VALIDATION, fuse_scores, sample_queries, tune_weight

BASE, GAIN, DEPTH = "base/", "gain/", "depth/"
"""Key prefixes in metrics.json: of the prefetcher, of the reranker's gain, and of fewer candidates."""
COMPARED = ("mrr", "recall@10")
"""Measures on which the two stages are compared."""
DEPTH_MEASURES = {
    "recall@10": "R@10",
    "mrr": "MRR",
    "ceiling": "prefetch ceiling",
    "seconds_per_query": "s/query",
}
"""{measure: label} of what is reported for each number of candidates."""


FEW_QUERIES = 50
"""With fewer queries, the report warns."""


def depth_metrics(metrics: Metrics, protocol: str = TRANSDUCTIVE) -> dict[int, dict[str, float]]:
    """Extract {reranked candidates: {one of DEPTH_MEASURES: value}} from the metrics of a pipeline."""
    prefix = metric_key(DEPTH, protocol)
    by_depth: dict[int, dict[str, float]] = {}
    for name, value in metrics.items():
        if name.startswith(prefix):
            depth, _, measure = name.removeprefix(prefix).partition("/")
            by_depth.setdefault(int(depth), {})[measure] = value
    return dict(sorted(by_depth.items()))


@dataclass(frozen=True)
class ScoredCandidates:
    """A prefetched ranking [Q, n], the reranker's scores of its top K papers [Q, K], and both durations."""

    ranking: Ranking
    scores: NDArray[np.float32]
    scored: ScoredPairs
    seconds: float

    def rerank(self, depth: int, weight: float) -> Ranking:
        """Reorder the top `depth` papers by the reranker's scores, or by those of both stages."""
        scores = self.scores[:, :depth]
        return reorder(self.ranking, fuse_scores(first_k(self.ranking, depth), scores, weight))

    def seconds_at(self, depth: int) -> float:
        """Seconds to prefetch and to rerank `depth` candidates per query."""
        pairs = np.count_nonzero(self.ranking.papers[:, :depth] >= 0)
        speed = self.scored.pairs_per_second
        return self.seconds + (pairs / speed if speed else 0.0)


@dataclass(frozen=True)
class Stages:
    """The outcomes of the prefetcher and of reranking, by number of reranked candidates."""

    base: Outcome
    by_depth: Mapping[int, Outcome]
    scored: ScoredPairs

    @property
    def depth(self) -> int:
        """The largest number of reranked candidates."""
        return max(self.by_depth)

    @property
    def final(self) -> Outcome:
        """The outcome at the largest depth."""
        return self.by_depth[self.depth]

    def metrics(self, seed: int) -> dict[str, Any]:
        """Return metrics of reranking and prefetching (`base/`), gains, ceiling, and metrics by depth."""
        protocol = self.base.protocol.name
        metrics: dict[str, Any] = dict(self.final.metrics(seed))
        both = ("queries", "citing_papers", "candidates")
        of_base = self.base.metrics(seed).items()
        metrics |= {BASE + name: value for name, value in of_base if not name.endswith(both)}
        for name in [*COMPARED, *(name for name in self.base.values.values if name.startswith("f1@"))]:
            final, base = (outcome.values.values[name] for outcome in (self.final, self.base))
            gain = paired_difference(final, base, self.base.values.papers, seed=seed)
            key = GAIN + metric_key(name, protocol)
            metrics |= {key: gain.difference, f"{key}/p": gain.p}
            if gain.papers > 1:
                metrics |= {f"{key}/low": gain.low, f"{key}/high": gain.high}
        metrics[metric_key("ceiling", protocol)] = ceiling(self.final, self.depth)
        for depth, outcome in self.by_depth.items():
            values = [outcome.mean("recall@10"), outcome.mean("mrr"), ceiling(outcome, depth)]
            values.append(outcome.seconds / len(outcome.values))
            names = (metric_key(f"{DEPTH}{depth}/{name}", protocol) for name in DEPTH_MEASURES)
            metrics |= dict(zip(names, values, strict=True))
        return metrics


def ceiling(reranked: Outcome, depth: int) -> float:
    """Return the R@10 of the best order of `depth` candidates; if these are fewer than ten, of ten papers."""
    # Not the base's recall: trec_eval breaks its ties differently, so other papers would be on top.
    recalls = reranked.values.values[f"recall@{max(depth, 10)}"]
    relevant = np.array(list(map(len, reranked.qrels.judgements.values())))
    return float(np.minimum(recalls, 10 / relevant).mean())  # ten places hold ten papers


def reranker_weight(
    settings: PipelineSettings, task: Task, score: Callable[[Protocol], ScoredCandidates]
) -> Callable[[int], float]:
    """Return the function that maps a number of reranked candidates to the reranker's fusion weight.

    score: prefetches and scores candidates of validation queries; called only if the weight is tuned.
    """
    if settings.fuse == "none" or settings.weight != "tuned":
        weight = 1.0 if settings.fuse == "none" else float(settings.weight)
        return lambda depth: weight
    contexts, positives = sample_queries(task.corpus, VALIDATION, settings.validation_queries, settings.seed)
    queries, pool = Split(VALIDATION, contexts, positives), int(task.filters.allowed(task.corpus).sum())
    candidates = score(Protocol(VALIDATION, queries, task.filters, pool))

    @cache
    def tuned(depth: int) -> float:
        head, scores = first_k(candidates.ranking, depth), candidates.scores[:, :depth]
        return tune_weight(head, scores, positives, settings.tuned_cutoffs)

    return tuned


def pipeline_name(metrics: Metrics) -> str:
    """Name the two stages and their fusion, e.g. `hatten + reranker`."""
    fused = f", fused by {metrics['fuse']}" if metrics["fuse"] != "none" else ""
    return f"{metrics['retriever']} + {metrics['reranker']}{fused}"


def stage_table(metrics: Metrics, protocol: str) -> Table:
    """Return each measure before and after reranking, and the gains in COMPARED, with their p-values."""
    prefix = metric_key("", protocol)
    gains = under(metrics, GAIN + prefix)
    rows: dict[str, Metrics] = {
        "base": under(metrics, BASE + prefix),
        "reranked": under(metrics, prefix),
        "gain": gains,
        "p": {name.removesuffix("/p"): format_p(p) for name, p in gains.items() if name.endswith("/p")},
    }
    return Table.of(rows, measure_columns(metrics, protocol), "measure").transposed()


def cautions(metrics: Metrics, protocol: str) -> list[Headline]:
    """Return what to know before a gain is trusted: too few queries, or no gain."""
    lines, recall = [], metric_key("recall@10", protocol)
    if metrics[recall] < metrics[BASE + recall]:
        lines.append(Headline("The reranker is worse than what it reranks."))
    if (queries := metrics[metric_key("queries", protocol)]) < FEW_QUERIES:
        lines.append(Headline(f"{queries:,} queries are too few to compare two rankings."))
    return lines


def depth_table(metrics: Metrics, protocol: str) -> Table:
    """Return the measures by number of reranked candidates."""
    rows = {f"{depth:,}": values for depth, values in depth_metrics(metrics, protocol).items()}
    columns = [Column(key, label, decimals=4) for key, label in DEPTH_MEASURES.items()]
    return Table.of(rows, columns, "reranked candidates")
