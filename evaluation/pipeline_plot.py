"""The plot of two stages: recall by the number of reranked candidates, and what a query takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from datasets.atomic import written_whole
from evaluation.plots import COLOURS, over_counts

RERANKING_PLOT = "reranking.png"

Curve = Mapping[int, Mapping[str, float]]
"""{candidates: {recall@10, ceiling, seconds_per_query}}, as evaluation.pipeline_stages.depths_of gives it."""


def reranking_plot(
    path: Path, curves: Mapping[str, Curve], title: str, bases: Mapping[str, float] | None = None
) -> None:
    """Draw R@10 of each pipeline, its ceiling (dashed) and seconds a query (dotted, on the second axis).

    bases: R@10 of some pipelines' prefetchers, as a level line.
    """
    figure = Figure(figsize=(7.5, 4.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    seconds = axes.twinx()
    for number, (label, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        depths = sorted(curve)
        of = {
            name: [curve[k][name] for k in depths] for name in ("recall@10", "ceiling", "seconds_per_query")
        }
        axes.plot(depths, of["recall@10"], "-o", markersize=4, color=colour, label=f"{label}, R@10")
        axes.plot(depths, of["ceiling"], "--", color=colour, alpha=0.6, label="prefetch ceiling")
        seconds.plot(depths, of["seconds_per_query"], ":s", markersize=3, color=colour, label="s a query")
        if bases and label in bases:
            axes.axhline(bases[label], color=colour, linewidth=0.8, label="not reranked, R@10")
    ticks = sorted({k for curve in curves.values() for k in curve})
    over_counts(axes, ticks, title)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("reranked candidates")
    axes.set_ylabel("recall@10, ceiling")
    seconds.set_ylabel("seconds a query (dotted)")
    seconds.set_ylim(bottom=0)
    seconds.spines["top"].set_visible(False)
    figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=8)
    with written_whole(path) as part:
        figure.savefig(part, format="png")
