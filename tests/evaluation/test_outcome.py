import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.benchmark import with_ties
from retrieval.base import Ranking, ordered


def first(ranking: Ranking, row: int, k: int) -> list[int]:
    """The k best of a query as a tool finds them that puts the later row first among equals."""
    pairs = zip(ranking.scores[row].tolist(), ranking.papers[row].tolist(), strict=True)
    return [paper for _, paper in sorted((pair for pair in pairs if pair[1] >= 0), reverse=True)[:k]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12))
def test_the_with_ties_a_run_has_the_first_papers_whatever_the_order_of_equals(
    seed: int, k: int, depth: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(12) for _ in range(4)])
    scores = rng.integers(0, 4, rows.shape).astype(np.float32)  # many equals
    whole = ordered(rows, scores, k, rng.random(rows.shape) < rng.choice([0, 0.7]))
    head = with_ties(whole, depth)
    for row in range(4):
        for shallow in range(1, depth + 1):
            assert first(head, row, shallow) == first(whole, row, shallow)
        papers = head.papers[row][head.papers[row] >= 0]
        last = whole.scores[row, min(depth, k) - 1]
        assert len(papers) == ((whole.papers[row] >= 0) & (whole.scores[row] >= last)).sum()
        np.testing.assert_array_equal(papers, whole.papers[row, : len(papers)])
