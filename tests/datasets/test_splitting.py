"""Splitting of citing papers by ranges of years, at random and by age."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.records import SPLITS
from citerec.datasets.splitting import RandomSplitting, YearShares, YearSplitting


def test_ranges_of_years_include_their_ends() -> None:
    splitting = YearSplitting(train=[None, 2014], val=[2016, 2016], test=[2017, 2018])
    splits = [splitting("p", year) for year in (0, 1900, 2014, 2015, 2016, 2017, 2018, 2019)]
    assert splits == [None, "train", "train", None, "val", "test", "test", None]
    only_test = YearSplitting(None, None, [2017, None])
    assert [only_test("p", year) for year in (0, 2016, 2017, 9999)] == [None, None, "test", "test"]


def test_ranges_may_be_of_months() -> None:
    """The arXiv set of Gu et al. 2022, section 3. A paper of which only the year is known may be outside."""
    splitting = YearSplitting([None, 2019], ["2020-01", "2020-02"], ["2020-03", "2020-04"])
    dates = [(2018, 0), (2019, 12), (2020, 1), (2020, 2), (2020, 3), (2020, 4), (2020, 5), (2020, 0), (0, 0)]
    splits = [splitting("p", *date) for date in dates]
    assert splits == ["train", "train", "val", "val", "test", "test", None, None, None]
    mixed = YearSplitting(None, ["2019-07", 2019], [2020, "2020-06"])
    assert [mixed("p", *date) for date in [(2019, 6), (2019, 7), (2020, 6), (2020, 7)]] == [
        None,
        "val",
        "test",
        None,
    ]


def test_random_splits_have_the_given_shares_and_are_reproducible() -> None:
    splitting = RandomSplitting(0.7, 0.1, 0.1, seed=3)
    splits = [splitting(f"p{number}", 0) for number in range(20_000)]
    for split, share in {"train": 0.7, "val": 0.1, "test": 0.1, None: 0.1}.items():
        assert Counter(splits)[split] / 20_000 == pytest.approx(share, abs=0.01)
    again = RandomSplitting(0.7, 0.1, 0.1, seed=3)
    assert [again(f"p{number}", 2000) for number in range(50)] == splits[:50]


@given(
    st.lists(st.integers(0, 6), max_size=40),
    st.sampled_from([(0.8, 0.1), (0.5, 0.5), (1.0, 0.0), (0.0, 0.3)]),
)
def test_shares_match_sorting_by_year(years: list[int], shares: tuple[float, float]) -> None:
    train, val = shares
    test = round(1 - train - val, 6)
    papers = [row for row in range(len(years)) if row % 5]
    result = YearShares(train, val, test, None, 0).split(
        np.array(years, np.int32), np.array(papers, np.int64)
    )
    order = sorted((row for row in papers if years[row]), key=lambda row: years[row])
    first = int(len(order) * train)
    last = first + int((len(order) - first) * (val / (val + test) if val + test else 0))
    expected = (sorted(order[:first]), sorted(order[first:last]), sorted(order[last:]))
    assert {split: rows.tolist() for split, rows in result.items()} == dict(
        zip(SPLITS, expected, strict=True)
    )


def test_all_splits_but_train_are_sampled() -> None:
    rows = {"train": np.arange(50), "val": np.arange(50, 80), "test": np.arange(80, 85)}
    drawn, again, other = (YearShares(0.8, 0.1, 0.1, 10, seed).sample(rows) for seed in (3, 3, 4))
    assert len(drawn["train"]) == 50 and len(drawn["test"]) == 5
    val = drawn["val"].tolist()
    assert val == sorted(set(val)) and len(val) == 10 and set(val) <= set(range(50, 80))
    assert val == again["val"].tolist() != other["val"].tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: YearSplitting([None, 2014], [2014, 2015], [2016, None]), "years of train and val overlap"),
        (
            lambda: YearSplitting([None, 2014], [2016, 2015], None),
            "splitting: the years of val: 2016 is after 2015",
        ),
        (lambda: YearSplitting([None, 2014], [2015], None), "splitting: the years of val must be two"),
        (lambda: YearSplitting(None, None, ["2020-13", None]), "the years of test must be two, such as"),
        (lambda: YearSplitting(None, [2020, "2019-12"], None), "the years of val: 2020 is after 2019-12"),
        (lambda: YearSplitting(2014, None, None), "splitting: the years of train must be two"),  # type: ignore[arg-type]
        (lambda: RandomSplitting(0.8, 0.2, 0.1, 0), r"add up to 1\.1"),
        (lambda: RandomSplitting(0.8, -0.2, 0.1, 0), r"splitting: the share of val is -0\.2, not"),
        (lambda: YearShares(0.8, 0.1, 0.2, None, 0), r"shares train, val and test add up to 1\.1, not 1"),
        (lambda: YearShares(1.2, -0.1, -0.1, None, 0), r"splitting: the share of train is 1\.2, not"),
        (lambda: YearShares(0.8, 0.1, 0.1, 0, 0), r"splitting\.queries=0: must be a whole number"),
        (lambda: YearShares(0.6, 0.2, 0.2, None, 0)("p", 2001), r"year_shares works with data=papers"),
    ],
)
def test_invalid_splittings(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
