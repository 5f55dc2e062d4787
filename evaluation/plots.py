"""The plots of reports, sweeps and results pages: curves over counts, and values with their intervals.

Light to import: matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curves:
    """A plot of values from 0 over counts on a logarithmic axis, {label: {x: y}}.

    name: of its file in reports.
    intervals: {label: {x: (low, high)}} of some points. lines: {label: y} of dotted horizontal lines.
    marks: {x: label} of dotted vertical lines. shares: the y axis ends at 1, in percent.
    """

    name: str
    title: str
    x: str
    y: str
    curves: Mapping[str, Mapping[int, float]]
    alt: str
    intervals: Mapping[str, Mapping[int, tuple[float, float]]] = field(default_factory=dict)
    highlight: Sequence[str] = ()
    lines: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[int, str] = field(default_factory=dict)
    shares: bool = False


def draw_curves(path: Path, plot: Curves) -> Figure:
    """Draw values from 0 over counts on a logarithmic axis; returns the figure."""
    from matplotlib.ticker import PercentFormatter

    from citerec.base.plots import draw, highlight_colours, name_curves, panels, save

    figure, (axes,) = panels(plot.title)
    colours = highlight_colours(plot.curves, plot.highlight)
    draw(axes, plot.curves, colours, plot.intervals)
    _set_count_axis(axes, sorted({count for curve in plot.curves.values() for count in curve}))
    axes.set_ylim(0, 1 if plot.shares else None)
    if plot.shares:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    line: dict[str, Any] = {"color": "0.4", "linestyle": ":", "linewidth": 1.2}
    text: dict[str, Any] = {"color": "0.4", "fontsize": 8.5}
    for label, height in plot.lines.items():
        axes.axhline(height, **line)
        # On the right, where curves are highest, below the line.
        place: dict[str, Any] = {"ha": "right", "va": "top", "transform": axes.get_yaxis_transform()}
        axes.text(0.99, height, label, **text, **place)
    for count, label in plot.marks.items():
        axes.axvline(count, **line)
        axes.text(count, 0.01, f" {label}", **text, va="bottom", transform=axes.get_xaxis_transform())
    drawn = any(plot.intervals.get(label) for label in colours)
    axes.set(xlabel=plot.x, ylabel=f"{plot.y}, with 95 % intervals" if drawn else plot.y)
    name_curves(axes, plot.curves, colours)
    save(figure, path)
    return figure


def draw_intervals(
    path: Path, values: Mapping[str, Mapping[str, tuple[float, float, float]]], title: str
) -> Figure:
    """Draw a measure, {panel: {label: (value, low, high)}}, as dots with intervals, on one scale; returns the
    figure. The part of a panel's name before the last colon is its title."""
    from citerec.base.plots import COLOURS, panels, save

    figure, axes = panels(title, len(values))
    end = 1.1 * max(high for rows in values.values() for *_, high in rows.values())
    labels = list(dict.fromkeys(label for rows in values.values() for label in rows))
    for panel, (name, rows) in zip(axes, values.items(), strict=True):
        for label, (value, low, high) in rows.items():
            place, colour = labels.index(label), COLOURS[labels.index(label) % len(COLOURS)]
            error = [[max(value - low, 0)], [max(high - value, 0)]]
            panel.errorbar([value], [place], xerr=error, fmt="o", color=colour, capsize=3)
            offset: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 8.5}
            panel.annotate(f"{value:.3f}", (value, place), (0, 6), **offset)
        of_data, _, measure = name.replace(" %", "\N{NO-BREAK SPACE}%").rpartition(": ")
        panel.set_title(textwrap.fill(of_data, 72 // len(values)), fontsize=10)
        panel.set_xlabel(textwrap.fill(measure, 72 // len(values)))
        panel.set(xlim=(0, end), ylim=(len(labels) - 0.5, -0.6))
        panel.set_yticks(range(len(labels)), labels if panel is axes[0] else [""] * len(labels))
    save(figure, path)
    return figure


def _set_count_axis(axes: Axes, counts: Sequence[int]) -> None:
    """Make the x axis logarithmic, with a tick at each count, labelled if there is room."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    labels, last = [], 0.0
    gap = (counts[-1] / counts[0]) ** (0.011 * len(f"{counts[-1]:,} "))  # by the width of the longest label
    for count in counts:
        shown = not last or count / last >= gap
        labels.append(f"{count:,}" if shown else "")
        last = count if shown else last
    axes.set_xticks(counts, labels)
