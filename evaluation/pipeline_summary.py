"""Several pipelines side by side: the tables and the plot of a sweep over reranked candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.pipeline_plot import RERANKING_PLOT, reranking_plot
from evaluation.pipeline_report import pipeline_name
from evaluation.pipeline_stages import BASE, OF_DEPTH, depths_of
from evaluation.report import Metrics, markdown_table, number


@dataclass(frozen=True)
class Series:
    """Evaluations of one pipeline that differ in the number of reranked candidates."""

    label: str
    jobs: Mapping[int, Metrics]

    @property
    def curve(self) -> dict[int, dict[str, float]]:
        """Of each number of candidates what depths_of gives, each from its own evaluation."""
        return {depth: depths_of(metrics)[depth] for depth, metrics in sorted(self.jobs.items())}

    @property
    def base(self) -> float:
        """R@10 of the prefetcher."""
        return float(next(iter(self.jobs.values()))[f"{BASE}recall@10"])


def is_pipeline(metrics: Metrics) -> bool:
    """Whether these are the metrics of two stages, for all queries and candidates."""
    return f"{BASE}recall@10" in metrics


def series_of(results: Sequence[tuple[str, Metrics]]) -> list[Series]:
    """The pipelines among (label, metrics); what has the same label differs in its candidates alone."""
    found: dict[str, dict[int, Metrics]] = {}
    for label, metrics in results:
        if is_pipeline(metrics):
            found.setdefault(label or pipeline_name(metrics), {})[int(metrics["reranked"])] = metrics
    return [Series(label, jobs) for label, jobs in found.items()]


def pipeline_sections(series: Sequence[Series], plot: str | None) -> list[str]:
    """Markdown: each pipeline by its candidates; and all of them in the form of Gu et al. 2022, table 4."""
    head = ["reranked candidates", "R@10", "MRR", "prefetch ceiling", "s/query", "base R@10", "base MRR"]
    parts = []
    for one in series:
        rows = [
            [
                f"{depth:,}",
                *(number(values[name]) for name in OF_DEPTH),
                *(number(one.jobs[depth][BASE + name]) for name in ("recall@10", "mrr")),
            ]
            for depth, values in one.curve.items()
        ]
        parts += [f"## {one.label}", markdown_table(head, rows)]
    depths = sorted({depth for one in series for depth in one.jobs})
    if len(depths) > 1:
        parts += ["## R@10 by the number of reranked candidates", table_4(series, depths)]
    if plot is not None:
        parts.append(f"![R@10 and seconds a query by reranked candidates]({plot})")
    return parts


def table_4(series: Sequence[Series], depths: Sequence[int]) -> str:
    """R@10: a row for each pipeline, a column for each number of reranked candidates."""
    rows = [
        [one.label, *(number(one.curve[k]["recall@10"]) if k in one.jobs else "" for k in depths)]
        for one in series
    ]
    return markdown_table(["pipeline", *(f"{depth:,}" for depth in depths)], rows)


def pipeline_plot(folder: Path, series: Sequence[Series]) -> str | None:
    """Draw all pipelines; the name of the file, or None where there is one point only."""
    if max((len(one.jobs) for one in series), default=0) < 2:
        return None
    curves = {one.label: one.curve for one in series}
    bases = {one.label: one.base for one in series}
    reranking_plot(folder / RERANKING_PLOT, curves, "reranked candidates", bases)
    return RERANKING_PLOT
