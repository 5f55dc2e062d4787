"""Plots, written as PNG without a display."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from datasets.atomic import written_whole

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
