"""Parts of line plots: a few coloured curves, the others grey, named beside the axes; PNG files."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from citerec.base.files import atomic_write

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it logs its fonts

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette for colour-blind readers; its size is the maximum number of coloured curves."""
GREY = "0.8"
MAX_LABELS = 12
"""With more curves, only the coloured ones are named."""

Curves = Mapping[str, Mapping[Any, float]]
"""{label: {x: y}}; x is a count or minutes."""
Intervals = Mapping[str, Mapping[Any, tuple[float, float]]]
"""{label: {x: (low, high)}}, of some points of some curves."""


def panels(title: str, count: int = 1) -> tuple[Figure, list[Axes]]:
    """Create a figure with panels side by side."""
    figure = Figure(figsize=(8, 4.2), dpi=150, layout="constrained")
    axes = figure.subplots(1, count, squeeze=False).ravel().tolist()
    figure.suptitle(title, fontsize=11)
    for panel in axes:
        panel.grid(color="0.92")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def highlight_colours(curves: Curves, named: Collection[str] = ()) -> dict[str, str]:
    """Choose the curves to highlight and their colours: those `named`, else those highest in the middle."""

    def height(label: str) -> float:
        xs = sorted(curves[label])
        return curves[label][xs[(len(xs) - 1) // 2]]

    wanted = [label for label in curves if label in named] or sorted(curves, key=height, reverse=True)
    chosen = wanted[: len(COLOURS)]
    return dict(zip([label for label in curves if label in chosen], COLOURS, strict=False))


def draw(axes: Axes, curves: Curves, colours: Mapping[str, str], intervals: Intervals | None = None) -> None:
    """Draw the curves, the coloured ones over the grey ones; intervals only of coloured ones."""
    for label in sorted(curves, key=lambda label: label in colours):
        xs = sorted(curves[label])
        ys = [curves[label][x] for x in xs]
        style = {"marker": "o", "markersize": 4, "linewidth": 1.8} if label in colours else {"linewidth": 1}
        axes.plot(xs, ys, color=colours.get(label, GREY), label=label, clip_on=False, **style)
    for label, points in (intervals or {}).items():
        for x, (low, high) in points.items() if label in colours else ():
            error = [[max(curves[label][x] - low, 0)], [max(high - curves[label][x], 0)]]
            axes.errorbar([x], [curves[label][x]], error, color=colours[label], linewidth=1.2, capsize=3)


def name_curves(axes: Axes, curves: Curves, colours: Mapping[str, str]) -> None:
    """Name the curves beside the axes, in the order of their ends; only the coloured ones if there are more
    than MAX_LABELS."""
    if len(curves) == 1:
        return
    named = list(curves if len(curves) <= MAX_LABELS else colours)
    named.sort(key=lambda label: curves[label][max(curves[label])], reverse=True)
    lines = {line.get_label(): line for line in axes.get_lines()}
    others = len(curves) - len(named)
    axes.legend(
        [lines[label] for label in named],
        [textwrap.fill(label, 34, max_lines=3, break_long_words=False) for label in named],
        title=f"grey: {others} others" if others else None,
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        frameon=False,
        fontsize=8.5,
    )


def save(figure: Figure, path: Path) -> None:
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, format="png", metadata={"Software": None})
