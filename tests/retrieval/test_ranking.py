import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.base import Ranking, ordered

# Few distinct values, so that ties are common; both zeros and both signs.
SCORES = st.sampled_from([-np.inf, -3.5, -1e-30, -0.0, 0.0, 1e-30, 0.25, 1.0, 2e30])


@st.composite
def _places(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    n = draw(st.integers(0, 12))
    rows = draw(st.permutations(range(max(n, 1) * 3)))[:n]
    papers = [row if draw(st.booleans()) else -1 for row in rows]
    scores = draw(st.lists(SCORES, min_size=n, max_size=n))
    drop = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    k = draw(st.integers(1, 15))
    return np.array([papers], np.int64), np.array([scores], np.float32), np.array([drop], bool), k


@given(_places())
def test_ordered_agrees_with_a_plain_sort(places: tuple[np.ndarray, np.ndarray, np.ndarray, int]) -> None:
    papers, scores, drop, k = places
    kept = [(-s, p) for p, s, d in zip(papers[0], scores[0], drop[0], strict=True) if p >= 0 and not d]
    expected = sorted(kept)[:k]
    ranking = ordered(papers, scores, k, drop)
    assert ranking.papers.dtype == np.int32 and ranking.scores.dtype == np.float32
    assert ranking.papers[0].tolist() == [p for _, p in expected] + [-1] * (k - len(expected))
    assert ranking.scores[0].tolist() == [-s for s, _ in expected] + [-np.inf] * (k - len(expected))


def test_a_score_that_is_not_a_number_is_an_error_only_where_it_counts() -> None:
    papers, scores = np.array([[0, 1]]), np.array([[np.nan, 1.0]], np.float32)
    with pytest.raises(ValueError, match="not a number"):
        ordered(papers, scores, 2)
    assert ordered(papers, scores, 2, np.array([[True, False]])).papers.tolist() == [[1, -1]]


def test_concat_keeps_the_order_of_the_queries() -> None:
    first = Ranking(np.array([[1, 2]], np.int32), np.array([[2.0, 1.0]], np.float32))
    second = Ranking(np.array([[3, -1]], np.int32), np.array([[1.0, -np.inf]], np.float32))
    both = Ranking.concat([first, second])
    assert both.papers.tolist() == [[1, 2], [3, -1]] and len(both) == 2 and both.k == 2


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="must both be"):
        Ranking(np.zeros((2, 3), np.int32), np.zeros((2, 2), np.float32))
