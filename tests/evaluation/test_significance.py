"""Intervals and tests compared with scipy, exhaustive enumeration and known distributions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from citerec.evaluation.significance import (
    Floats,
    format_p,
    holm,
    intervals,
    paired_difference,
    randomisation_test,
)


def exact_p(sums: Floats) -> float:
    """Share of all sign assignments whose sum is at least as far from zero."""
    totals = [abs(float(np.dot(signs, sums))) for signs in itertools.product((-1, 1), repeat=len(sums))]
    return float(np.mean([total >= abs(sums.sum()) - 1e-9 for total in totals]))


@settings(max_examples=25)
@given(
    st.lists(
        st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=4),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 5),
)
def test_p_is_that_of_all_sign_flips(differences: list[list[float]], seed: int) -> None:
    papers = np.repeat(np.arange(len(differences)) * 3, [len(own) for own in differences])
    exact = exact_p(np.array([sum(own) for own in differences]))
    result = randomisation_test(np.concatenate(differences), papers, seed=seed)
    assert abs(result - exact) < 4.5 * math.sqrt(0.25 / 10_000) + 1e-4


def test_p_is_never_zero_and_is_one_without_a_difference() -> None:
    papers = np.arange(50)
    assert randomisation_test(np.ones(50), papers, draws=999) == 1 / 1000
    assert randomisation_test(np.zeros(50), papers, draws=99) == 1.0


def test_ten_contexts_of_a_paper_count_as_one_observation() -> None:
    rng = np.random.default_rng(0)
    of_paper = rng.normal(0.5, 1.0, 8)
    apart = randomisation_test(np.repeat(of_paper, 10), np.arange(80))
    together = randomisation_test(np.repeat(of_paper, 10), np.repeat(np.arange(8), 10))
    assert together == randomisation_test(of_paper, np.arange(8)) > 10 * apart


def test_intervals_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    papers = rng.integers(40, size=300)
    values = np.clip(rng.random((300, 2)) + 0.3 * rng.random(40)[papers][:, None], 0, 1)
    values[rng.random(300) < 0.4, 1] = np.nan  # the second column covers only some queries
    low, high = intervals(values, papers, draws=20_000)
    for column in range(2):
        own = ~np.isnan(values[:, column])
        sums = np.bincount(papers[own], values[own, column], 40)
        counts = np.bincount(papers[own], minlength=40)
        expected = stats.bootstrap(
            (sums, counts),
            lambda s, c, axis: s.sum(axis) / c.sum(axis),
            n_resamples=20_000,
            paired=True,
            vectorized=True,
            method="percentile",
            rng=np.random.default_rng(5),
        )
        width = expected.confidence_interval.high - expected.confidence_interval.low
        assert abs(low[column] - expected.confidence_interval.low) < 0.04 * width
        assert abs(high[column] - expected.confidence_interval.high) < 0.04 * width


def test_one_citing_paper_gives_no_interval() -> None:
    values = np.array([[0.0, np.nan], [1.0, 0.5], [1.0, 0.5]])
    low, high = intervals(values, np.array([0, 1, 1]))
    assert np.isnan([low[1], high[1]]).all() and low[0] == 0.0 and high[0] == 1.0


def test_paired_differences() -> None:
    rng = np.random.default_rng(6)
    a, b, papers = rng.random(80), rng.random(80), rng.integers(10, size=80)
    result = paired_difference(a, b, papers, draws=2000)
    assert (
        result.difference == pytest.approx(result.a - result.b)
        and result.low < result.difference < result.high
    )
    other = paired_difference(b, a, papers, draws=2000)
    assert (other.low, other.high) == pytest.approx((-result.high, -result.low)) and other.p == result.p
    assert (result.queries, result.papers) == (80, 10)
    surely = paired_difference(a + 0.5, a, papers, draws=2000)
    assert surely.low == pytest.approx(0.5) and surely.p < 0.01


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_its_steps_reject(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for level in (0.01, 0.05, 0.5):
        rejected = set[int]()  # step down: the k-th smallest against level / (tests - k)
        order = sorted(range(len(p_values)), key=p_values.__getitem__)
        for rank, place in enumerate(order):
            if p_values[place] * (len(order) - rank) > level:
                break
            rejected.add(place)
        assert {place for place, p in enumerate(adjusted) if p <= level} == rejected


def test_the_smallest_p_is_an_upper_bound() -> None:
    surely = randomisation_test(np.ones(50), np.arange(50))
    assert format_p(surely) == "≤ 0.0001" and format_p(holm([surely] * 12)[0], tests=12) == "≤ 0.0012"
    assert format_p(2 * surely) == "0.0002"
