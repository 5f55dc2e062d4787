"""Fusing rankings against plain dictionaries."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.base import Ranking, ordered
from retrieval.tuning import NORMALISATIONS, convex, normalised, reciprocal_rank

PAPERS = 9


SEEDS = st.integers(0, 2**32 - 1)


def _drawn(seed: int, parts: int | None = None) -> tuple[list[Ranking], np.ndarray]:
    """Rankings of one to four parts for the same queries, and weights for each query, some of them 0.

    A part finds some papers or none, with equal scores among them.
    """
    rng = np.random.default_rng(seed)
    queries, parts = int(rng.integers(1, 5)), parts or int(rng.integers(1, 5))
    shape = (queries, PAPERS)
    rankings = []
    for _ in range(parts):
        papers = rng.permuted(np.tile(np.arange(PAPERS), (queries, 1)), axis=1)
        drop = rng.random(shape) < rng.choice([0, 0.5, 0.9])
        rankings.append(
            ordered(papers, rng.integers(-4, 5, shape) / 3, int(rng.integers(1, PAPERS + 1)), drop)
        )
    return rankings, rng.choice([0, 0, 0.25, 0.5, 1], (queries, parts))


def _dictionary(ranking: Ranking, query: int) -> dict[int, float]:
    pairs = zip(ranking.papers[query].tolist(), ranking.scores[query].tolist(), strict=True)
    return {paper: score for paper, score in pairs if paper >= 0}


def _textbook(found: Mapping[int, float], how: str) -> dict[int, float]:
    """Normalised scores less that of the last paper, by the textbook's formulas."""
    scores = list(found.values())
    if len(set(scores)) <= 1:
        return dict.fromkeys(found, 1.0)
    least, most, mean = min(scores), max(scores), float(np.mean(scores))
    formula = {
        "minmax": lambda s: (s - least) / (most - least),
        "zscore": lambda s: (s - mean) / float(np.std(scores)),
        "none": lambda s: s,
    }[how]
    return {paper: formula(score) - formula(least) for paper, score in found.items()}


def _check(fused: Ranking, query: int, parts: list[dict[int, float]], weights: list[float], k: int) -> None:
    """A row holds the k papers of the highest weighted sums of the parts' gains."""
    weighted = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight > 0]
    expected: dict[int, float] = {}
    for part, weight in weighted:
        for paper, gain in part.items():
            expected[paper] = expected.get(paper, 0) + weight * gain
    row = _dictionary(fused, query)
    assert len(row) == min(k, len(expected)) and fused.papers.shape[1] == k
    assert (fused.papers[query, len(row) :] == -1).all() and (
        fused.scores[query, len(row) :] == -np.inf
    ).all()
    for paper, score in row.items():
        assert score == pytest.approx(expected[paper], abs=1e-5)
    best = sorted(expected.values(), reverse=True)[:k]
    assert list(row.values()) == pytest.approx(best, abs=1e-5)
    pairs = [(-score, paper) for paper, score in row.items()]
    assert pairs == sorted(pairs)  # equal scores by paper


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, k=st.integers(1, 20), how=st.sampled_from(NORMALISATIONS))
def test_a_convex_combination_is_the_sum_of_normalised_scores(seed: int, k: int, how: str) -> None:
    rankings, weights = _drawn(seed)
    fused = convex(rankings, weights, k, how)
    for query in range(len(weights)):
        parts = [_textbook(_dictionary(ranking, query), how) for ranking in rankings]
        _check(fused, query, parts, weights[query].tolist(), k)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, k=st.integers(1, 20), constant=st.sampled_from([0, 1, 60]))
def test_reciprocal_rank_fusion_is_its_definition(seed: int, k: int, constant: int) -> None:
    rankings, weights = _drawn(seed)
    ones = np.ones((1, len(rankings)))
    for given_weights, fused in (
        (np.repeat(ones, len(weights), axis=0), reciprocal_rank(rankings, k, constant)),
        (weights, reciprocal_rank(rankings, k, constant, weights)),
    ):
        for query in range(len(weights)):
            found = [list(_dictionary(ranking, query)) for ranking in rankings]
            parts = [{p: 1 / (constant + rank) for rank, p in enumerate(papers, 1)} for papers in found]
            _check(fused, query, parts, given_weights[query].tolist(), k)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, how=st.sampled_from(NORMALISATIONS))
def test_the_order_of_the_parts_changes_nothing(seed: int, how: str) -> None:
    rankings, weights = _drawn(seed)
    places = np.random.default_rng(seed).permutation(len(rankings))
    found, again = (
        convex(rankings, weights, 12, how),
        convex([rankings[i] for i in places], weights[:, places], 12, how),
    )
    np.testing.assert_array_equal(found.papers, again.papers)
    np.testing.assert_array_equal(found.scores, again.scores)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, how=st.sampled_from(NORMALISATIONS))
def test_all_weight_on_one_part_gives_its_order(seed: int, how: str) -> None:
    rankings, _ = _drawn(seed, parts=3)
    for part in range(3):
        weights = np.eye(3)[[part]]
        np.testing.assert_array_equal(convex(rankings, weights, PAPERS, how).papers, _widened(rankings[part]))
        ranks = reciprocal_rank(rankings, PAPERS, 60, weights).papers
        np.testing.assert_array_equal(ranks, _widened(rankings[part]))


def _widened(ranking: Ranking) -> np.ndarray:
    return np.pad(ranking.papers, ((0, 0), (0, PAPERS - ranking.k)), constant_values=-1)


@pytest.mark.parametrize("how", NORMALISATIONS)
def test_scores_without_a_difference(how: str) -> None:
    papers = np.array([[4, 7, -1], [3, -1, -1], [-1, -1, -1]], np.int32)
    scores = np.where(papers >= 0, 0.3, -np.inf).astype(np.float32)
    np.testing.assert_array_equal(normalised(Ranking(papers, scores), how), [[1, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_an_unknown_unit() -> None:
    with pytest.raises(ValueError, match="choose one of zscore"):
        normalised(Ranking(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32)), "softmax")
