"""Two-stage benchmarks: the pipeline (Gu et al. 2022, table 4) and reranking alone (table 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.contexts.shared import (
    CorpusBenchmark,
    Outcome,
    Task,
    cost_table,
    evaluated_protocols,
    open_index,
    pool_line,
)
from citerec.evaluation.benchmarks.contexts.stages import (
    BASE,
    DEPTH,
    ScoredCandidates,
    Stages,
    cautions,
    depth_metrics,
    depth_table,
    pipeline_name,
    reranker_weight,
    stage_table,
)
from citerec.evaluation.plots import Curves
from citerec.evaluation.protocol import Protocol
from citerec.evaluation.report import Column, Metrics, Part, Table
from citerec.evaluation.settings import PipelineSettings
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.cross_encoder.scores import PairScores, first_k
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.base import Ranking, Retriever, empty_rankings

BASE_FILES = "base-"
"""Prefix of the prefetcher's file names."""
ALL = "all"
PAIRS = (
    Column("pairs", "pairs"),
    Column("pairs_new", "not cached"),
    Column("pairs_per_second", "pairs/s", decimals=1),
)


class Pipeline(CorpusBenchmark):
    """Evaluates a reranker on the candidates that a retriever finds."""

    settings: PipelineSettings
    settings_class = PipelineSettings
    name, heading = "pipeline", "Pipeline"
    headline: ClassVar[Sequence[Column]] = (
        Column(f"{BASE}recall@10", "R@10 before", interval=True),
        Column("recall@10", "R@10", interval=True, best=True),
        Column("mrr", "MRR", best=True),
        Column("ceiling", "ceiling"),
        Column("seconds_per_query", "s/query", decimals=2),
    )
    shown: ClassVar[Mapping[str, str]] = {"recall@10": "R@10", "mrr": "MRR"}
    """Measures of both stages in tables of several outputs, with their labels."""
    candidates_line: ClassVar[str] = "{reranker} reranks {retriever}'s top {reranked}; the others follow."
    section: tuple[str, str] = (
        "### Reranked",
        "Base: the prefetcher alone; the other measures are after reranking its top candidates. Ceiling: "
        "R@10 of their best order. s/query: prefetching plus reranking at pairs/s.",
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.settings.reranker is None:
            raise InputError(
                f"benchmark={self.name} needs reranker=FOLDER: output of citerec train model=scibert_reranker"
            )
        self.scoring = self.settings.scoring or ScoringSettings()

    def measure(self, task: Task) -> tuple[dict[str, Any], dict[str, list[Outcome]]]:
        settings = self.settings
        reranker = Reranker.open(settings.reranker or "", self.scoring)
        scores = PairScores(settings.scores_dir, reranker, task.corpus)
        index = open_index(task)
        weight = reranker_weight(settings, task, lambda protocol: self._score(task, protocol, scores))
        stages = []
        for protocol in task.protocols:
            candidates = self._score(task, protocol, scores)
            stages.append(self._measure_stages(task, protocol, candidates, weight, reranker.name))
        metrics: dict[str, Any] = {}
        for of_protocol in stages:
            metrics |= of_protocol.metrics(settings.seed)
        pairs = sum(len(stage.scored.scores) for stage in stages)
        seconds = sum(stage.scored.seconds for stage in stages)
        metrics |= {
            "reranked": stages[0].depth,
            "pairs": pairs,
            "pairs_new": sum(stage.scored.new for stage in stages),
            "pairs_per_second": pairs / seconds if seconds else 0.0,
            "fuse": settings.fuse,
        }
        if settings.fuse != "none":
            metrics["weight"] = weight(stages[0].depth)
        metrics |= index | {"reranker": reranker.name, "benchmark": self.name}
        metrics["arithmetic"] = reranker.backend.arithmetic
        return metrics, {BASE_FILES: [stage.base for stage in stages], "": [stage.final for stage in stages]}

    def _score(self, task: Task, protocol: Protocol, scores: PairScores) -> ScoredCandidates:
        ranking, count, seconds = self.prefetch(task.retriever, protocol)
        papers = first_k(ranking, count).papers
        return ScoredCandidates(ranking, *scores.candidate_scores(protocol.queries.contexts, papers), seconds)

    def prefetch(self, retriever: Retriever, protocol: Protocol) -> tuple[Ranking, int, float]:
        """Return the ranking, the number of candidates to rerank per query, and the seconds of search."""
        count = self.num_reranked(protocol)
        ranking, seconds = self.search(retriever, protocol, max(count, self.settings.cutoffs[-1]))
        return ranking, count, seconds

    def num_reranked(self, protocol: Protocol) -> int:
        """Return the number of candidates to rerank from the protocol's pool."""
        pool = protocol.candidates
        return pool if self.settings.candidates == ALL else min(self.settings.candidates, pool)

    def _measure_stages(
        self,
        task: Task,
        protocol: Protocol,
        candidates: ScoredCandidates,
        weight: Callable[[int], float],
        reranker: str,
    ) -> Stages:
        depth, requested = candidates.scores.shape[1], self.settings.candidates
        depths = sorted({depth, *(k for k in self.settings.depths if k < depth)})
        cutoffs = {10, *depths, *([requested] if requested != ALL and requested <= depth else [])}
        name = f"{task.retriever.name}+{reranker}"
        by_depth = {}
        for k in depths:
            ranking = candidates.rerank(k, weight(k))
            by_depth[k] = self.outcome(task, protocol, ranking, candidates.seconds_at(k), name, cutoffs)
        base = self.outcome(task, protocol, candidates.ranking, candidates.seconds, cutoffs=cutoffs)
        return Stages(base, by_depth, candidates.scored)

    def protocol_lines(self, metrics: Metrics, depth: int, whole: int) -> list[str]:
        lines = [*super().protocol_lines(metrics, depth, whole), self.candidates_line.format(**metrics)]
        if metrics["fuse"] != "none":
            lines.append(f"Sums of z-scores, {metrics['weight']} times the reranker's (benchmark.weight).")
        return lines

    def describe(self, metrics: Metrics) -> str:
        return pipeline_name(metrics)

    def parts(self, metrics: Metrics) -> list[Part]:
        parts: list[Part] = []
        for protocol in evaluated_protocols(metrics):
            parts += [f"## Results, {protocol}", pool_line(metrics, protocol), stage_table(metrics, protocol)]
            parts += [
                *cautions(metrics, protocol),
                "### By number of reranked candidates",
                depth_table(metrics, protocol),
            ]
        results = {self.describe(metrics): {**metrics, "stages": pipeline_name(metrics)}}
        return [
            *parts,
            *self.depth_parts(results, "", [])[2:],
            "## Time and size",
            cost_table(metrics, PAIRS),
        ]

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        results: dict[str, Metrics] = {
            name: output.metrics | {"stages": pipeline_name(output.metrics)}
            for name, output in outputs.items()
        }
        columns = [
            Column("stages", "stages"),
            Column("reranked", "candidates"),
            Column("queries", "queries"),
            *(
                Column(
                    f"{stage}{key}", f"{'base ' * bool(stage)}{label}", interval=key == next(iter(cls.shown))
                )
                for key, label in cls.shown.items()
                for stage in (BASE, "")
            ),
            Column("ceiling", "ceiling"),
            Column("pairs_per_second", "pairs/s", decimals=1),
            Column("seconds_per_query", "s/query", decimals=2),
        ]
        highlight = [name for name, output in outputs.items() if output.highlight]
        return [*cls.section, Table.of(results, columns), *cls.depth_parts(results, title, highlight)]

    @classmethod
    def depth_parts(cls, results: Mapping[str, Metrics], title: str, highlight: Sequence[str]) -> list[Part]:
        """Return a table and a plot of R@10 by number of reranked candidates (Gu et al. 2022, table 4)."""
        results = {name: metrics for name, metrics in results.items() if depth_metrics(metrics)}
        if not results:  # of other protocols
            return []
        curves: dict[str, dict[int, float]] = {}
        intervals: dict[str, dict[int, tuple[float, float]]] = {}
        for name, metrics in results.items():
            curve = {depth: measured["recall@10"] for depth, measured in depth_metrics(metrics).items()}
            # Evaluations that differ only in the number of candidates share one curve.
            alike = [old for old in curves if results[old]["stages"] == metrics["stages"]]
            same = (old for old in alike if all(curve.get(x, y) == y for x, y in curves[old].items()))
            label = next(same, name)
            curves[label] = curves.get(label, {}) | curve
            if "recall@10/low" in metrics:
                interval = metrics["recall@10/low"], metrics["recall@10/high"]
                intervals[label] = intervals.get(label, {}) | {max(curve): interval}
        lines: dict[str, float] = {}
        if len(curves) == 1:  # named by the title
            *_, metrics = results.values()
            data = f"{metrics['data']}, split {metrics['split']}, {metrics['queries']:,} queries"
            title = f"{metrics['stages']} on {data}"
            ceiling = {
                depth: measured["ceiling"]
                for m in results.values()
                for depth, measured in depth_metrics(m).items()
            }
            curves = {"reranked": next(iter(curves.values())), "ceiling: cited papers among them": ceiling}
            intervals = {"reranked": next(iter(intervals.values()), {})}
            lines = {f"{metrics['retriever']} alone": metrics[f"{BASE}recall@10"]}
        plot = Curves(
            "reranking",
            title,
            "reranked candidates",
            "R@10",
            curves,
            "R@10 by candidates",
            intervals=intervals,
            highlight=highlight,
            lines=lines,
        )
        depths = sorted({depth for metrics in results.values() for depth in depth_metrics(metrics)})
        table = Table.of(results, [Column(f"{DEPTH}{depth}/recall@10", f"{depth:,}") for depth in depths])
        return ["### R@10 by number of reranked candidates", table, plot]


class Reranking(Pipeline):
    """Evaluates a reranker on the top candidates of an oracle, or on the whole database.

    Candidates are those of the retriever, followed by the cited papers that it missed; with `candidates=all`,
    every paper that a query may find. All candidates are reranked.
    """

    name, heading = "rerank", "Reranking"
    section = (
        "### Candidates of an oracle",
        "The candidates always include the cited paper, as in Gu et al. 2022, table 3. Not comparable with "
        "the tables above.",
    )
    candidates_line = "{reranker} reranks up to {reranked}: {retriever}'s, then the cited that it missed."

    def prefetch(self, retriever: Retriever, protocol: Protocol) -> tuple[Ranking, int, float]:
        ranking, seconds = self.search(retriever, protocol, self.num_reranked(protocol))
        whole = self.settings.candidates == ALL
        ranking = append_missing(ranking, _required_candidates(retriever.corpus, protocol, whole))
        return ranking, ranking.k, seconds

    @classmethod
    def depth_parts(cls, results: Mapping[str, Metrics], title: str, highlight: Sequence[str]) -> list[Part]:
        return []


def _required_candidates(corpus: Corpus, protocol: Protocol, whole: bool) -> list[NDArray[np.integer]]:
    """Return the papers that each query's candidates must include [Q][n].

    These are its cited papers or, if `whole`, every paper that it may find.
    """
    queries, asked = protocol.queries, protocol.retriever_queries(corpus)
    required: list[NDArray[np.integer]] = [np.empty(0, np.int32)] * len(queries)
    for positions, allowed in protocol.filters.groups(asked):
        everything = np.flatnonzero(allowed)
        for i in positions.tolist():
            papers = everything if whole else queries.positives[i]
            required[i] = papers[allowed[papers] & (papers != asked.citing[i])]
    return required


def append_missing(ranking: Ranking, papers: Sequence[NDArray[np.integer]]) -> Ranking:
    """Append to each query's ranking those of the given papers [Q][n] that it lacks.

    Their scores continue from the last one, each 1 less than the one before.
    """
    missing = [
        np.setdiff1d(more, ranked[ranked >= 0]) for more, ranked in zip(papers, ranking.papers, strict=True)
    ]
    counts = np.count_nonzero(ranking.papers >= 0, axis=1)
    lengths = counts + np.array([len(more) for more in missing], np.int64)
    rows, scores = empty_rankings(len(ranking), int(lengths.max(initial=1)))
    keep = min(ranking.k, rows.shape[1])
    rows[:, :keep], scores[:, :keep] = ranking.papers[:, :keep], ranking.scores[:, :keep]
    for row, (count, more) in enumerate(zip(counts.tolist(), missing, strict=True)):
        last = scores[row, count - 1] if count else np.float32(0)
        rows[row, count : count + len(more)] = more
        scores[row, count : count + len(more)] = last - 1 - np.arange(len(more), dtype=np.float32)
    return Ranking(rows, scores)
