"""Plots: titles, axes from zero, intervals of the coloured curves, and what is marked."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from citerec.base.plots import COLOURS
from citerec.evaluation.benchmarks.contexts.prefetch import recall_curves
from citerec.evaluation.benchmarks.papers.sampled import size_curves
from citerec.evaluation.plots import Curves, draw_curves, draw_intervals

pytestmark = pytest.mark.pictures


def metrics(level: float) -> dict[str, float]:
    """Recall at 1, 10 and 100; an interval at 10, and a pool of 500."""
    result = {"candidates": 500, "recall@1": level / 4, "recall@10": level / 2, "recall@100": level}
    return result | {"recall@10/low": level / 2 - 0.05, "recall@10/high": level / 2 + 0.04}


def axes_of(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_recall_has_intervals_of_the_coloured_curves_only(tmp_path: Path) -> None:
    results = {f"model {number}": metrics(0.9 - 0.1 * number) for number in range(len(COLOURS) + 2)}
    figure = draw_curves(tmp_path / "recall.png", recall_curves(results, "corpus, split test", "R@k"))
    axes = axes_of(figure)
    assert figure.get_suptitle() == "corpus, split test"
    assert axes.get_ylim() == (0, 1) and axes.get_ylabel() == "recall@k, with 95 % intervals"
    assert len(axes.containers) == len(COLOURS)
    ends = [bar.get_segments()[0][:, 1].tolist() for container in axes.containers for bar in container[2]]
    assert np.allclose(ends[0], [0.40, 0.49])
    assert (tmp_path / "recall.png").read_bytes().startswith(b"\x89PNG")


def test_recall_without_intervals_does_not_promise_them(tmp_path: Path) -> None:
    bare = {name: value for name, value in metrics(0.8).items() if "/" not in name}
    axes = axes_of(draw_curves(tmp_path / "x.png", recall_curves({"a": bare, "b": bare}, "title", "")))
    assert axes.get_ylabel() == "recall@k" and not axes.containers


@pytest.mark.parametrize("low", [0.152, 15.0])
def test_the_axis_starts_at_zero(tmp_path: Path, low: float) -> None:
    curve = {32: low, 64: low * 1.2}
    plot = Curves("x", "t", "x", "y", {"a": curve}, "", lines={"first stage": low})
    axes = axes_of(draw_curves(tmp_path / "x.png", plot))
    assert axes.get_ylim()[0] == 0 and texts(axes) == ["first stage"]


def test_pools_that_distractors_fill_are_marked(tmp_path: Path) -> None:
    tables = {"bm25": {"100": {"map": 30.0}, "200": {"map": 20.0}, "400": {"map": 19.0}}}
    axes = axes_of(draw_curves(tmp_path / "x.png", size_curves(tables, "corpus", 200)))
    assert texts(axes) == [" whole collection; larger: with distractors"]
    assert not texts(axes_of(draw_curves(tmp_path / "x.png", size_curves(tables, "corpus", None))))


def test_a_panel_is_titled_by_its_data_and_labelled_by_its_measure(tmp_path: Path) -> None:
    values = {"Forty drafts: ask: R@10, with 95 % intervals": {"a": (0.5, 0.4, 0.6)}}
    axes = axes_of(draw_intervals(tmp_path / "x.png", values, "title"))
    assert axes.get_title() == "Forty drafts: ask" and texts(axes) == ["0.500"]
    assert axes.get_xlabel() == "R@10, with 95\N{NO-BREAK SPACE}% intervals"
