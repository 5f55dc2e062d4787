"""Tuning against rankings that are fused one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.columns import Ragged
from datasets.corpus import Corpus
from datasets.errors import InputError
from retrieval.base import ordered
from retrieval.tuning import best_weights, convex, normalised, recall_cutoff, recalls, sampled, simplex

PAPERS = 12


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), parts=st.integers(1, 3))
def test_recalls_are_those_of_the_fused_rankings(seed: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (5, PAPERS)
    rankings = [
        ordered(
            rng.permuted(np.tile(np.arange(PAPERS), (5, 1)), axis=1),
            rng.integers(0, 4, shape) / 2,
            int(rng.integers(1, PAPERS)),
            rng.random(shape) < 0.5,
        )
        for _ in range(parts)
    ]
    wanted = Ragged.from_rows([rng.choice(PAPERS, rng.integers(1, 4), replace=False) for _ in range(5)])
    grid, cutoffs = rng.permutation(simplex(parts))[:6], (1, 4)
    found = recalls(rankings, [normalised(ranking) for ranking in rankings], wanted, grid, cutoffs)
    assert found.shape == (len(grid), 5)
    for weights, values in zip(grid, found, strict=True):
        fused = convex(rankings, weights[None], PAPERS).papers
        for papers, cited, value in zip(fused, wanted, values, strict=True):
            assert value == pytest.approx(np.mean([np.isin(cited, papers[:k]).mean() for k in cutoffs]))


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5])
def test_the_grid_holds_every_mixture_once(parts: int) -> None:
    grid = simplex(parts)
    assert np.allclose(grid.sum(axis=1), 1) and (grid >= 0).all() and grid.shape[1] == parts
    assert len(np.unique(grid, axis=0)) == len(grid) <= 250
    for corner in np.eye(parts):  # each part alone
        assert (grid == corner).all(axis=1).any()
    steps = round(1 / grid[grid > 0].min())
    assert len(grid) == sum((grid[:, 0] * steps).round() == i for i in range(steps + 1)).sum()


def test_the_best_weights_and_of_equals_the_most_even() -> None:
    grid = simplex(2)
    values = np.zeros((len(grid), 3))
    values[[2, 9, 12]] = [0.5, 0.5, 1]
    np.testing.assert_array_equal(best_weights(values, grid), grid[9])
    values[2, 0] = 0.6
    np.testing.assert_array_equal(best_weights(values, grid), grid[2])
    np.testing.assert_array_equal(best_weights(np.zeros_like(values), grid), [0.5, 0.5])


def test_sums_in_another_order_do_not_decide() -> None:
    grid = simplex(2)
    values = np.zeros((len(grid), 3))
    values[3], values[10] = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]  # 0.6000000000000001 and 0.6
    np.testing.assert_array_equal(best_weights(values, grid), grid[10])


def test_a_sample_is_drawn_by_its_seed(tiny_corpus: Corpus) -> None:
    contexts, wanted = sampled(tiny_corpus, "train", 100, 0)
    np.testing.assert_array_equal(contexts, tiny_corpus.split("train").contexts)
    drawn = [sampled(tiny_corpus, "train", 3, seed) for seed in (0, 0, 1)]
    assert [len(contexts) for contexts, _ in drawn] == [3, 3, 3]
    np.testing.assert_array_equal(drawn[0][0], drawn[1][0])
    assert drawn[0][0].tolist() != drawn[2][0].tolist()
    cited = dict(zip(contexts.tolist(), [row.tolist() for row in wanted], strict=True))
    assert [row.tolist() for row in drawn[2][1]] == [cited[context] for context in drawn[2][0].tolist()]


def test_a_split_that_is_not_there(tiny_corpus: Corpus) -> None:
    with pytest.raises(InputError, match="no split 'dev'"):
        sampled(tiny_corpus, "dev", 3, 0)


@pytest.mark.parametrize("measure", ["mrr", "recall", "recall@", "recall@0", "recall@-1", "recall@ten", ""])
def test_what_is_no_recall_is_one_line(measure: str) -> None:
    assert recall_cutoff("recall@20", "x") == 20
    with pytest.raises(InputError, match=r"x=.*: choose recall@K"):
        recall_cutoff(measure, "x")
