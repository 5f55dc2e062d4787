"""Plots of an inspection as PNG files, each with the text that stands for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from datasets.files import written_whole
from datasets.inspect.tables import CorpusView

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it reports on its fonts

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9")
"""After Okabe and Ito, which colour-blind readers can tell apart."""
HALO = withStroke(linewidth=3, foreground="white")
GREY = "#9a9a9a"
"""Of the splits beyond the first six, which share one label."""

Ints = NDArray[np.integer]
Series = Mapping[str, Ints]
Point = tuple[float, float]


@dataclass(frozen=True)
class Plot:
    """A file in the output folder, and its alternative text."""

    file: str
    alt: str


def draw_plots(folder: Path, view: CorpusView, contexts: Ints, titles: Ints, abstracts: Ints) -> list[Plot]:
    """Write all plots. Words of contexts [C], titles and abstracts [P]."""
    years = view.corpus.years
    lengths = {
        "contexts": {name: contexts[rows] for name, rows in view.contexts.items()},
        "titles": {"titles": titles[titles > 0]},
        "abstracts": {"abstracts": abstracts[abstracts > 0]},
    }
    of_papers = {
        "citing papers": {name: years[rows] for name, rows in view.citing_papers.items()},
        "cited papers": {name: years[rows] for name, rows in view.cited_papers.items()},
    }
    known = {what: {name: y[y != 0] for name, y in series.items()} for what, series in of_papers.items()}
    splits = view.corpus.splits.items()
    cited = {"cited papers": {name: _counts(split.positives.values) for name, split in splits}}
    citing = {"citing papers": {name: _counts(view.corpus.citing[s.contexts]) for name, s in splits}}
    of_cited, of_citing = "contexts that cite a paper, at least", "contexts of a paper, at least"
    return [
        _plot(folder / "lengths.png", "Lengths", "words", lengths, _histogram),
        _plot(folder / "years.png", "Years", "year", known, _by_year),
        _plot(folder / "citations.png", "Contexts per cited paper", of_cited, cited, _at_least),
        _plot(folder / "contexts.png", "Contexts per citing paper", of_citing, citing, _at_least),
    ]


def _counts(papers: Ints) -> Ints:
    return np.unique(papers, return_counts=True)[1]


def _plot(
    path: Path, title: str, unit: str, panels: Mapping[str, Series], draw: Callable[[Axes, Series], None]
) -> Plot:
    """One panel below the other; the alternative text gives medians and quartiles."""
    figure = Figure(figsize=(6, 0.6 + 2.5 * len(panels)), dpi=150, layout="constrained")
    told = []
    for place, (what, series) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(len(panels), 1, place)
        some = {name: values for name, values in series.items() if len(values)}
        if some:
            draw(axes, some)
        else:
            axes.text(0.5, 0.5, "none known", transform=axes.transAxes, ha="center")
        told.append(f"{what}: {'; '.join(_told(*each) for each in some.items()) or 'none known'}")
        axes.set_xlabel(unit)
        axes.set_ylabel(f"share of {what}")
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    with written_whole(path) as part:
        figure.savefig(part, format="png", metadata={"Software": None})
    return Plot(path.name, f"{title} ({unit}). {'. '.join(told)}.")


def _told(name: str, values: Ints) -> str:
    low, middle, high = np.percentile(values, (25, 50, 75))
    return f"{name} median {middle:g}, half of them between {low:g} and {high:g}, largest {values.max()}"


def _colour(number: int) -> str:
    return COLOURS[number] if number < len(COLOURS) else GREY


def _histogram(axes: Axes, series: Series) -> None:
    """Shares by length; the longest half per cent is left out."""
    last = max(int(np.percentile(values, 99.5)) for values in series.values())
    _stairs(axes, series, _edges(0, last, 40))


def _by_year(axes: Axes, series: Series) -> None:
    """Shares by year, without the first per cent and the last thousandth."""
    first = min(int(np.percentile(values, 1, method="lower")) for values in series.values())
    last = max(int(np.percentile(values, 99.9, method="higher")) for values in series.values())
    _stairs(axes, series, _edges(first, last, 120) - 0.5)


def _edges(first: int, last: int, most: int) -> NDArray[np.int64]:
    """The edges of at most so many equal intervals of whole numbers."""
    width = -(-(last - first + 1) // most)
    return np.arange(first, last + width + 1, width)


def _stairs(axes: Axes, series: Series, edges: NDArray[np.number]) -> None:
    """Histograms as outlines, each labelled where it stands out most from the others."""
    shares = np.array([np.histogram(values, edges)[0] / len(values) for values in series.values()])
    for number, own in reversed(list(enumerate(shares))):
        axes.stairs(own, edges, linewidth=1.6, color=_colour(number), alpha=0.9)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, (1.2 if len(series) > 1 else 1.05) * shares.max())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    if len(series) == 1:
        return
    middles = (edges[1:] + edges[:-1]) / 2
    anchors = []
    for number, own in enumerate(shares):
        others = np.delete(shares, number, axis=0).max(axis=0)
        bin = int(np.argmax(np.where(own >= 0.3 * own.max(), own - others, -np.inf)))
        anchors.append((float(middles[bin]), float(own[bin])))
    _label(axes, list(series), anchors, "center", (0, 3), step=0.03)


def _at_least(axes: Axes, series: Series) -> None:
    """The share with a number or more, for all numbers that occur; labels stand at the ends of the lines."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    anchors = []
    for number, values in reversed(list(enumerate(series.values()))):
        found, first = np.unique(np.sort(values), return_index=True)
        shares = 1 - first / len(values)
        axes.plot(found, shares, marker=".", markersize=4, color=_colour(number))
        anchors.append((float(found[-1]), float(shares[-1])))
    axes.set_xlim(0.9, 2 * max(last for last, _ in anchors))
    axes.set_ylim(min(0.05, 0.6 * min(share for _, share in anchors)), 1.4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _label(axes, list(series), anchors[::-1], "left", (5, -3), step=-0.03)


def _label(
    axes: Axes, names: list[str], anchors: list[Point], align: str, offset: tuple[int, int], step: float
) -> None:
    """Write each name at its anchor (in data units), moved by steps to where no other name stands."""
    taken: list[Point] = []
    shown = names[: len(COLOURS)]
    if more := len(names) - len(shown):
        shown.append(f"{more} more")
    for number, (name, anchor) in enumerate(zip(shown, anchors, strict=False)):
        x, y = axes.transAxes.inverted().transform(axes.transData.transform(anchor))
        while any(abs(x - other) < 0.12 and abs(y - height) < 0.09 for other, height in taken):
            y += step
            if not 0.02 < y < 1.05:  # at the border of the axes it turns back
                step = -step
        taken.append((x, y))
        axes.annotate(
            name, (x, y), xycoords="axes fraction", xytext=offset, textcoords="offset points",
            color=_colour(number), ha=align, fontsize=9, fontweight="bold", path_effects=[HALO],
        )  # fmt: skip
