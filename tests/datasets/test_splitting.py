"""Splits of citing papers: by ranges of years, and by shares."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from datasets.errors import InputError
from datasets.splitting import RandomSplitting, YearSplitting


def test_ranges_of_years_include_their_ends() -> None:
    splitting = YearSplitting(train=[None, 2014], val=[2016, 2016], test=[2017, 2018])
    splits = [splitting("p", year) for year in (0, 1900, 2014, 2015, 2016, 2017, 2018, 2019)]
    assert splits == [None, "train", "train", None, "val", "test", "test", None]
    only_test = YearSplitting(None, None, [2017, None])
    assert [only_test("p", year) for year in (0, 2016, 2017, 9999)] == [None, None, "test", "test"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: YearSplitting([None, 2014], [2014, 2015], [2016, None]),
            "the years of train and val overlap",
        ),
        (lambda: YearSplitting([None, 2014], [2016, 2015], None), "splitting.val: 2016 is after 2015"),
        (lambda: YearSplitting([None, 2014], [2015], None), "splitting.val: must be two years"),
        (lambda: YearSplitting(2014, None, None), "splitting.train: must be two years"),  # type: ignore[arg-type]
        (lambda: RandomSplitting(0.8, 0.2, 0.1, 0), "add up to 1.1"),
        (lambda: RandomSplitting(0.8, -0.2, 0.1, 0), "splitting.val: -0.2 is no share"),
    ],
)
def test_splits_that_make_no_sense(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_random_splits_keep_their_shares_and_their_papers() -> None:
    splitting = RandomSplitting(0.7, 0.1, 0.1, seed=3)
    splits = Counter(splitting(f"p{number}", 0) for number in range(20_000))
    for split, share in {"train": 0.7, "val": 0.1, "test": 0.1, None: 0.1}.items():
        assert splits[split] / 20_000 == pytest.approx(share, abs=0.01)
    assert [splitting(f"p{number}", 2000) for number in range(50)] == [
        RandomSplitting(0.7, 0.1, 0.1, seed=3)(f"p{number}", 0) for number in range(50)
    ]
