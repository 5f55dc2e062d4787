"""Which papers are drawn as negatives, and how often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from datasets.errors import InputError
from rerank.settings import NegativesSettings

RANKED = np.array([40, 7, 3, 12, 9, 30, 1, 2, -1, -1], np.int32)
WEIGHTING = st.sampled_from(["uniform", "reciprocal"])


def draws(config: NegativesSettings, barred: list[int], times: int) -> NDArray[np.int32]:
    """[times, count] draws for different queries."""
    return np.stack([config.draw(RANKED, np.array(barred), 0, 0, query) for query in range(times)])


@given(
    st.lists(st.integers(0, 40), max_size=9),
    st.integers(1, 12),
    st.integers(0, 9),
    WEIGHTING,
    st.integers(0, 5),
)
def test_drawn_are_different_papers_of_the_ranks_and_none_that_is_barred(
    barred: list[int], count: int, skip: int, weighting: str, query: int
) -> None:
    config = NegativesSettings(count, len(RANKED), skip, weighting)
    drawn = config.draw(RANKED, np.array(barred, np.int64), 3, 1, query).tolist()
    may = set(RANKED[skip:].tolist()) - set(barred) - {-1}
    assert len(set(drawn)) == len(drawn) == min(count, len(may))
    assert set(drawn) <= may
    assert int(config.left(RANKED, np.array(barred, np.int64)).sum()) == len(may)


def test_a_draw_depends_on_seed_epoch_and_query_alone() -> None:
    config, barred = NegativesSettings(3, 10), np.array([7])
    once = config.draw(RANKED, barred, 0, 0, 0)
    config.draw(RANKED, barred, 0, 0, 5)
    np.testing.assert_array_equal(once, config.draw(RANKED, barred, 0, 0, 0))
    others = [config.draw(RANKED, barred, *key).tolist() for key in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
    assert once.tolist() not in others


def test_uniform_draws_are_uniform() -> None:
    drawn = draws(NegativesSettings(3, 10), [7, 99], 4000)
    papers, counts = np.unique(drawn, return_counts=True)
    assert papers.tolist() == [1, 2, 3, 9, 12, 30, 40]
    np.testing.assert_allclose(counts / 4000, 3 / 7, atol=0.03)


def test_reciprocal_draws_follow_the_ranks() -> None:
    drawn = draws(NegativesSettings(1, 10, weighting="reciprocal"), [7], 6000)[:, 0]
    ranks = {40: 1, 3: 3, 12: 4, 9: 5, 30: 6, 1: 7, 2: 8}  # the barred paper keeps its rank
    total = sum(1 / rank for rank in ranks.values())
    for paper, rank in ranks.items():
        assert np.mean(drawn == paper) == pytest.approx(1 / rank / total, abs=0.02)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": 0}, "model.negatives.count=0: must be at least 1"),
        ({"depth": 0}, "model.negatives.depth=0: must be at least 1"),
        ({"depth": 50, "skip": 50}, "model.negatives.skip=50: nothing is left of depth=50"),
        ({"weighting": "hard"}, "model.negatives.weighting=hard: choose uniform or reciprocal"),
    ],
)
def test_options_that_do_not_work_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NegativesSettings(**given)
