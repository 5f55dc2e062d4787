"""Fusing the reranker with the prefetcher, against dictionaries and at its ends."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from datasets.columns import Ragged
from rerank.fusing import fused_scores, tuned_weight
from rerank.scores import reranked
from retrieval.base import Ranking

PAPERS = np.array([[5, 3, 9, 1], [2, 8, -1, -1], [-1, -1, -1, -1]], np.int32)
FOUND = np.array([[4, 3, 2, 1], [7, 6, -np.inf, -np.inf], [-np.inf] * 4], np.float32)
SCORES = np.array([[0.1, 0.9, 0.2, 0.9], [0.3, 0.4, -np.inf, -np.inf], [-np.inf] * 4], np.float32)
CANDIDATES = Ranking(PAPERS, FOUND)


def order(scores: NDArray[np.floating]) -> list[list[int]]:
    return [row[row >= 0].tolist() for row in reranked(CANDIDATES, scores).papers]


@pytest.mark.parametrize("method", ["none", "score", "rank"])
def test_a_weight_of_one_is_the_reranker_alone(method: str) -> None:
    scores = fused_scores(CANDIDATES, SCORES, method, 1.0)
    assert (scores == SCORES).all() and order(scores) == [[3, 1, 9, 5], [8, 2], []]


@pytest.mark.parametrize("method", ["score", "rank"])
def test_a_weight_of_zero_is_the_prefetcher_alone(method: str) -> None:
    assert order(fused_scores(CANDIDATES, SCORES, method, 0.0)) == [[5, 3, 9, 1], [2, 8], []]


def test_scores_in_between_are_sums_of_z_scores() -> None:
    found = fused_scores(CANDIDATES, SCORES, "score", 0.3)
    first = (FOUND[0] - FOUND[0].min()) / FOUND[0].std()
    second = (SCORES[0] - SCORES[0].min()) / SCORES[0].std()
    assert np.allclose(found[0], 0.7 * first + 0.3 * second, atol=1e-5)
    assert np.isneginf(found[1, 2:]).all() and np.isneginf(found[2]).all()


def test_ranks_in_between_are_sums_of_reciprocals() -> None:
    found = fused_scores(CANDIDATES, SCORES, "rank", 0.25)
    # By score the papers are 3, 1, 9, 5: 3 was prefetched before 1.
    ranks = {5: (1, 4), 3: (2, 1), 9: (3, 3), 1: (4, 2)}
    expected = [0.75 / (60 + ranks[p][0]) + 0.25 / (60 + ranks[p][1]) for p in PAPERS[0].tolist()]
    assert np.allclose(found[0], expected, atol=1e-7)


@pytest.mark.parametrize("method", ["score", "rank"])
def test_the_weight_is_the_best_of_all_on_the_validation_queries(method: str) -> None:
    rng = np.random.default_rng(1)
    queries, k = 60, 12
    papers = np.stack([rng.permutation(40)[:k] for _ in range(queries)]).astype(np.int32)
    target = rng.integers(k, size=queries)
    relevant = np.arange(k) == target[:, None]
    noise = rng.normal(size=(2, queries, k))
    found = np.sort(noise[0] + relevant, axis=1)[:, ::-1]
    place = np.argsort(-(noise[0] + relevant), axis=1, kind="stable")
    candidates = Ranking(np.take_along_axis(papers, place, 1), found.astype(np.float32))
    scores = np.take_along_axis((noise[1] + 1.5 * relevant).astype(np.float32), place, 1)
    wanted = Ragged.from_rows([[row[at]] for row, at in zip(papers, target, strict=True)])

    def recall(weight: float) -> float:
        final = reranked(candidates, fused_scores(candidates, scores, method, weight))
        return float((final.papers[:, :3] == papers[np.arange(queries), target][:, None]).any(1).mean())

    weight = tuned_weight(candidates, scores, wanted, method, [3])
    values = {step / 20: recall(step / 20) for step in range(21)}
    assert recall(weight) == max(values.values()) > max(values[0], values[1]) and weight in values


def test_a_reranker_that_is_always_right_gets_all_the_weight_it_needs() -> None:
    wanted = Ragged.from_rows([[1], [8], [7]])
    assert tuned_weight(CANDIDATES, SCORES, wanted, "score", [1]) > 0.5
    assert tuned_weight(CANDIDATES, -SCORES, wanted, "score", [4]) == 0.5  # all are equal: the most even
