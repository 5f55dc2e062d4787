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


def recall_plot(path: Path, curves: Mapping[str, Mapping[int, float]], title: str) -> None:
    """Draw recall against the number of papers fetched; curves: {label: {k: recall@k}}."""
    cutoffs = sorted({k for curve in curves.values() for k in curve})
    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for number, (label, curve) in enumerate(curves.items()):
        style = "-" if number < len(COLOURS) else "--"
        k = sorted(curve)
        axes.plot(
            k,
            [curve[i] for i in k],
            style,
            marker="o",
            markersize=4,
            color=COLOURS[number % len(COLOURS)],
            label=label,
            clip_on=False,
        )
    over_counts(axes, cutoffs, title)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("k, papers fetched")
    axes.set_ylabel("recall@k")
    axes.spines["right"].set_visible(False)
    figure.legend(
        frameon=False, loc="outside lower center", ncols=3 if max(map(len, curves)) < 40 else 1, fontsize=9
    )
    with written_whole(path) as part:
        figure.savefig(part, format="png")


def over_counts(axes: Axes, counts: Sequence[int], title: str, rotation: float = 0) -> None:
    """The look of curves over counts, on a logarithmic axis with a tick at each."""
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{count:,}" for count in counts], rotation=rotation)
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
