"""Plots of an inspection, written as PNG without a display, each with the text that stands for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.files import written_whole
from datasets.inspection.counts import Citations

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it reports on its fonts

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""
STYLES = ("-", "--", "-.", ":")

Numbers = NDArray[np.integer]
Series = Mapping[str, Numbers]


@dataclass(frozen=True)
class Plot:
    """A file in the output folder, and what is to be seen in it."""

    file: str
    title: str
    alt: str


def draw_plots(
    folder: Path,
    corpus: Corpus,
    splits: Mapping[str, Citations],
    contexts: NDArray[np.int64],
    titles: NDArray[np.int64],
    abstracts: NDArray[np.int64],
) -> list[Plot]:
    """Write all of them. Words of contexts [C], titles and abstracts [P]."""
    lengths = {
        "contexts": {name: contexts[split.split.contexts] for name, split in splits.items()},
        "titles": {"titles": titles[titles > 0]},
        "abstracts": {"abstracts": abstracts[abstracts > 0]},
    }
    years = {
        "citing papers": {name: _known(corpus.years[s.citing_papers]) for name, s in splits.items()},
        "cited papers": {name: _known(corpus.years[s.cited_papers]) for name, s in splits.items()},
    }
    cited = {name: np.unique(split.cited, return_counts=True)[1] for name, split in splits.items()}
    citing = {
        name: np.unique(corpus.citing[split.split.contexts], return_counts=True)[1]
        for name, split in splits.items()
    }
    return [
        _plot(folder / "lengths.png", "Lengths", "words", lengths, _histogram),
        _plot(folder / "years.png", "Years", "year", years, _by_year),
        _plot(
            folder / "citations.png",
            "Citations of a target",
            "contexts that cite a paper, at least",
            {"cited papers": cited},
            _at_least,
        ),
        _plot(
            folder / "contexts.png",
            "Contexts of a citing paper",
            "contexts of a paper, at least",
            {"citing papers": citing},
            _at_least,
        ),
    ]


def _known(years: NDArray[np.int32]) -> NDArray[np.int32]:
    return years[years != 0]


def _plot(
    path: Path, title: str, unit: str, panels: Mapping[str, Series], draw: Callable[[Axes, Series], None]
) -> Plot:
    """A panel below the other for each series; the alternative text has the medians and quartiles."""
    figure = Figure(figsize=(6, 0.6 + 2.5 * len(panels)), dpi=150, layout="constrained")
    told = []
    for axes, (what, series) in zip(_panels(figure, len(panels)), panels.items(), strict=True):
        some = {name: values for name, values in series.items() if len(values)}
        if some:
            draw(axes, some)
            told.append(f"{what}: {'; '.join(_told(name, values) for name, values in some.items())}")
        else:
            axes.text(0.5, 0.5, "none known", transform=axes.transAxes, ha="center")
            told.append(f"{what}: none known")
        axes.set_xlabel(unit)
        axes.set_ylabel(f"share of {what}")
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=3, fontsize=9)
    with written_whole(path) as part:
        figure.savefig(part, format="png", metadata={"Software": None})
    return Plot(path.name, title, f"{title} ({unit}). {'. '.join(told)}.")


def _panels(figure: Figure, count: int) -> Sequence[Axes]:
    return [figure.add_subplot(count, 1, place + 1) for place in range(count)]


def _told(name: str, values: Numbers) -> str:
    low, middle, high = np.percentile(values, (25, 50, 75))
    return f"{name} median {middle:g}, half of them between {low:g} and {high:g}, largest {values.max()}"


def _style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": STYLES[number % len(STYLES)]}


def _histogram(axes: Axes, series: Series) -> None:
    """Shares by length; the longest half per cent is left out."""
    most = max(int(np.percentile(values, 99.5)) for values in series.values())
    edges = _edges(0, most, 40)
    for number, (name, values) in enumerate(series.items()):
        counts, _ = np.histogram(values, edges)
        shares = counts / len(values)
        axes.stairs(shares, edges, label=name, linewidth=1.5, **_style(number))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0)


def _by_year(axes: Axes, series: Series) -> None:
    """Shares by year, without the first per cent and the last thousandth."""
    first = min(int(np.percentile(values, 1, method="lower")) for values in series.values())
    last = max(int(np.percentile(values, 99.9, method="higher")) for values in series.values())
    edges = _edges(first, last, 120) - 0.5
    for number, (name, values) in enumerate(series.items()):
        counts, _ = np.histogram(values, edges)
        axes.stairs(counts / len(values), edges, label=name, linewidth=1.5, **_style(number))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(0)


def _edges(first: int, last: int, most: int) -> NDArray[np.int64]:
    """Of as many intervals at most, each of the same whole numbers."""
    width = -(-(last - first + 1) // most)
    return np.arange(first, last + width + 1, width)


def _at_least(axes: Axes, series: Series) -> None:
    """The share that has a number or more, for all numbers that there are."""
    for number, (name, values) in enumerate(series.items()):
        found, first = np.unique(np.sort(values), return_index=True)
        shares = 1 - first / len(values)
        axes.plot(found, shares, marker=".", markersize=4, label=name, **_style(number))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
