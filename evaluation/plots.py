"""The plot of two stages: recall by the number of reranked candidates, and what a query takes.

Plots, written as PNG without a display.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from datasets.files import written_whole

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it reports on its fonts

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""


Curves = Mapping[str, Mapping[int, float]]
"""{label: {count: value}}"""


def recall_plot(path: Path, curves: Curves, title: str) -> None:
    """Draw recall against the number of papers fetched; curves: {label: {k: recall@k}}."""
    curve_plot(path, curves, title, "k, papers fetched", "recall@k", shares=True)


def size_plot(path: Path, curves: Curves, title: str) -> None:
    """Draw MAP against the size of the pool; curves: {label: {papers in the pool: percent}}."""
    curve_plot(path, curves, title, "papers in the pool", "MAP, percent")


def curve_plot(path: Path, curves: Curves, title: str, x: str, y: str, shares: bool = False) -> None:
    """Draw values over counts, these on a logarithmic axis; shares: the values are from 0 to 1, all shown."""
    counts = sorted({count for curve in curves.values() for count in curve})
    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for number, (label, curve) in enumerate(curves.items()):
        places = sorted(curve)
        axes.plot(
            places,
            [curve[count] for count in places],
            "-" if number < len(COLOURS) else "--",
            marker="o",
            markersize=4,
            color=COLOURS[number % len(COLOURS)],
            label=label,
            clip_on=False,
        )
    over_counts(axes, counts, title)
    if shares:
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines["right"].set_visible(False)
    wide = max(map(len, curves)) >= 40
    figure.legend(frameon=False, loc="outside lower center", ncols=1 if wide else 3, fontsize=9)
    with written_whole(path) as part:
        figure.savefig(part, format="png")


def over_counts(axes: Axes, counts: Sequence[int], title: str) -> None:
    """The look of curves over counts, on a logarithmic axis with a tick at each."""
    axes.set_xscale("log")
    thousands = any(count >= 10_000 for count in counts)
    axes.set_xticks(counts, [f"{count:,}" for count in counts], rotation=30 if thousands else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(title, fontsize=11)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines["top"].set_visible(False)


def recalls(metrics: Mapping[str, object], group: str = "") -> dict[int, float]:
    """{k: recall@k} of flat metrics; group: the part before the slash, as `seen`."""
    prefix = f"{group}/recall@" if group else "recall@"
    found = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
    return {int(k): float(value) for k, value in found.items() if k.isdecimal() and isinstance(value, float)}


RERANKING_PLOT = "reranking.png"

Curve = Mapping[int, Mapping[str, float]]
"""{candidates: {recall@10, ceiling, seconds_per_query}}, as evaluation.pipeline.depths_of gives it."""


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
