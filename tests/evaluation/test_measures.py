"""Measures of runs, truncated runs, and atomic writes."""

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import RR, R

from citerec.evaluation.benchmarks.contexts.shared import truncate_with_ties
from citerec.evaluation.measures import means, query_values
from citerec.evaluation.protocol import Qrels
from citerec.retrieval.base import Ranking, top_k
from citerec.retrieval.run import Run


@st.composite
def _evaluations(draw: st.DrawFn) -> tuple[Run, Qrels]:
    papers, k = 9, draw(st.integers(1, 9))
    queries = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = np.stack([rng.permutation(papers)[:k] for _ in range(queries)])
    # Integer scores give many ties.
    ranking = top_k(rows, rng.integers(0, 4, rows.shape).astype(np.float32), k, rng.random(rows.shape) < 0.2)
    judged = {f"q{q}": {f"p{p}": 1 for p in rng.permutation(papers)[:3]} for q in range(1, queries + 2)}
    return Run([f"q{q}" for q in range(queries)], [f"p{p}" for p in range(papers)], ranking), Qrels(judged)


@given(_evaluations())
def test_batches_agree_with_ir_measures_on_the_whole_run(pair: tuple[Run, Qrels]) -> None:
    run, qrels = pair
    whole = {q: d for batch in run.batches(100) for q, d in batch.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("citerec.evaluation.measures.QUERIES", 2)
        values = means(query_values(run, qrels, [1, 3]))
    expected = ir_measures.calc_aggregate([RR, R @ 1, R @ 3], qrels.judgements, whole)
    assert values == pytest.approx(
        {"mrr": expected[RR], "recall@1": expected[R @ 1], "recall@3": expected[R @ 3]}
    )


def test_values_of_a_small_example() -> None:
    ranking = Ranking(
        np.array([[0, 1, 2], [2, 1, -1]], np.int32), np.array([[3, 2, 1], [9, 8, -np.inf]], np.float32)
    )
    run = Run(["first", "other"], ["a", "b", "c"], ranking)
    qrels = Qrels({"missing": {"a": 1}, "first": {"b": 1, "z": 1}, "other": {"a": 1}})
    values = query_values(run, qrels, [1, 2, 2000])
    # In the order of the qrels; queries missing from the run and queries without hits score 0.
    assert {name: array.tolist() for name, array in values.items()} == {
        "mrr": [0, 0.5, 0],
        "recall@1": [0, 0, 0],
        "recall@2": [0, 0.5, 0],
        "recall@2000": [0, 0.5, 0],
    }
    assert means(values)["mrr"] == pytest.approx(1 / 6)
    assert means(values, np.array([False, True, False]))["recall@2"] == 0.5
    assert means(values, np.zeros(3, np.bool_)) == {}


def top(ranking: Ranking, row: int, k: int) -> list[int]:
    """The top k papers of a query for a tool that breaks ties in favour of the later row."""
    pairs = zip(ranking.scores[row].tolist(), ranking.papers[row].tolist(), strict=True)
    return [paper for _, paper in sorted((pair for pair in pairs if pair[1] >= 0), reverse=True)[:k]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12))
def test_a_run_truncated_with_ties_has_the_same_top_papers_for_any_order_of_ties(
    seed: int, k: int, depth: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(12) for _ in range(4)])
    scores = rng.integers(0, 4, rows.shape).astype(np.float32)  # many ties
    whole = top_k(rows, scores, k, rng.random(rows.shape) < rng.choice([0, 0.7]))
    head = truncate_with_ties(whole, depth)
    for row in range(4):
        for shallow in range(1, depth + 1):
            assert top(head, row, shallow) == top(whole, row, shallow)
        papers = head.papers[row][head.papers[row] >= 0]
        last = whole.scores[row, min(depth, k) - 1]
        assert len(papers) == ((whole.papers[row] >= 0) & (whole.scores[row] >= last)).sum()
        np.testing.assert_array_equal(papers, whole.papers[row, : len(papers)])
