"""Whether swapped citations can be told, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from citerec.evaluation.benchmarks.swapped import Gaps, area, swap_cells


def test_area_is_that_of_all_pairs() -> None:
    draws = np.random.default_rng(0)
    own, swapped = draws.integers(0, 5, 30).astype(float), draws.integers(2, 9, 20).astype(float)
    swapped[:3] = np.inf
    pairs = [(a < b) + (a == b) / 2 for a in own for b in swapped]
    assert area((own, swapped)) == pytest.approx(np.mean(pairs))


def made(wrong: float) -> list[Gaps]:
    """Ten drafts of 100 citations, of which 40 swapped and `wrong` others are far below the best paper."""
    own = np.where(np.arange(100) < wrong, 9.0, 1.0)
    return [(own, np.where(np.arange(100) < 40, 9.0, 1.0))] * 10


@pytest.mark.parametrize(
    ("wrong", "cells"),
    [
        (0, ["40.0%, 1.00", "40.0%, 1.00", "40.0%, 1.00"]),
        (1, ["0.0%, none", "0.0%, none", "40.0%, 0.82"]),  # .1 x .4 / (.1 x .4 + .9 x .01)
        (40, ["0.0%, none", "0.0%, none", "0.0%, none"]),
    ],
)
def test_it_speaks_where_it_is_right(wrong: int, cells: list[str]) -> None:
    assert swap_cells(made(wrong))[1:] == cells


def test_thresholds_come_from_other_drafts() -> None:
    drafts = made(0)
    drafts[0] = drafts[0][::-1]  # its own citations look wrong: with it, no threshold is right often enough
    assert swap_cells(drafts)[3] == "4.0%, 0.10"  # so only in its fold, with the sixth draft, one is used
