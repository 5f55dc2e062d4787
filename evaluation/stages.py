"""What two stages find, measured at several depths, and how it is reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from evaluation.contexts import (
    Outcome,
    evaluated_protocols,
    format_cell,
    index_text,
    measure_names,
    pool_text,
)
from evaluation.protocol import GROUPS, metric_key
from evaluation.report import Metrics, align_columns, markdown_table
from evaluation.settings import TRANSDUCTIVE, PipelineSettings
from evaluation.significance import paired
from rerank.scores import Scored, first_k, reorder
from retrieval.base import Ranking
from retrieval.fusion import VALIDATION, fuse_scores, sample_queries, tune_weight

BASE, GAIN, DEPTH = "base/", "gain/", "depth/"
"""Prefixes of keys in metrics.json: the prefetcher, its distance to the reranker, fewer candidates."""
COMPARED = ("mrr", "recall@10")
"""Measures by which the two stages are compared."""
OF_DEPTH = {"recall@10": "R@10", "mrr": "MRR", "ceiling": "prefetch ceiling", "seconds_per_query": "s/query"}
"""What is reported of each number of candidates."""


def depths_of(metrics: Metrics, protocol: str = TRANSDUCTIVE) -> dict[int, dict[str, float]]:
    """{reranked candidates: {one of OF_DEPTH: value}} of the metrics of a pipeline."""
    prefix = metric_key(DEPTH, protocol)
    found: dict[int, dict[str, float]] = {}
    for name, value in metrics.items():
        if name.startswith(prefix):
            depth, _, of_depth = name.removeprefix(prefix).partition("/")
            found.setdefault(int(depth), {})[of_depth] = value
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class ScoredCandidates:
    """A prefetched ranking [Q, n], the reranker's scores of its first K papers [Q, K], and what both took."""

    ranking: Ranking
    scores: NDArray[np.float32]
    seconds: float
    scored: Scored

    def final(self, depth: int, method: str, weight: float) -> Ranking:
        """The ranking with its first `depth` papers in the order of the reranker, or of both stages."""
        scores = self.scores[:, :depth]
        return reorder(self.ranking, fuse_scores(first_k(self.ranking, depth), scores, method, weight))

    def seconds_at(self, depth: int) -> float:
        """Seconds to prefetch, and to rerank so many candidates."""
        pairs = np.count_nonzero(self.ranking.papers[:, :depth] >= 0)
        speed = self.scored.pairs_per_second
        return self.seconds + (pairs / speed if speed else 0.0)


@dataclass(frozen=True)
class Stages:
    """The prefetcher's outcome, and that of reranking by the number of reranked candidates."""

    base: Outcome
    by_depth: Mapping[int, Outcome]
    scored: Scored

    @property
    def depth(self) -> int:
        """How many candidates are reranked at most."""
        return max(self.by_depth)

    @property
    def final(self) -> Outcome:
        """With all of them reranked."""
        return self.by_depth[self.depth]

    def metrics(self, seed: int) -> dict[str, Any]:
        """Of the reranked, of the prefetched (`base/...`), the difference, the ceiling; and by depth."""
        protocol = self.base.protocol.name
        found: dict[str, Any] = dict(self.final.metrics(seed))
        pool = {metric_key(name, protocol) for name in ("citing_papers", "candidates")}
        for name, value in self.base.metrics(seed).items():
            if name not in pool and not name.endswith("queries"):
                found[BASE + name] = value
        for name in [*COMPARED, *(name for name in self.base.values.values if name.startswith("f1@"))]:
            final, base = (outcome.values.values[name] for outcome in (self.final, self.base))
            gain = paired(final, base, self.base.values.papers, seed=seed)
            key = GAIN + metric_key(name, protocol)
            found |= {key: gain.difference, f"{key}/p": gain.p}
            if gain.papers > 1:
                found |= {f"{key}/low": gain.low, f"{key}/high": gain.high}
        # Not of the base: trec_eval orders its ties in another way, so that others would be the first.
        found[metric_key("ceiling", protocol)] = self.final.mean(f"recall@{self.depth}")
        for depth, outcome in self.by_depth.items():
            values = [*map(outcome.mean, ("recall@10", "mrr", f"recall@{depth}"))]
            values.append(outcome.seconds / len(outcome.values))
            names = (metric_key(f"{DEPTH}{depth}/{name}", protocol) for name in OF_DEPTH)
            found |= dict(zip(names, values, strict=True))
        return found


def check_tuning(given: PipelineSettings, corpus: Corpus) -> None:
    """Raises InputError if the reranker's weight is to be tuned and there is nothing to tune it on."""
    if given.fuse != "none" and given.weight == "tuned" and VALIDATION not in corpus.splits:
        raise InputError(
            f"benchmark.fuse={given.fuse} tunes a weight on split {VALIDATION!r}, which corpus {corpus.name} "
            "lacks; give benchmark.weight, from 0 to 1"
        )


def reranker_weight(
    given: PipelineSettings, corpus: Corpus, found: Callable[[Split], ScoredCandidates]
) -> Callable[[int], float]:
    """The weight of the reranker beside the prefetcher, by how many candidates are reranked.

    found: gives the candidates of validation queries with their scores, where they are needed.
    """
    if given.fuse == "none" or given.weight != "tuned":
        weight = 1.0 if given.fuse == "none" else float(given.weight)
        return lambda depth: weight
    contexts, wanted = sample_queries(corpus, VALIDATION, given.validation_queries, given.seed)
    candidates = found(Split(VALIDATION, contexts, wanted))

    @cache
    def tuned(depth: int) -> float:
        head, scores = first_k(candidates.ranking, depth), candidates.scores[:, :depth]
        return tune_weight(head, scores, wanted, given.fuse, given.tuned_cutoffs)

    return tuned


def pipeline_name(metrics: Metrics) -> str:
    """The two stages, and how they are fused, as `hatten + reranker`."""
    fused = f", fused by {metrics['fuse']}" if metrics["fuse"] != "none" else ""
    return f"{metrics['retriever']} + {metrics['reranker']}{fused}"


def stage_rows(metrics: Metrics, protocol: str, interval: bool = False) -> list[list[str]]:
    """Head and rows: each measure of the prefetcher, of the reranked, and the ratio."""
    rows = [["measure", "base", "reranked", "ratio"]]
    for name in measure_names(metrics, protocol):
        base = metrics[BASE + name]
        cells = [format_cell(metrics, stage + name, interval) for stage in (BASE, "")]
        ratio = f"{metrics[name] / base:.3f}" if base else ""
        rows.append([name.removeprefix(metric_key("", protocol)), *cells, ratio])
    return rows


def headline(metrics: Metrics, protocol: str) -> str:
    """Base -> Reranked and the ceiling, in one line."""
    start = metric_key("f1@", protocol)
    ranks = [name.removeprefix(start) for name in metrics if name.startswith(start)]
    parts = []
    for name in [*COMPARED, *(f"f1@{rank}" for rank in ranks if rank.isdecimal())]:
        key = metric_key(name, protocol)
        gain = f"{GAIN}{key}"
        sure = f"p {metrics[f'{gain}/p']:.4f}"
        if f"{gain}/low" in metrics:
            sure = f"95 % {metrics[f'{gain}/low']:+.4f} to {metrics[f'{gain}/high']:+.4f}, {sure}"
        values = f"{metrics[BASE + key]:.4f} -> {metrics[key]:.4f} ({metrics[gain]:+.4f}; {sure})"
        parts.append(f"{name.replace('recall', 'R').upper()} {values}")
    return (
        f"Base -> Reranked: {'; '.join(parts)}. Prefetch ceiling: "
        f"{metrics[metric_key('ceiling', protocol)]:.4f}, the share of the cited "
        "papers among the reranked candidates: what a perfect reranker would reach."
    )


def report_parts(metrics: Metrics, lines: Sequence[str], plot: str, scores: str | Path) -> list[str]:
    """Markdown: base and reranked side by side, by depth, and the times; lines: of the protocol."""
    test = (
        "Differences: intervals as above, p of a two-sided randomisation test that swaps the two rankings of "
        "a citing paper."
    )
    fused = "Ranked by the reranker's score alone; ties keep the prefetcher's order."
    if metrics["fuse"] != "none":
        what = "reciprocal ranks" if metrics["fuse"] == "rank" else "z-scores"
        fused = (
            f"Ranked by a weighted sum of the {what} of both stages: "
            f"{metrics['weight']} the reranker's, the rest the prefetcher's (benchmark.weight)."
        )
    *general, own = lines
    parts = ["## Protocol", "\n".join(f"- {line}" for line in [*general, test, own, fused])]
    for protocol in evaluated_protocols(metrics):
        head, *rows = stage_rows(metrics, protocol, interval=True)
        curve = depths_of(metrics, protocol)
        depth_rows = align_columns([list(curve), *([of[key] for of in curve.values()] for key in OF_DEPTH)])
        parts += [
            *(f"## Results, {protocol}", pool_text(metrics, protocol), headline(metrics, protocol)),
            *(markdown_table(head, rows), *_groups(metrics, protocol)),
            "### By the number of reranked candidates",
            markdown_table(["reranked candidates", *OF_DEPTH.values()], depth_rows),
        ]
    pairs, new = int(metrics["pairs"]), int(metrics["pairs_new"])
    when = "all of them now" if new == pairs else f"{new:,} of them now, the others before"
    seconds = metric_key("seconds_per_query", evaluated_protocols(metrics)[0])
    costs = (
        f"{index_text(metrics)} Prefetching: {1000 * metrics[BASE + seconds]:.3f} ms a query, in batches. "
        f"Reranking: {metrics['pairs_per_second']:,.1f} pairs a second, measured when the {pairs:,} pairs "
        f"were scored ({when}; `{scores}`). Both: {metrics[seconds]:.3f} s a query. "
        f"{metrics['processors']} processors."
    )
    return [*parts, f"![R@10 by reranked candidates]({plot})", "## Time and size", costs]


def _groups(metrics: Metrics, protocol: str) -> list[str]:
    """Base and reranked of each group of queries."""
    groups = [group for group in GROUPS[protocol] if group and group != protocol]
    groups = [group for group in groups if metrics.get(f"{group}/queries")]
    pairs = [(measure, stage) for measure in COMPARED for stage in (BASE, "")]
    head = ["queries", "", *(f"{measure} {'base' if stage else 'reranked'}" for measure, stage in pairs)]
    rows = [
        [
            *(group, f"{metrics[f'{group}/queries']:,}"),
            *(format_cell(metrics, f"{stage}{group}/{measure}", True) for measure, stage in pairs),
        ]
        for group in groups
    ]
    return [markdown_table(head, rows)] if rows else []
