"""MAP against the size of the pool, a curve for each retriever."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from datasets.atomic import written_whole
from evaluation.plots import COLOURS, over_counts


def curve_plot(
    path: Path, curves: Mapping[str, Mapping[int, float]], title: str, measure: str = "MAP"
) -> None:
    """Draw curves {label: {papers in the pool: percent}}."""
    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    sizes = sorted({size for curve in curves.values() for size in curve})
    for number, (label, curve) in enumerate(curves.items()):
        x = sorted(curve)
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "label": label,
            "marker": "o",
            "markersize": 4,
        }
        axes.plot(x, [curve[size] for size in x], **style)
    over_counts(axes, sizes, title, rotation=30 if len(sizes) > 5 else 0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("papers in the pool")
    axes.set_ylabel(f"{measure}, percent")
    axes.spines["right"].set_visible(False)
    figure.legend(frameon=False, loc="outside lower center", ncols=4, fontsize=9)
    with written_whole(path) as part:
        figure.savefig(part, format="png")
