"""What a page of results says of papers that ask: BM25 by the form of the query, and reranked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluation.global_reranking_summary import F1, by_tokens, point
from evaluation.pipeline_report import depth_columns, pipeline_name
from evaluation.pipeline_stages import BASE, GAIN, depths_of
from evaluation.report import markdown_table

MEASURES = {F1: "F1@20", "mrr": "MRR", "recall@100": "R@100", "recall@1000": "R@1000"}

SHARES = "As shares, not percent, as the paper has them."
GAINS = (
    "Gain: F1@20 against the first stage, with its 95 % interval and p. Ceiling: the share of the cited "
    "papers that is among the reranked candidates; the others keep their order behind them."
)

Results = Mapping[str, Mapping[str, Any]]
"""Of one data set, the metrics of each job that has a result."""


def form_tables(results: Results) -> list[str]:
    """Markdown of outputs of benchmark=global_prefetch, a row each (Nogueira et al. 2020, table 4)."""
    rows = [[name, *_cells(metrics)] for name, metrics in results.items()]
    return [f"{_asked(results)} {SHARES}", markdown_table(["", *MEASURES.values()], rows)]


def reranked_tables(results: Results, plot: Path) -> list[str]:
    """Markdown of outputs of benchmark=global_rerank, a row each after that of their first stage (table 2).

    Where they divide the tokens of a pair in several ways, with figure 1, which is drawn into `plot`.
    """
    firsts = {str(metrics["retriever"]): _cells(metrics, BASE) for metrics in results.values()}
    rows = [[name, "", "", *cells, "", "", "", ""] for name, cells in firsts.items()]
    for name, metrics in results.items():
        gain = f"{GAIN}{F1}"
        low, high = (metrics.get(f"{gain}/{end}") for end in ("low", "high"))
        rows.append(
            [
                name,
                pipeline_name(metrics),
                f"{metrics['reranked']:,}",
                *_cells(metrics),
                f"{metrics['ceiling']:.3f}",
                f"{metrics[gain]:+.3f}",
                "" if low is None else f"{low:+.3f} to {high:+.3f}",
                f"{metrics[f'{gain}/p']:.4f}",
            ]
        )
    head = ["", "stages", "candidates", *MEASURES.values(), "ceiling", "gain", "95 %", "p"]
    parts = [f"{_asked(results)} {SHARES} {GAINS}", markdown_table(head, rows), *_by_depth(results)]
    tokens = by_tokens(map(point, results.values()), plot)
    return parts if tokens is None else [*parts, f"### {tokens.heading}", *tokens.body]


def _by_depth(results: Results) -> list[str]:
    """MRR where fewer candidates are reranked."""
    curves = {name: depths_of(metrics) for name, metrics in results.items()}
    head, rows = depth_columns(curves, "mrr", "MRR by reranked candidates")
    return [markdown_table(head, rows)] if len(head) > 2 else []


def _asked(results: Results) -> str:
    """How many queries and papers; several, where the jobs differ."""
    asked = {
        f"{metrics['queries']:,} queries of split {metrics['split']}, {metrics['candidates']:,} papers"
        for metrics in results.values()
    }
    return "; ".join(sorted(asked)) + "."


def _cells(metrics: Mapping[str, Any], stage: str = "") -> list[str]:
    found = [metrics.get(stage + measure) for measure in MEASURES]
    return ["" if value is None else f"{value:.3f}" for value in found]
