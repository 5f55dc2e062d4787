"""Near-duplicate titles are those that a comparison of all pairs finds."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets import near_duplicates
from datasets.errors import InputError
from datasets.near_duplicates import TitleIndex

# Few words, so that many titles share most of them; the last are outside of most titles of an index.
TITLES = st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=12).map(" ".join), max_size=12)
THRESHOLDS = [0.0, 0.3, 0.5, 0.7, 0.75, 0.9]


def all_pairs(titles: list[str], others: list[str], threshold: str) -> list[list[int]]:
    sets = [[set(re.findall(r"[^\W_]+", title.lower())) for title in part] for part in (titles, others)]
    return [
        [row, other]
        for row, first in enumerate(sets[0])
        for other, second in enumerate(sets[1])
        if first and second and Fraction(len(first & second), len(first | second)) > Fraction(threshold)
    ]


@settings(max_examples=60, deadline=None)
@given(TITLES, TITLES, st.sampled_from(THRESHOLDS), st.sampled_from([1, 7, 1 << 21]))
def test_pairs_are_those_of_comparing_all(
    titles: list[str], others: list[str], threshold: float, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_duplicates, "MOST", most)  # however pairs are divided
        index = TitleIndex(others, threshold)
        expected = all_pairs(titles, others, str(threshold))
        assert index.pairs(titles).tolist() == expected
        assert np.flatnonzero(index.near(titles)).tolist() == sorted({row for row, _ in expected})


@pytest.mark.parametrize("words", [10, 20, 30])
def test_what_equals_the_threshold_is_not_above_it(words: int) -> None:
    names = [f"w{number}" for number in range(words)]
    shared = words * 7 // 10
    index = TitleIndex([" ".join(names)], 0.7)
    some = [" ".join(names[:shared]), " ".join(names[: shared + 1])]
    assert index.near(some).tolist() == [False, True]  # 0.7 itself, and one word more


def test_special_characters_and_case_do_not_matter() -> None:
    index = TitleIndex(["Deep-learning: a <i>Review</i> (Über alles)", "", "1/2 +?", "ﬁne"], 0.7)
    same = [
        "deep LEARNING a i review i über alles",
        "u\u0308ber i i deep learning a review alles",
        "2 & 1",
        "fine",
    ]
    assert index.near([*same, "", "!?"]).tolist() == [True, True, True, True, False, False]


def test_long_words_and_many_titles_are_found_among_others() -> None:
    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(3000)]
    weights = 1 / np.arange(1, 3001)
    drawn = [rng.choice(words, rng.integers(3, 14), p=weights / weights.sum()) for _ in range(1000)]
    titles = [" ".join(one) for one in drawn]
    others = [f"{title} more" for title in titles[:300:3]] + titles[900:950]
    found = TitleIndex(others, 0.7).pairs(titles)
    assert found.tolist() == all_pairs(titles, others, "0.7") and len(found) > 140


@pytest.mark.parametrize("threshold", [1.0, 7, -0.1, "0.7", True, None, float("nan")])
def test_a_threshold_that_is_none_is_refused(threshold: Any) -> None:
    with pytest.raises(InputError, match=r"is no Jaccard index from 0 to below 1, as 0\.7"):
        TitleIndex([], threshold)
