"""Papers as queries, in one stage and in two (Nogueira et al. 2020, tables 2 and 4, figure 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import yaml

from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.contexts.pipeline import Pipeline, depth_columns
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.benchmarks.contexts.stages import BASE, GAIN, pipeline_name
from citerec.evaluation.published import published_tables
from citerec.evaluation.report import Column, Curves, Metrics, Part, Table, align_columns
from citerec.evaluation.settings import ContextSettings, GlobalRerankSettings
from citerec.evaluation.significance import format_p, holm
from citerec.rerank.cross_encoder.reranker import Reranker

F1 = "f1@20"
MEASURES = {F1: "F1@20", "mrr": "MRR", "recall@100": "R@100", "recall@1000": "R@1000"}


class GlobalPrefetch(Prefetch):
    """Evaluates a retriever on papers as queries, primarily by F1@20."""

    name, settings_class = "global_prefetch", ContextSettings
    columns = (F1, "map", "mrr", "recall@10", "recall@100", "recall@1000", "seconds_per_query")
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

    settings: GlobalRerankSettings
    settings_class = GlobalRerankSettings
    name, heading = "global_rerank", "Global reranking"
    columns = (F1, f"{BASE}{F1}", *Pipeline.columns)
    compared: ClassVar = GlobalPrefetch.compared
    headline = (Column(f"{BASE}{F1}", "F1@20 before"), *GlobalPrefetch.headline)
    published = ("rerankers",)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scoring = replace(self.scoring, query_tokens=self.settings.query_tokens)

    def scorer_facts(self, scores: Any) -> dict[str, Any]:
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

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        """Return results after those of their first stages (table 2), and by tokens if varied (figure 1)."""
        evaluated = {
            name: output.metrics for name, output in outputs.items() if f"{BASE}{F1}" in output.metrics
        }
        parts = cls.stage_parts(evaluated) if evaluated else []
        return [*parts, *token_parts(outputs.values(), title)]

    @staticmethod
    def stage_parts(results: Mapping[str, Metrics]) -> list[Part]:
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


def token_metrics(output: Output) -> Metrics:
    """Return the metrics of an evaluation, or the validation metrics of a training with its tokens."""
    if f"val/{F1}" not in output.metrics:
        return output.metrics
    config = yaml.safe_load((output.folder / ".hydra" / "config.yaml").read_text("utf-8"))
    pairs = config["model"].get("pairs", {})
    if not (query := pairs.get("query_tokens")):
        return {}
    tokens = {"query_tokens": query, "candidate_tokens": pairs["max_tokens"] - query}
    return tokens | {name: output.metrics[f"val/{name}"] for name in (F1, "mrr")}


def token_parts(outputs: Iterable[Output], title: str) -> list[Part]:
    """Return figure 1 and its numbers as a table; empty if all token limits are the same."""
    keys = ("query_tokens", "candidate_tokens", F1, "mrr")
    shown = [
        metrics for metrics in map(token_metrics, outputs) if "query_tokens" in metrics and F1 in metrics
    ]
    points = sorted(tuple(metrics[key] for key in keys) for metrics in shown)
    if len({point[:2] for point in points}) < 2:
        return []
    curves: dict[str, dict[int, float]] = {}
    intervals: dict[str, dict[int, tuple[float, float]]] = {}
    for metrics in shown:
        name, query = (
            f"{metrics['query_tokens'] + metrics['candidate_tokens']} tokens per pair",
            metrics["query_tokens"],
        )
        curves.setdefault(name, {})[query] = metrics[F1]
        if f"{F1}/low" in metrics:
            intervals.setdefault(name, {})[query] = metrics[f"{F1}/low"], metrics[f"{F1}/high"]
    bases = {
        f"{metrics['retriever']}, not reranked": metrics[f"{BASE}{F1}"]
        for metrics in shown
        if f"{BASE}{F1}" in metrics
    }
    text, alt = f"{title}: F1@20 by query tokens", "F1@20 by query tokens"
    return [
        "### F1@20 by tokens of query and candidate",
        "Trainings: the best round, on validation queries; evaluations: on their own queries.",
        Curves(
            "query-tokens", text, "query tokens", F1.upper(), curves, alt, intervals=intervals, lines=bases
        ),
        *published_tables("query-tokens"),
        Table(
            ["query tokens", "candidate tokens", "F1@20", "MRR"],
            align_columns(list(zip(*points, strict=True))),
        ),
    ]
