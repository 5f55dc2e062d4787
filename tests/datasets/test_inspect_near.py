"""Near-duplicates are exactly the pairs that comparing all with all finds; groups of equals are right."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets import near_duplicates as near
from datasets.columns import Ragged
from datasets.inspection.duplicates import EqualGroups
from datasets.near_duplicates import NearPairs, ShingleSets, counted_words, shingle_sets, word_lengths

COUNTED = np.array([True, True, True, True, True, False])
"""Of six words the last one is a sign."""

texts = st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=14)


def sets_of(rows: list[list[int]], *more: list[list[int]]) -> ShingleSets:
    return shingle_sets([Ragged.from_rows(part) for part in (rows, *more)], COUNTED, lambda done: None)


def plain_shingles(row: list[int]) -> set[tuple[int, ...]]:
    words = [word for word in row if COUNTED[word]]
    return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))} if words else set()


def all_with_all(rows: list[list[int]], least: Fraction) -> dict[tuple[int, int], Fraction]:
    found = {}
    sets = [plain_shingles(row) for row in rows]
    for row, own in enumerate(sets):
        for other, others in enumerate(sets[:row]):
            if own and others:
                jaccard = Fraction(len(own & others), len(own | others))
                if jaccard >= least:
                    found[row, other] = jaccard
    return found


def near_pairs(sets: ShingleSets, least: float, most: int = near.MOST) -> dict[tuple[int, int], float]:
    found = {}
    for part in NearPairs(sets, least, lambda done: None, most):
        for row, other, jaccard in zip(part.rows, part.others, part.jaccard, strict=True):
            assert (int(row), int(other)) not in found
            found[int(row), int(other)] = float(jaccard)
    return found


@given(rows=texts, hundredths=st.sampled_from([50, 60, 67, 70, 80, 90, 100]))
@settings(max_examples=60, deadline=None)
def test_the_pairs_are_those_of_comparing_all_with_all(rows: list[list[int]], hundredths: int) -> None:
    sets = sets_of(rows)
    expected = all_with_all(rows, Fraction(hundredths, 100))
    found = near_pairs(sets, hundredths / 100)
    assert found.keys() == expected.keys()
    for pair, jaccard in expected.items():
        assert found[pair] == pytest.approx(float(jaccard))
        assert sets.jaccard(*pair) == pytest.approx(float(jaccard))


@given(rows=texts)
@settings(max_examples=60, deadline=None)
def test_shingles_are_those_of_the_words(rows: list[list[int]]) -> None:
    sets = sets_of(rows)
    assert sets.sizes.tolist() == [len(plain_shingles(row)) for row in rows]
    words = [tuple(word for word in row if COUNTED[word]) for row in rows]
    equal = [[own == other for other in words] for own in words]
    assert (sets.sequences[:, None] == sets.sequences[None, :]).tolist() == equal
    tokens = Ragged.from_rows(rows)
    assert word_lengths(tokens, COUNTED).tolist() == [len(row) for row in words]


def test_two_parts_are_one_text() -> None:
    parts = sets_of([[0, 1], [], [2]], [[2, 3], [4, 1], []])
    whole = sets_of([[0, 1, 2, 3], [4, 1], [2]])
    assert parts.values.tolist() == whole.values.tolist()
    assert parts.offsets.tolist() == whole.offsets.tolist()
    assert parts.sequences.tolist() == whole.sequences.tolist()


def test_order_counts_and_signs_do_not() -> None:
    sets = sets_of([[0, 1, 2], [5, 0, 5, 1, 2, 5], [2, 1, 0], [5, 5], [0, 1]])
    assert near_pairs(sets, 0.5) == {(1, 0): 1.0}


def test_long_texts_in_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies with some words changed, between texts that have nothing to do with them."""
    monkeypatch.setattr(near, "ROWS", 7)
    monkeypatch.setattr(near, "PAIRS", 3)
    rng = np.random.default_rng(0)
    words = 3000
    rows = [rng.integers(0, words, 60).tolist() for _ in range(80)]
    for copy in range(40):
        row = list(rows[copy % 20])
        for place in rng.choice(60, copy % 5, replace=False):
            row[place] = int(rng.integers(0, words))
        rows.append(row)
    sets = shingle_sets([Ragged.from_rows(rows)], np.ones(words, np.bool_), lambda done: None)
    done: list[int] = []
    pairs = NearPairs(sets, 0.8, done.append)
    found = {(int(r), int(o)) for part in pairs for r, o in zip(part.rows, part.others, strict=True)}
    expected = {
        (row, other) for row in range(len(rows)) for other in range(row) if sets.jaccard(row, other) >= 0.8
    }
    assert found == expected and len(found) > 20
    assert sum(done) == len(rows) and pairs.cut == 0


def test_many_texts_of_the_same_words_are_compared_with_so_many_at_most() -> None:
    rows = [[0, 1, 2, 3]] * 30
    sets = sets_of(rows)
    assert len(near_pairs(sets, 0.8)) == 30 * 29 // 2
    pairs = NearPairs(sets, 0.8, lambda done: None, most=10)
    per_row = np.bincount(np.concatenate([part.rows for part in pairs]), minlength=30)
    assert per_row.tolist() == [min(row, 10) for row in range(30)]
    assert pairs.cut == 30 - 11  # the eleventh has ten before it, all of them compared


def test_nothing_to_compare() -> None:
    assert near_pairs(sets_of([]), 0.8) == {}
    assert near_pairs(sets_of([[], [5]]), 0.8) == {}


def test_marks_and_signs_are_no_words() -> None:
    words = ["graph", "targetcit", "othercit", "(targetcit)", "(", "…", "3.5", "é", "_"]
    assert counted_words(words).tolist() == [True, False, False, False, False, False, True, True, False]


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans(), st.integers(0, 2)), max_size=12)
)
@settings(max_examples=60, deadline=None)
def test_groups_of_equals(rows: list[tuple[int, bool, bool, int]]) -> None:
    keys = np.array([key for key, *_ in rows], np.uint64)
    valid = np.array([valid for _, valid, *_ in rows], np.bool_)
    marked = np.array([marked for *_, marked, _ in rows], np.bool_)
    values = np.array([value for *_, value in rows], np.uint64)
    groups = EqualGroups(keys, valid)
    partners, others, differing = groups.partners(), groups.others(marked), groups.differing(values)
    for row in range(len(rows)):
        same = [
            other
            for other in range(len(rows))
            if other != row and valid[row] and valid[other] and keys[row] == keys[other]
        ]
        assert partners[row] in same if same else partners[row] == -1
        assert others[row] == any(marked[other] for other in same)
        different = [other for other in same if values[other] != values[row]]
        assert differing[row] in different if different else differing[row] == -1
