"""Plots of evaluations, in the style of base.plots."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from citerec.base.plots import GREY, Curves, Intervals, draw, highlight_colours, label_ends, panels, save
from citerec.evaluation.report import Metrics


def recall_plot(
    path: Path,
    results: Mapping[str, Metrics],
    title: str,
    highlight: Collection[str] = (),
    groups: Mapping[str, str] | None = None,
) -> Figure:
    """Draw recall against the number of papers retrieved, with the known intervals of coloured curves.

    results: {label: flat metrics}. groups: {label: group of queries}, such as `seen`; default: all queries.
    """
    groups = groups or {}
    curves = {label: recall_curve(metrics, groups.get(label, "")) for label, metrics in results.items()}
    intervals = {
        label: known_intervals(results[label], groups.get(label, ""), curve)
        for label, curve in curves.items()
    }
    return curve_plot(
        path,
        curves,
        title,
        "k, papers retrieved",
        "recall@k",
        intervals=intervals,
        highlight=highlight,
        shares=True,
    )


def known_intervals(metrics: Metrics, group: str, ks: Collection[int]) -> dict[int, tuple[float, float]]:
    """Return {k: interval of recall@k} where flat metrics have one."""
    prefix = f"{group}/recall@" if group else "recall@"
    return {
        k: (metrics[f"{prefix}{k}/low"], metrics[f"{prefix}{k}/high"])
        for k in ks
        if f"{prefix}{k}/low" in metrics
    }


def curve_plot(
    path: Path,
    curves: Curves,
    title: str,
    x: str,
    y: str,
    *,
    intervals: Intervals | None = None,
    highlight: Collection[str] = (),
    lines: Mapping[str, float] | None = None,
    marks: Mapping[int, str] | None = None,
    shares: bool = False,
) -> Figure:
    """Draw values from 0 over counts on a logarithmic axis; returns the figure.

    intervals: 95 % intervals of some points. lines: {label: y} of dotted horizontal lines. marks: {x: label}
    of dotted vertical lines. shares: the y axis ends at 1, in percent.
    """
    figure, (axes,) = panels(title)
    colours = highlight_colours(curves, highlight)
    draw(axes, curves, colours, intervals)
    set_count_axis(axes, sorted({count for curve in curves.values() for count in curve}))
    axes.set_ylim(0, 1 if shares else None)
    if shares:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    line: dict[str, Any] = {"color": "0.4", "linestyle": ":", "linewidth": 1.2}
    text: dict[str, Any] = {"color": "0.4", "fontsize": 8.5, "va": "bottom"}
    for label, height in (lines or {}).items():
        axes.axhline(height, **line)
        axes.text(0.01, height, label, **text, transform=axes.get_yaxis_transform())
    for count, label in (marks or {}).items():
        axes.axvline(count, **line)
        axes.text(count, 0.01, f" {label}", **text, transform=axes.get_xaxis_transform())
    drawn = any(intervals.get(label) for label in colours) if intervals else False
    axes.set(xlabel=x, ylabel=f"{y}, with 95 % intervals" if drawn else y)
    label_ends(axes, curves, colours)
    save(figure, path)
    return figure


def reranking_plot(
    path: Path,
    curves: Mapping[str, Mapping[int, Mapping[str, float]]],
    title: str,
    bases: Mapping[str, float],
) -> None:
    """Draw R@10 and ceiling (dashed) of each pipeline in one panel, and seconds per query in another.

    curves: {label: {candidates: {recall@10, ceiling, seconds_per_query}}}
    (evaluation.benchmarks.contexts.stages.depth_metrics). bases: R@10 of the prefetchers, drawn as dotted
    horizontal lines.
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
    left.set_ylim(bottom=0)
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


def size_plot(path: Path, curves: Curves, title: str, collection: int | None = None) -> Figure:
    """Draw MAP against pool size; curves: {label: {papers in the pool: percent}}.

    collection: papers without distractors, which fill up larger pools and are easier to tell from the cited.
    """
    marks = {collection: "whole collection; larger: with distractors"} if collection else {}
    return curve_plot(path, curves, title, "papers in the pool", "MAP, percent", marks=marks)
