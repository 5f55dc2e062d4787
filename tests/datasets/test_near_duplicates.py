"""The search for near-duplicate titles finds the same as brute force."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets import near_duplicates
from citerec.datasets.near_duplicates import TitleIndex

# Few words, so that many titles share most of their words.
TITLES = st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=12).map(" ".join), max_size=12)


def brute_force(titles: list[str], others: list[str], threshold: Fraction) -> list[int]:
    rows, index = (
        [set(re.findall(r"[^\W_]+", title.lower())) for title in part] for part in (titles, others)
    )

    def near(row: set[str], other: set[str]) -> bool:
        return bool(row and other) and Fraction(len(row & other), len(row | other)) > threshold

    return [number for number, row in enumerate(rows) if any(near(row, other) for other in index)]


@given(TITLES, TITLES, st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.75, 0.9]), st.booleans())
def test_titles_with_near_duplicates(
    titles: list[str], others: list[str], threshold: float, small: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(near_duplicates, "PAIRS", 1)
            patch.setattr(near_duplicates, "ROWS", 2)
        found = TitleIndex(others, threshold).matches(titles)
    assert np.flatnonzero(found).tolist() == brute_force(titles, others, Fraction(str(threshold)))


@pytest.mark.parametrize("words", [10, 20, 30])
def test_titles_at_the_threshold_are_not_above_it(words: int) -> None:
    names = [f"w{number}" for number in range(words)]
    shared = words * 7 // 10
    index = TitleIndex([" ".join(names)], 0.7)
    assert index.matches([" ".join(names[:shared]), " ".join(names[: shared + 1])]).tolist() == [False, True]


def test_special_characters_and_case_do_not_matter() -> None:
    index = TitleIndex(["Deep-learning: a <i>Review</i> (Über alles)", "", "1/2 +?", "ﬁne"], 0.7)
    same = ["deep LEARNING a i review i über alles", "u\u0308ber i i deep learning a review alles", "2 & 1"]
    assert index.matches([*same, "fine", "", "!?"]).tolist() == [True, True, True, True, False, False]


def test_nothing_to_compare() -> None:
    assert not TitleIndex([], 0.7).matches(["some title"]).any()
    assert len(TitleIndex([""], 0.7).matches([])) == 0
