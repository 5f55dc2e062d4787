"""Plots, written as PNG without a display: a few coloured lines labelled at their ends, the rest grey."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from datasets.files import written_whole

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it reports on its fonts

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, which colour-blind readers can tell apart; no plot has more coloured lines."""
GREY = "0.8"
LABELS = 16
"""Lines that all have a label."""

Curves = Mapping[str, Mapping[Any, float]]
"""{label: {x: y}}; x are counts, or minutes."""


def recall_plot(path: Path, curves: Curves, title: str) -> None:
    """Draw recall against the number of papers retrieved; curves: {label: {k: recall@k}}."""
    curve_plot(path, curves, title, "k, papers retrieved", "recall@k", shares=True)


def curve_plot(path: Path, curves: Curves, title: str, x: str, y: str, shares: bool = False) -> None:
    """Draw values over counts, these on a logarithmic axis; shares: the values are from 0 to 1, all shown."""
    figure, (axes,) = panels(title)
    colours = coloured(curves)
    draw(axes, curves, colours)
    over_counts(axes, sorted({count for curve in curves.values() for count in curve}))
    if shares:
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    else:
        values = [value for curve in curves.values() for value in curve.values()]
        if min(values) < 0.4 * max(values):
            axes.set_ylim(bottom=0)
    axes.set(xlabel=x, ylabel=y)
    label_ends(axes, curves, colours)
    save(figure, path)


def reranking_plot(
    path: Path,
    curves: Mapping[str, Mapping[int, Mapping[str, float]]],
    title: str,
    bases: Mapping[str, float],
) -> None:
    """Draw R@10 of each pipeline with its ceiling (dashed), and seconds a query beside it.

    curves: {label: {candidates: {recall@10, ceiling, seconds_per_query}}}, as evaluation.pipeline.depths_of
    has it. bases: R@10 of the prefetchers, drawn as a dotted level line.
    """
    recalls_, ceilings, seconds = (
        {label: {k: of[name] for k, of in curve.items()} for label, curve in curves.items()}
        for name in ("recall@10", "ceiling", "seconds_per_query")
    )
    figure, (left, right) = panels(title, (3, 2))
    colours = coloured(recalls_)
    counts = sorted({k for curve in curves.values() for k in curve})
    for label in colours:
        left.axhline(bases[label], color=colours[label], linestyle=":", linewidth=1)
    for label, curve in {tuple(curve.items()): (label, curve) for label, curve in ceilings.items()}.values():
        left.plot(list(curve), list(curve.values()), "--", color=colours.get(label, GREY), linewidth=1)
    draw(left, recalls_, colours)
    draw(right, seconds, colours)
    for axes, name in ((left, "R@10 (dashed: ceiling, dotted: not reranked)"), (right, "seconds a query")):
        over_counts(axes, counts)
        axes.set_xlabel("reranked candidates")
        axes.set_title(name, fontsize=9.5, loc="left")
    left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    right.set_ylim(bottom=0)
    label_ends(left, recalls_, colours)
    save(figure, path)


def panels(title: str, widths: Sequence[float] = (1,)) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side."""
    figure = Figure(figsize=(8, 4.2), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0].tolist()
    figure.suptitle(title, fontsize=11)
    for one in axes:
        one.grid(color="0.92")
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def coloured(curves: Curves) -> dict[str, str]:
    """Colours of the lines that stand out: of many, those that are highest in the middle."""

    def height(label: str) -> float:
        places = sorted(curves[label])
        return curves[label][places[(len(places) - 1) // 2]]

    chosen = sorted(curves, key=height, reverse=True)[: len(COLOURS)]
    return dict(zip([label for label in curves if label in chosen], COLOURS, strict=False))


def draw(axes: Axes, curves: Curves, colours: Mapping[str, str]) -> None:
    """Draw the lines, the coloured ones over the grey ones."""
    for label in sorted(curves, key=lambda label: label in colours):
        places = sorted(curves[label])
        values = [curves[label][place] for place in places]
        style = {"marker": "o", "markersize": 4, "linewidth": 1.8} if label in colours else {"linewidth": 1}
        axes.plot(places, values, color=colours.get(label, GREY), clip_on=False, **style)


def label_ends(axes: Axes, curves: Curves, colours: Mapping[str, str]) -> None:
    """Write labels beside the ends of the lines, or of the coloured ones where there are too many."""
    labels = list(curves if len(curves) <= LABELS else colours)
    if len(curves) == 1:
        return
    low, high = axes.get_ylim()
    texts = {label: textwrap.fill(label, 34, max_lines=3, break_long_words=False) for label in labels}
    ends = {label: (curves[label][max(curves[label])] - low) / (high - low) for label in labels}
    halves = {label: 0.026 * (texts[label].count("\n") + 1) for label in labels}
    order = sorted(labels, key=lambda label: (ends[label], sum(curves[label].values())))
    places, bottom, top = dict(ends), -0.1, 1.02
    for label in order:  # from below, each over the one before
        places[label] = max(ends[label], bottom + halves[label])
        bottom = places[label] + halves[label]
    for label in reversed(order):  # and back below the upper edge
        places[label] = min(places[label], top - halves[label])
        top = places[label] - halves[label]
    for label in labels:
        colour = colours.get(label, "0.55")
        line = {"arrowstyle": "-", "color": colours.get(label, GREY), "linewidth": 0.6}
        axes.annotate(
            texts[label],
            (max(curves[label]), curves[label][max(curves[label])]),
            (1.06, places[label]),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            color=colour,
            annotation_clip=False,
            arrowprops=line | {"relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 3},
        )
    if len(labels) < len(curves):
        text = f"grey: {len(curves) - len(labels)} others"
        axes.text(1.06, -0.1, text, transform=axes.transAxes, fontsize=8.5, color="0.45")


def over_counts(axes: Axes, counts: Sequence[int]) -> None:
    """A logarithmic axis with a tick at each count, labelled where there is room."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    labels, last = [], 0.0
    for count in counts:  # two labels need a factor between them
        shown = not last or count / last >= (counts[-1] / counts[0]) ** 0.065
        labels.append(f"{count:,}" if shown else "")
        last = count if shown else last
    axes.set_xticks(counts, labels, rotation=30 if counts[-1] >= 10_000 else 0)


def save(figure: Figure, path: Path) -> None:
    with written_whole(path) as part:
        figure.savefig(part, format="png")


def recalls(metrics: Mapping[str, object], group: str = "") -> dict[int, float]:
    """{k: recall@k} of flat metrics where k is below the size of the pool; group: as `seen`."""
    prefix = f"{group}/recall@" if group else "recall@"
    pool = metrics.get("inductive/candidates" if group == "inductive" else "candidates")
    found = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
    curve = {int(k): float(value) for k, value in found.items() if k.isdecimal() and isinstance(value, float)}
    return {k: value for k, value in curve.items() if not isinstance(pool, int) or k < pool} or curve


def size_plot(path: Path, curves: Curves, title: str) -> None:
    """Draw MAP against the size of the pool; curves: {label: {papers in the pool: percent}}."""
    curve_plot(path, curves, title, "papers in the pool", "MAP, percent")
