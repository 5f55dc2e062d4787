import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import InputError
from retrieval import index as exact
from retrieval.index import search_exact


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    queries=st.integers(0, 7),
    papers=st.integers(1, 30),
    dimensions=st.integers(1, 9),
    k=st.integers(1, 40),
    excluded=st.integers(0, 3),
    chunk=st.integers(1, 8),
    block=st.integers(1, 200),
)
def test_equals_the_full_product(
    seed: int, queries: int, papers: int, dimensions: int, k: int, excluded: int, chunk: int, block: int
) -> None:
    rng = np.random.default_rng(seed)
    # Whole numbers: the products are exact, so equal scores really are equal.
    q = rng.integers(-3, 4, (queries, dimensions)).astype(np.float32)
    p = rng.integers(-3, 4, (papers, dimensions)).astype(np.float32)
    exclude = rng.integers(-1, papers, (queries, excluded)).astype(np.int32)
    candidates = rng.random(papers) < 0.8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "BLOCK", block)
        ranking = search_exact(q, p, k, exclude, candidates, chunk)

    assert ranking.papers.shape == ranking.scores.shape == (queries, k)
    for row in range(queries):
        scores = p @ q[row]
        allowed = [i for i in range(papers) if candidates[i] and i not in exclude[row].tolist()]
        expected = sorted(-scores[allowed])[:k]
        found = ranking.papers[row][ranking.papers[row] >= 0].tolist()
        assert len(set(found)) == len(found) == len(expected)
        assert set(found) <= set(allowed)
        # Scores are the best there are, belong to their papers, and ties stand in the order of the rows.
        assert ranking.scores[row][: len(found)].tolist() == [-s for s in expected] == scores[found].tolist()
        assert found == [i for _, i in sorted((-scores[i], i) for i in found)]
        assert (ranking.papers[row][len(found) :] == -1).all()


def test_one_excluded_paper_a_query_leaves_the_next_ones_in_order() -> None:
    vectors = np.eye(4, dtype=np.float32)
    queries = np.array([[4, 3, 2, 1], [4, 3, 2, 1]], np.float32)
    ranking = search_exact(queries, vectors, 2, exclude=np.array([0, -1], np.int32))
    assert ranking.papers.tolist() == [[1, 2], [0, 1]]


def test_the_size_of_the_chunks_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((50, 16), dtype=np.float32)
    p = rng.standard_normal((300, 16), dtype=np.float32)
    whole, parts = search_exact(q, p, 20, chunk=50), search_exact(q, p, 20, chunk=7)
    np.testing.assert_array_equal(whole.papers, parts.papers)
    np.testing.assert_allclose(whole.scores, parts.scores, rtol=1e-5)


@pytest.mark.parametrize("name", ["queries", "papers"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_named(name: str, bad: float) -> None:
    queries, papers = np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
    (queries if name == "queries" else papers)[2, 1] = bad
    with pytest.raises(InputError, match=f"{name}: vector 2 is not finite"):
        search_exact(queries, papers, k=1)


def test_shapes_that_do_not_agree_are_refused() -> None:
    with pytest.raises(ValueError, match="4 dimensions, papers 5"):
        search_exact(np.ones((1, 4), np.float32), np.ones((1, 5), np.float32), 1)
    with pytest.raises(ValueError, match="for 2 queries"):
        search_exact(
            np.ones((2, 4), np.float32), np.ones((1, 4), np.float32), 1, exclude=np.zeros(3, np.int32)
        )
