"""Confidence: probabilities of lists, their order, their calibration on made lists, and the sample for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.columns import offsets_of
from citerec.rerank.ranker.confidence import (
    AGAIN,
    BESIDE,
    BESIDE_WORDS,
    BEST,
    KNOWN,
    KNOWN_SCALE,
    NONE,
    OTHERS,
    SCALE,
    Confidence,
    fit_confidence,
    fit_curve,
)
from citerec.rerank.ranker.linear import TrainingLists

PARAMETERS = {SCALE: 0.7, KNOWN: 1.0, OTHERS: 0.3, NONE: 1.0, "size": 0.4} | dict.fromkeys(BEST, -0.5)


def made(
    lengths: list[int], cited: np.ndarray | None = None, known: np.ndarray | None = None
) -> TrainingLists:
    """Lists of these lengths, with the column `known` only."""
    n, queries = sum(lengths), len(lengths)
    values = np.zeros((n, 1), np.float16) if known is None else known[:, None].astype(np.float16)
    cited = np.zeros(n, np.bool_) if cited is None else cited
    papers, offsets = np.arange(n, dtype=np.int32), offsets_of(np.array(lengths, np.int64))
    of_queries = np.arange(queries, dtype=np.int32), np.ones(queries, np.int64), np.full(queries, "corpus")
    return TrainingLists(["known"], values, offsets, papers, cited, *of_queries)


@given(st.lists(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=8), min_size=1, max_size=5))
def test_probabilities_of_a_list_sum_to_at_most_one_in_the_order_of_scores(lists: list[list[float]]) -> None:
    scores = np.array([score for one in lists for score in one], np.float32)
    of = made([len(one) for one in lists])
    found = np.exp(Confidence(PARAMETERS).log_probabilities(of, scores).astype(np.float64))
    for start, end in zip(of.offsets[:-1], of.offsets[1:], strict=True):
        assert 0 <= found[start:end].sum() <= 1 + 1e-5
        order = np.argsort(scores[start:end], kind="stable")
        assert (np.diff(found[start:end][order]) >= -1e-7).all()


def test_without_parameters_scores_stay() -> None:
    scores = np.array([1, -2, 3], np.float32)
    assert Confidence().log_probabilities(made([3]), scores) is scores


def test_papers_cited_elsewhere_are_more_probable_the_fewer_they_are() -> None:
    known = np.array([1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0])
    found = Confidence(PARAMETERS).log_probabilities(made([6, 6], known=known), np.zeros(12, np.float32))
    few, many = found[0] - found[1], found[6] - found[10]
    assert few > many > 0
    assert np.ptp(found[1:6]) == np.ptp(found[6:10]) == 0


def test_papers_of_similar_passages_are_more_probable_than_others_cited_elsewhere() -> None:
    known = np.array([1, 1, 1, 0, 0, 1, 0, 0])
    lists = made([5, 3], known=known)
    words = np.array([0.5, 0.1, np.nan, np.nan, np.nan, 0.4, np.nan, np.nan])
    values = np.stack([known, words], axis=1).astype(np.float16)
    lists = replace(lists, columns=["known", "elsewhere_words"], values=values)
    plain, scores = Confidence(PARAMETERS), np.zeros(8, np.float32)
    read = Confidence({**PARAMETERS, "elsewhere_words": 2.0})
    before, after = (of.log_probabilities(lists, scores) for of in (plain, read))
    # Less their mean over the list, so that a single passage, and an unknown one, tell nothing; it tells more
    # the more papers are known.
    assert after[0] - after[2] == pytest.approx(2 * 0.2 * np.log(3), abs=1e-3)
    assert after[1] - after[2] == pytest.approx(-2 * 0.2 * np.log(3), abs=1e-3)
    assert np.ptp(after[3:5]) == 0
    assert after[5:].tolist() == before[5:].tolist()


def test_scores_of_papers_cited_elsewhere_have_a_scale_of_their_own() -> None:
    known = np.array([1, 1, 0, 0, 0, 0])
    lists, scores = made([4, 2], known=known), np.array([3, 1] * 3, np.float32)
    found = Confidence({**PARAMETERS, KNOWN_SCALE: -0.5}).log_probabilities(lists, scores)
    assert found[0] - found[1] == pytest.approx(2 * (PARAMETERS[SCALE] - 0.5), abs=1e-3)
    assert found[2] - found[3] == pytest.approx(2 * PARAMETERS[SCALE], abs=1e-3)


def test_papers_like_those_cited_beside_are_more_probable() -> None:
    known = np.array([1, 1, 0, 0, 0, 0])
    cosine, words = (
        np.array([0.4, np.nan, 0.5, 0.3, np.nan, np.nan]),
        np.array([0, 0.8, 0, 0, np.nan, np.nan]),
    )
    values = np.stack([known, cosine, words], axis=1).astype(np.float16)
    lists = replace(made([4, 2], known=known), columns=["known", BESIDE[0], BESIDE_WORDS], values=values)
    of = {**PARAMETERS, BESIDE[0]: 3.0, AGAIN + BESIDE[0]: 1.0, BESIDE_WORDS: 2.0}
    plain, found = (
        Confidence(one).log_probabilities(lists, np.zeros(6, np.float32)) for one in (PARAMETERS, of)
    )
    added = found - plain
    assert added[2] - added[3] == pytest.approx(3 * 0.2, abs=1e-3)
    assert added[1] - added[0] == pytest.approx(2 * 0.8, abs=1e-3), "without a cosine, it has the mean one"
    assert added[0] - added[3] == pytest.approx(3 * 0.1, abs=1e-3)
    assert found[4:].tolist() == plain[4:].tolist()


def test_probabilities_are_those_of_the_lists_that_it_is_fitted_to() -> None:
    rng, size, count = np.random.default_rng(0), 12, 4000
    scores = rng.normal(0, 2, (count, size))
    weights = np.exp(np.concatenate([0.6 * scores, np.full((count, 1), 2.0)], axis=1))
    chosen = (rng.random((count, 1)) > np.cumsum(weights / weights.sum(1, keepdims=True), axis=1)).sum(1)
    cited = chosen[:, None] == np.arange(size)
    lists = made([size] * count, cited.ravel())
    model = fit_confidence(lists, scores.ravel().astype(np.float32))
    assert model.parameters[SCALE] == pytest.approx(0.6, abs=0.05)
    found = np.exp(model.log_probabilities(lists, scores.ravel().astype(np.float32))).reshape(count, size)
    best = found.argmax(1)
    sure, right = found[np.arange(count), best], cited[np.arange(count), best]
    for low, high in ((0, 0.3), (0.3, 0.5), (0.5, 1)):
        of = (sure >= low) & (sure < high)
        assert sure[of].mean() == pytest.approx(right[of].mean(), abs=0.05)


def test_the_curve_maps_to_how_often_first_papers_are_cited_and_keeps_the_order() -> None:
    rng, count = np.random.default_rng(0), 3000
    said = rng.uniform(0.1, 0.9, 2 * count)
    cited = rng.random(2 * count) < np.sqrt(said)  # a passage may cite several papers
    plain = Confidence({SCALE: 1.0, NONE: 0.0})
    curved = fit_curve(plain, made([2] * count, cited), np.log(said).astype(np.float32))
    scores = np.array([-2, 0, 3, 1], np.float32)
    before, after = (np.exp(model.log_probabilities(made([4]), scores)) for model in (plain, curved))
    assert (np.argsort(after) == np.argsort(before)).all()
    assert after.max() == pytest.approx(np.sqrt(before.max()), abs=0.05)
