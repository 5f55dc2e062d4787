"""The search for near-duplicate titles finds the same as brute force."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.citations.queries import TitleIndex

# Few words, so that many titles share most of their words.
TITLES = st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=12).map(" ".join), max_size=12)


def brute_force(titles: list[str], others: list[str], threshold: Fraction) -> list[int]:
    rows, index = (
        [set(re.findall(r"[^\W_]+", title.lower())) for title in part] for part in (titles, others)
    )

    def alike(row: set[str], other: set[str]) -> bool:
        return bool(row and other) and Fraction(len(row & other), len(row | other)) > threshold

    return [number for number, row in enumerate(rows) if any(alike(row, other) for other in index)]


def near(titles: list[str], others: list[str], threshold: float = 0.7) -> list[int]:
    index = TitleIndex(others, threshold)
    return [number for number, title in enumerate(titles) if index.has_near(title)]


@given(TITLES, TITLES, st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.75, 0.9]))
def test_titles_with_near_duplicates(titles: list[str], others: list[str], threshold: float) -> None:
    assert near(titles, others, threshold) == brute_force(titles, others, Fraction(str(threshold)))


@pytest.mark.parametrize("words", [10, 20, 30])
def test_titles_at_the_threshold_are_not_above_it(words: int) -> None:
    names = [f"w{number}" for number in range(words)]
    shared = words * 7 // 10
    assert near([" ".join(names[:shared]), " ".join(names[: shared + 1])], [" ".join(names)]) == [1]


def test_special_characters_and_case_do_not_matter() -> None:
    index = ["Deep-learning: a <i>Review</i> (Über alles)", "", "1/2 +?", "ﬁne"]
    same = ["deep LEARNING a i review i über alles", "u\u0308ber i i deep learning a review alles", "2 & 1"]
    assert near([*same, "fine", "", "!?"], index) == [0, 1, 2, 3]
