"""Papers as queries, in one stage and in two (Nogueira et al. 2020, tables 2 and 4, figure 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.contexts.pipeline import Pipeline, depth_columns
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.benchmarks.contexts.stages import BASE, GAIN, pipeline_name
from citerec.evaluation.benchmarks.papers.pools import ABOUT
from citerec.evaluation.plots import curve_plot
from citerec.evaluation.published import published_tables
from citerec.evaluation.report import (
    Column,
    Metrics,
    Section,
    SweepJob,
    align_columns,
    comparison,
    markdown_table,
)
from citerec.evaluation.settings import ContextSettings, GlobalRerankSettings
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.cross_encoder.scores import PairScores

F1 = "f1@20"
MEASURES = {F1: "F1@20", "mrr": "MRR", "recall@100": "R@100", "recall@1000": "R@1000"}
PLOT = "query-tokens.png"


class GlobalPrefetch(Prefetch):
    """Evaluates a retriever on papers as queries, primarily by F1@20."""

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
        return [Section("BM25 by query form, as published", published_tables("query-forms"))]


class GlobalReranking(Pipeline):
    """Evaluates a reranker on papers as queries.

    The paper's measures are F1@20 (`f1`), MRR over the top 1,000 papers (the largest cutoff), and R@1000.
    """

    settings: GlobalRerankSettings
    settings_class = GlobalRerankSettings
    name, heading = "global_rerank", "Global reranking"
    columns = (F1, f"{BASE}{F1}", *Pipeline.columns)
    compared: ClassVar = GlobalPrefetch.compared
    about = ABOUT
    published = ()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
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
        return [f"Pairs have at most {query:,} query tokens and {candidate:,} candidate tokens.", *lines]

    def closing_parts(self) -> list[str]:
        return ["## As published", *published_tables("rerankers")]

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        """Return results after those of their first stages (table 2), and by tokens if varied (figure 1)."""
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
            *(Column("ends", "95 %"), Column(f"{GAIN}{F1}/p", "p", decimals=4)),
        ]
        gains = (
            "Gain: difference in F1@20 to the first stage, with its 95 % interval and p. Ceiling: the share "
            "of the cited papers among the reranked candidates; other papers follow in their original order."
        )
        parts = [f"{size_line(results)} {gains}", comparison(rows, columns)]
        depths = depth_columns(results, "mrr")
        parts += [comparison(results, depths, "MRR by reranked candidates")] if len(depths) > 1 else []
        for section in token_sections(results.values(), plot, title):
            parts += [f"### {section.heading}", *section.parts]
        return parts

    @classmethod
    def sweep(cls, jobs: Sequence[SweepJob], varied: Sequence[str], folder: Path) -> list[Section]:
        sections = super().sweep(jobs, varied, folder)
        sections += token_sections(map(_token_metrics, jobs), folder / PLOT, folder.name)
        if any(f"{BASE}{F1}" in job.metrics for job in jobs):
            sections.append(Section("BM25 and a cross-encoder, as published", published_tables("rerankers")))
        return sections


def size_line(results: Mapping[str, Metrics]) -> str:
    """Describe the numbers of queries and papers, for all results that differ in them."""
    sizes = {
        f"{metrics['queries']:,} queries of split {metrics['split']}, {metrics['candidates']:,} papers"
        for metrics in results.values()
    }
    return f"{'; '.join(sorted(sizes))}. Shares, not percent, as in the paper."


def _token_metrics(job: SweepJob) -> Metrics:
    """Return the metrics of an evaluation, or the validation metrics of a training with its tokens."""
    if f"val/{F1}" not in job.metrics:
        return job.metrics
    config = yaml.safe_load((job.folder / ".hydra" / "config.yaml").read_text("utf-8"))
    pairs = config["model"].get("pairs", {})
    if not (query := pairs.get("query_tokens")):
        return {}
    tokens = {"query_tokens": query, "candidate_tokens": pairs["max_tokens"] - query}
    return tokens | {name: job.metrics[f"val/{name}"] for name in (F1, "mrr")}


def token_sections(results: Iterable[Metrics], plot: Path, title: str) -> list[Section]:
    """Return the numbers of figure 1 as a table, and draw `plot`; empty if all token limits are the same."""
    keys = ("query_tokens", "candidate_tokens", F1, "mrr")
    shown = [of for of in results if "query_tokens" in of and F1 in of]
    points = sorted(tuple(of[key] for key in keys) for of in shown)
    if len({point[:2] for point in points}) < 2:
        return []
    curves: dict[str, dict[int, float]] = {}
    intervals: dict[str, dict[int, tuple[float, float]]] = {}
    for of in shown:
        name, query = f"{of['query_tokens'] + of['candidate_tokens']} tokens per pair", of["query_tokens"]
        curves.setdefault(name, {})[query] = of[F1]
        if f"{F1}/low" in of:
            intervals.setdefault(name, {})[query] = of[f"{F1}/low"], of[f"{F1}/high"]
    bases = {f"{of['retriever']}, not reranked": of[f"{BASE}{F1}"] for of in shown if f"{BASE}{F1}" in of}
    text = f"{title}: F1@20 by query tokens"
    curve_plot(plot, curves, text, "query tokens", "F1@20", intervals=intervals, lines=bases)
    head = ["query tokens", "candidate tokens", "F1@20", "MRR"]
    return [
        Section(
            "F1@20 by tokens of query and candidate",
            [
                "Trainings: the best round, on validation queries; evaluations: on their own queries.",
                f"![F1@20 by query tokens]({plot.name})",
                *published_tables("query-tokens"),
                markdown_table(head, align_columns(list(zip(*points, strict=True)))),
            ],
        )
    ]
