"""Plots of evaluations, in the style of datasets.plots."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, PercentFormatter

from citerec.datasets.plots import GREY, Curves, draw, highlight_colours, label_ends, panels, save


def recall_plot(path: Path, curves: Curves, title: str, highlight: Collection[str] = ()) -> None:
    """Draw recall against the number of papers retrieved; curves: {label: {k: recall@k}}."""
    curve_plot(path, curves, title, "k, papers retrieved", "recall@k", shares=True, highlight=highlight)


def curve_plot(
    path: Path,
    curves: Curves,
    title: str,
    x: str,
    y: str,
    shares: bool = False,
    highlight: Collection[str] = (),
) -> None:
    """Draw values over counts on a logarithmic x axis; shares: the y axis runs from 0 to 1, in percent."""
    figure, (axes,) = panels(title)
    colours = highlight_colours(curves, highlight)
    draw(axes, curves, colours)
    set_count_axis(axes, sorted({count for curve in curves.values() for count in curve}))
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
    """Draw R@10 and ceiling (dashed) of each pipeline in one panel, and seconds per query in another.

    curves: {label: {candidates: {recall@10, ceiling, seconds_per_query}}} (evaluation.stages.depth_metrics).
    bases: R@10 of the prefetchers, drawn as dotted horizontal lines.
    """
    recalls, ceilings, seconds = (
        {label: {k: of[name] for k, of in curve.items()} for label, curve in curves.items()}
        for name in ("recall@10", "ceiling", "seconds_per_query")
    )
    figure, (left, right) = panels(title, (3, 2))
    colours = highlight_colours(recalls)
    counts = sorted({k for curve in curves.values() for k in curve})
    for label in colours:
        left.axhline(bases[label], color=colours[label], linestyle=":", linewidth=1)
    for label, curve in {tuple(curve.items()): (label, curve) for label, curve in ceilings.items()}.values():
        left.plot(list(curve), list(curve.values()), "--", color=colours.get(label, GREY), linewidth=1)
    draw(left, recalls, colours)
    draw(right, seconds, colours)
    for axes, name in ((left, "R@10 (dashed: ceiling, dotted: not reranked)"), (right, "seconds per query")):
        set_count_axis(axes, counts)
        axes.set_xlabel("reranked candidates")
        axes.set_title(name, fontsize=9.5, loc="left")
    left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    right.set_ylim(bottom=0)
    label_ends(left, recalls, colours)
    save(figure, path)


def set_count_axis(axes: Axes, counts: Sequence[int]) -> None:
    """Make the x axis logarithmic, with a tick at each count, labelled if there is room."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    labels, last = [], 0.0
    for count in counts:  # neighbouring labels need a minimum ratio between them
        shown = not last or count / last >= (counts[-1] / counts[0]) ** 0.065
        labels.append(f"{count:,}" if shown else "")
        last = count if shown else last
    axes.set_xticks(counts, labels, rotation=30 if counts[-1] >= 10_000 else 0)


def recall_curve(metrics: Mapping[str, object], group: str = "") -> dict[int, float]:
    """Return {k: recall@k} of flat metrics for k below the pool size; group: e.g. `seen`."""
    prefix = f"{group}/recall@" if group else "recall@"
    pool = metrics.get("inductive/candidates" if group == "inductive" else "candidates")
    found = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
    curve = {int(k): float(value) for k, value in found.items() if k.isdecimal() and isinstance(value, float)}
    return {k: value for k, value in curve.items() if not isinstance(pool, int) or k < pool} or curve


def size_plot(path: Path, curves: Curves, title: str) -> None:
    """Draw MAP against pool size; curves: {label: {papers in the pool: percent}}."""
    curve_plot(path, curves, title, "papers in the pool", "MAP, percent")
