"""Papers as queries, in one stage and in two (Nogueira et al. 2020, tables 2 and 4, figure 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import OmegaConf

from evaluation.benchmark import Output
from evaluation.benchmarks.pools import ABOUT
from evaluation.pipeline import Pipeline, depth_columns
from evaluation.plots import curve_plot
from evaluation.prefetch import Prefetch
from evaluation.published import published_tables
from evaluation.report import Column, Metrics, Section, SweepJob, align_columns, comparison, markdown_table
from evaluation.settings import ContextSettings, GlobalRerankSettings
from evaluation.stages import BASE, GAIN, pipeline_name
from rerank.reranker import Reranker
from rerank.scores import PairScores

F1 = "f1@20"
MEASURES = {F1: "F1@20", "mrr": "MRR", "recall@100": "R@100", "recall@1000": "R@1000"}
PLOT = "query-tokens.png"


class GlobalPrefetch(Prefetch):
    """How well a retriever finds what a paper cites; by F1@20 first."""

    name, settings_class = "global_prefetch", ContextSettings
    columns = (F1, "map", "mrr", "recall@10", "recall@100", "recall@1000", "seconds_per_query")
    compared: ClassVar = {F1: F1, "mrr": "mrr"}
    about = ABOUT

    def report(self, metrics: Metrics, lines: list[str], folder: Path) -> list[str]:
        return [*super().report(metrics, lines, folder), "## As published", *published_tables("query-forms")]

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        results = {name: output.metrics for name, output in outputs.items()}
        columns = [Column(key, label) for key, label in MEASURES.items()]
        return [size_line(results), comparison(results, columns)]

    @classmethod
    def sweep(cls, jobs: Sequence[SweepJob], varied: Sequence[str], folder: Path) -> list[Section]:
        if "retriever.query" not in varied:
            return []
        return [Section("BM25 by the form of the query, as published", published_tables("query-forms"))]


class GlobalReranking(Pipeline):
    """Queries are papers, the first candidates of a retriever are reranked.

    The paper's measures are F1@20 (`f1`), MRR of the first 1,000 papers, the largest cutoff, and R@1000.
    """

    settings: GlobalRerankSettings
    settings_class = GlobalRerankSettings
    name, heading = "global_rerank", "Global reranking"
    columns = (F1, f"{BASE}{F1}", *Pipeline.columns)
    compared: ClassVar = GlobalPrefetch.compared
    about = ABOUT
    published = ()

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.scoring = replace(self.scoring, query_tokens=self.settings.query_tokens)

    def scorer_facts(self, scores: PairScores) -> dict[str, Any]:
        assert isinstance(scores.scorer, Reranker)
        pairs = scores.scorer.model.config
        if pairs.query_tokens is None:
            return {}
        return {"query_tokens": pairs.query_tokens, "candidate_tokens": pairs.max_tokens - pairs.query_tokens}

    def candidate_lines(self, metrics: Metrics) -> list[str]:
        lines = super().candidate_lines(metrics)
        if "query_tokens" not in metrics:
            return lines
        query, candidate = metrics["query_tokens"], metrics["candidate_tokens"]
        return [f"Tokens of a pair, at most: {query:,} of the query, {candidate:,} of the candidate.", *lines]

    def closing(self) -> list[str]:
        return ["## As published", *published_tables("rerankers")]

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        """A row each after that of its first stage (table 2); by tokens where those differ (figure 1)."""
        results = {name: output.metrics for name, output in outputs.items()}
        rows: dict[str, Metrics] = {}
        for metrics in results.values():
            rows[metrics["retriever"]] = {key: metrics.get(f"{BASE}{key}") for key in MEASURES}
        for name, metrics in results.items():
            low, high = (metrics.get(f"{GAIN}{F1}/{end}") for end in ("low", "high"))
            ends = "" if low is None else f"{low:+.3f} to {high:+.3f}"
            rows[name] = metrics | {"stages": pipeline_name(metrics), "ends": ends}
        columns = [
            *(Column("stages", "stages"), Column("reranked", "candidates")),
            *(Column(key, label) for key, label in MEASURES.items()),
            *(Column("ceiling", "ceiling"), Column(f"{GAIN}{F1}", "gain", signed=True)),
            *(Column("ends", "95 %"), Column(f"{GAIN}{F1}/p", "p", places=4)),
        ]
        gains = (
            "Gain: F1@20 against the first stage, with its 95 % interval and p. Ceiling: the share of the "
            "cited papers among the reranked candidates; all other papers keep their order behind them."
        )
        parts = [f"{size_line(results)} {gains}", comparison(rows, columns)]
        depths = depth_columns(results, "mrr")
        parts += [comparison(results, depths, "MRR by reranked candidates")] if len(depths) > 1 else []
        for section in by_tokens(results.values(), plot):
            parts += [f"### {section.heading}", *section.parts]
        return parts

    @classmethod
    def sweep(cls, jobs: Sequence[SweepJob], varied: Sequence[str], folder: Path) -> list[Section]:
        found = [*super().sweep(jobs, varied, folder), *by_tokens(map(_measured, jobs), folder / PLOT)]
        if any(f"{BASE}{F1}" in job.metrics for job in jobs):
            found.append(Section("BM25 and a cross-encoder, as published", published_tables("rerankers")))
        return found


def size_line(results: Mapping[str, Metrics]) -> str:
    """How many queries and papers; several, where the results differ."""
    found = {
        f"{metrics['queries']:,} queries of split {metrics['split']}, {metrics['candidates']:,} papers"
        for metrics in results.values()
    }
    return f"{'; '.join(sorted(found))}. Shares, not percent, as in the paper."


def _measured(job: SweepJob) -> Metrics:
    """The metrics of an evaluation, or those of a training that measured F1 in its validations."""
    if f"val/{F1}" not in job.metrics:
        return job.metrics
    pairs = OmegaConf.select(OmegaConf.load(job.folder / ".hydra" / "config.yaml"), "model.pairs")
    if pairs is None or pairs.query_tokens is None:
        return {}
    tokens = {"query_tokens": pairs.query_tokens, "candidate_tokens": pairs.max_tokens - pairs.query_tokens}
    return tokens | {name: job.metrics[f"val/{name}"] for name in (F1, "mrr")}


def by_tokens(results: Iterable[Metrics], plot: Path) -> list[Section]:
    """The table of figure 1, drawn into `plot`; none where all pairs divide their tokens in the same way."""
    keys = ("query_tokens", "candidate_tokens", F1, "mrr")
    points = sorted(tuple(of[key] for key in keys) for of in results if "query_tokens" in of and F1 in of)
    if len({point[:2] for point in points}) < 2:
        return []
    curves: dict[str, dict[int, float]] = {}
    for query, candidate, f1, _ in points:
        curves.setdefault(f"{query + candidate} tokens a pair", {})[query] = f1
    curve_plot(plot, curves, "F1@20 by the tokens of the query", "tokens of the query", "F1@20")
    head = ["tokens of the query", "of the candidate", "F1@20", "MRR"]
    return [
        Section(
            "F1@20 by the tokens of query and candidate",
            [
                "Trainings: the best round, on validation queries; evaluations: their own queries.",
                f"![F1@20 by tokens of the query]({plot.name})",
                *published_tables("query-tokens"),
                markdown_table(head, align_columns(list(zip(*points, strict=True)))),
            ],
        )
    ]
