"""The search for near-duplicate texts and titles finds the same pairs as brute force."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets import near_duplicates
from citerec.datasets.columns import Ragged
from citerec.datasets.near_duplicates import (
    Sets,
    TitleIndex,
    counted_words,
    exact_fraction,
    near_pairs,
    shingle_sets,
    word_lengths,
)

COUNTED = np.array([True, True, True, True, True, False])
"""Six token ids, of which the last is punctuation."""
TEXTS = st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=14)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "ROWS", 7)
    monkeypatch.setattr(near_duplicates, "PAIRS", 3)


def plain_shingles(row: list[int]) -> set[tuple[int, ...]]:
    words = [word for word in row if COUNTED[word]]
    return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))} if words else set()


def brute_force(
    rows: list[set[Any]], others: list[set[Any]], threshold: Fraction, strict: bool
) -> dict[tuple[int, int], Fraction]:
    found = {}
    for i, row in enumerate(rows):
        for j, other in enumerate(others):
            if row and other:
                jaccard = Fraction(len(row & other), len(row | other))
                if jaccard > threshold or (jaccard == threshold and not strict):
                    found[i, j] = jaccard
    return found


def self_pairs(sets: Sets, least: float) -> set[tuple[int, int]]:
    found = near_pairs(sets, sets, exact_fraction(least), before=True)
    pairs = [*zip(found.rows.tolist(), found.others.tolist(), strict=True)]
    assert len({*pairs}) == len(pairs)
    return {*pairs}


def sets_of(rows: list[list[int]], *more: list[list[int]]) -> Sets:
    return shingle_sets([Ragged.from_rows(part) for part in (rows, *more)], COUNTED)[0]


@given(rows=TEXTS, hundredths=st.sampled_from([50, 60, 67, 70, 80, 90, 100]))
def test_pairs_of_texts(rows: list[list[int]], hundredths: int) -> None:
    shingles = [plain_shingles(row) for row in rows]
    expected = brute_force(shingles, shingles, Fraction(hundredths, 100), strict=False)
    found = self_pairs(sets_of(rows), hundredths / 100)
    assert found == {(row, other) for row, other in expected if other < row}


@given(rows=TEXTS)
def test_shingles_and_lengths_match_plain_python(rows: list[list[int]]) -> None:
    sets, sequences = shingle_sets([Ragged.from_rows(rows)], COUNTED)
    assert sets.sizes.tolist() == [len(plain_shingles(row)) for row in rows]
    words = [tuple(word for word in row if COUNTED[word]) for row in rows]
    equal = [[own == other for other in words] for own in words]
    assert (sequences[:, None] == sequences[None, :]).tolist() == equal
    assert word_lengths(Ragged.from_rows(rows), COUNTED).tolist() == [len(row) for row in words]


def test_title_and_abstract_are_one_text() -> None:
    parts = sets_of([[0, 1], [], [2]], [[2, 3], [4, 1], []])
    whole = sets_of([[0, 1, 2, 3], [4, 1], [2]])
    assert parts.sizes.tolist() == whole.sizes.tolist()
    assert (parts.matrix != whole.matrix).nnz == 0


def test_word_order_counts_and_punctuation_does_not() -> None:
    sets = sets_of([[0, 1, 2], [5, 0, 5, 1, 2, 5], [2, 1, 0], [5, 5], [0, 1]])
    assert self_pairs(sets, 0.5) == {(1, 0)}
    words = ["graph", "targetcit", "othercit", "(targetcit)", "(", "…", "3.5", "é", "_"]
    assert counted_words(words).tolist() == [True, False, False, False, False, False, True, True, False]


def test_long_texts_in_many_steps(small_steps: None) -> None:
    """Copies with some changed words among unrelated texts."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 3000, 60).tolist() for _ in range(80)]
    for copy in range(40):
        row = list(rows[copy % 20])
        for position in rng.choice(60, copy % 5, replace=False):
            row[position] = int(rng.integers(0, 3000))
        rows.append(row)
    sets, _ = shingle_sets([Ragged.from_rows(rows)], np.ones(3000, np.bool_))
    found = self_pairs(sets, 0.8)
    shingles = [{tuple(row[i : i + 3]) for i in range(58)} for row in rows]
    expected = brute_force(shingles, shingles, Fraction(4, 5), strict=False)
    assert found == {(row, other) for row, other in expected if other < row} and len(found) > 20


def test_the_comparisons_of_one_text_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = sets_of([[0, 1, 2, 3]] * 30)
    assert len(self_pairs(sets, 0.8)) == 30 * 29 // 2
    monkeypatch.setattr(near_duplicates, "MAX_COMPARED", 10)
    pairs = near_pairs(sets, sets, exact_fraction(0.8), before=True)
    per_row = np.bincount(pairs.rows, minlength=30)
    assert per_row.tolist() == [min(row, 10) for row in range(30)]
    assert pairs.cut == 30 - 11  # the first eleven texts have at most ten before them


def test_nothing_to_compare() -> None:
    assert self_pairs(sets_of([]), 0.8) == self_pairs(sets_of([[], [5]]), 0.8) == set()
    assert not TitleIndex([], 0.7).matches(["some title"]).any()
    assert len(TitleIndex([""], 0.7).matches([])) == 0


# Few words, so that many titles share most of their words.
TITLES = st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=12).map(" ".join), max_size=12)


def words_of(titles: list[str]) -> list[set[str]]:
    return [set(re.findall(r"[^\W_]+", title.lower())) for title in titles]


@given(TITLES, TITLES, st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.75, 0.9]), st.booleans())
def test_titles_with_near_duplicates(
    titles: list[str], others: list[str], threshold: float, small: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(near_duplicates, "PAIRS", 1)
            patch.setattr(near_duplicates, "ROWS", 2)
        index = TitleIndex(others, threshold)
        expected = brute_force(words_of(titles), words_of(others), Fraction(str(threshold)), strict=True)
        assert np.flatnonzero(index.matches(titles)).tolist() == sorted({row for row, _ in expected})


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
