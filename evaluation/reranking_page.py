"""What a page of results says of two stages: base and reranked side by side, by depth, and as published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from evaluation.pipeline_plot import reranking_plot
from evaluation.pipeline_report import depth_columns, pipeline_name
from evaluation.pipeline_stages import BASE, depths_of
from evaluation.pipeline_summary import is_pipeline
from evaluation.report import Metrics, markdown_table, measure_cell
from evaluation.reranking_published import published_pipelines, published_rerankers

HEAD = ["", "stages", "candidates", "queries", "base R@10", "R@10", "ratio", "base MRR", "MRR", "ceiling"]

PIPELINE = (
    "Base: the prefetcher alone, then what reranking made of its first candidates. Ceiling: the share of the "
    "cited papers that is among them. s/query: prefetching, and the candidates by the pairs a second."
)
ORACLE = (
    "Candidates that hold the cited paper for certain, as Gu et al. 2022, table 3: not comparable with the "
    "tables above."
)


def reranked_parts(plot: Path, title: str, results: Mapping[str, Metrics]) -> list[str]:
    """Markdown of the pipelines among the metrics of jobs; draws their plot. Empty where there is none."""
    found = {name: metrics for name, metrics in results.items() if is_pipeline(metrics)}
    oracle = {name: metrics for name, metrics in found.items() if metrics["benchmark"] == "rerank"}
    pipelines = {name: metrics for name, metrics in found.items() if name not in oracle}
    parts = []
    if pipelines:
        parts += ["### Reranked", PIPELINE, _table(pipelines)]
        curves = {name: depths_of(metrics) for name, metrics in pipelines.items()}
        bases = {name: float(metrics[f"{BASE}recall@10"]) for name, metrics in pipelines.items()}
        reranking_plot(plot, curves, title, bases)
        parts += ["### R@10 by the number of reranked candidates"]
        parts += [
            markdown_table(*depth_columns(curves, "recall@10")),
            f"![R@10 by candidates]({plot.name})",
        ]
    if oracle:
        parts += ["### Candidates of an oracle", ORACLE, _table(oracle)]
    return parts


def published_parts(results: Iterable[Metrics]) -> list[str]:
    """The published figures of the benchmarks of two stages that are among the metrics."""
    there = {metrics.get("benchmark") for metrics in results}
    pipelines = published_pipelines() if "pipeline" in there else []
    return [*pipelines, *(published_rerankers() if "rerank" in there else [])]


def _table(results: Mapping[str, Metrics]) -> str:
    rows = []
    for name, metrics in results.items():
        base, final = (float(metrics[key]) for key in (f"{BASE}recall@10", "recall@10"))
        rows.append(
            [
                name,
                pipeline_name(metrics),
                f"{metrics['reranked']:,}",
                f"{metrics['queries']:,}",
                measure_cell(metrics, f"{BASE}recall@10", True, places=3),
                measure_cell(metrics, "recall@10", True, places=3),
                f"{final / base:.2f}" if base else "",
                measure_cell(metrics, f"{BASE}mrr", False, places=3),
                measure_cell(metrics, "mrr", False, places=3),
                measure_cell(metrics, "ceiling", False, places=3),
                f"{metrics['pairs_per_second']:,.1f}",
                f"{metrics['seconds_per_query']:.2f}",
            ]
        )
    return markdown_table([*HEAD, "pairs/s", "s/query"], rows)
