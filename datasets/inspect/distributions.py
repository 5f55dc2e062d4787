"""Plots of an inspection as PNG files with alternative texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from citerec.base.plots import GREY, draw, highlight_colours, label_ends, panels, save
from citerec.datasets.inspect.tables import CorpusView

Ints = NDArray[np.integer]
Series = Mapping[str, Ints]


@dataclass(frozen=True)
class Plot:
    """A file in the output folder, and its alternative text."""

    file: str
    alt: str


def draw_plots(folder: Path, view: CorpusView, contexts: Ints, titles: Ints, abstracts: Ints) -> list[Plot]:
    """Write all plots. contexts [C], titles, abstracts [P]: lengths in words."""
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
    per_cited, per_citing = "contexts per cited paper (at least)", "contexts per citing paper (at least)"
    return [
        _draw_plot(folder / "lengths.png", "Lengths", "words", lengths, _draw_lengths),
        _draw_plot(folder / "years.png", "Years", "year", known, _draw_years),
        _draw_plot(folder / "citations.png", "Contexts per cited paper", per_cited, cited, _draw_ccdf),
        _draw_plot(folder / "contexts.png", "Contexts per citing paper", per_citing, citing, _draw_ccdf),
    ]


def _counts(papers: Ints) -> Ints:
    return np.unique(papers, return_counts=True)[1]


def _draw_plot(
    path: Path, title: str, unit: str, parts: Mapping[str, Series], draw_panel: Callable[[Axes, Series], None]
) -> Plot:
    """Draw one panel per part, stacked vertically; the alternative text gives medians and quartiles."""
    figure, panel = panels(title, rows=len(parts))
    descriptions = []
    for axes, (what, series) in zip(panel, parts.items(), strict=True):
        nonempty = {name: values for name, values in series.items() if len(values)}
        axes.set(xlabel=unit, ylabel=f"share of {what}")
        if nonempty:
            draw_panel(axes, nonempty)
        else:
            axes.text(0.5, 0.5, "none known", transform=axes.transAxes, ha="center")
        summary = "; ".join(_describe(*item) for item in nonempty.items()) or "none known"
        descriptions.append(f"{what}: {summary}")
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    save(figure, path)
    return Plot(path.name, f"{title} ({unit}). {'. '.join(descriptions)}.")


def _describe(name: str, values: Ints) -> str:
    low, middle, high = np.percentile(values, (25, 50, 75))
    return f"{name} median {middle:g}, quartiles {low:g} and {high:g}, maximum {values.max()}"


def _draw_lengths(axes: Axes, series: Series) -> None:
    """Draw shares by length, up to the 99.5th percentile."""
    last = max(int(np.percentile(values, 99.5)) for values in series.values())
    _draw_histograms(axes, series, _bin_edges(0, last, 40))


def _draw_years(axes: Axes, series: Series) -> None:
    """Draw shares by year, from the 1st to the 99.9th percentile."""
    first = min(int(np.percentile(values, 1, method="lower")) for values in series.values())
    last = max(int(np.percentile(values, 99.9, method="higher")) for values in series.values())
    _draw_histograms(axes, series, _bin_edges(first, last, 120) - 0.5)


def _bin_edges(first: int, last: int, most: int) -> NDArray[np.int64]:
    """The edges of at most `most` equal intervals of whole numbers."""
    width = -(-(last - first + 1) // most)
    return np.arange(first, last + width + 1, width)


def _draw_histograms(axes: Axes, series: Series, edges: NDArray[np.number]) -> None:
    """Draw histograms as outlines."""
    middles = ((edges[1:] + edges[:-1]) / 2).tolist()
    curves = {}
    for name, values in series.items():
        shares = np.histogram(values, edges)[0] / len(values)
        curves[name] = dict(zip(middles, shares.tolist(), strict=True))
    colours = highlight_colours(curves)
    for name in reversed(curves):
        shares = np.array(list(curves[name].values()))
        axes.stairs(shares, edges, linewidth=1.6, color=colours.get(name, GREY), alpha=0.9)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    label_ends(axes, curves, colours)


def _draw_ccdf(axes: Axes, series: Series) -> None:
    """Draw the share of values at or above each value that occurs."""
    curves = {}
    for name, values in series.items():
        found, first = np.unique(np.sort(values), return_index=True)
        curves[name] = dict(zip(found.tolist(), (1 - first / len(values)).tolist(), strict=True))
    axes.set_xscale("log")
    axes.set_yscale("log")
    colours = highlight_colours(curves)
    draw(axes, curves, colours)
    axes.set_xlim(0.9)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    label_ends(axes, curves, colours)
