from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets.errors import InputError
from retrieval.base import Ranking, ordered
from retrieval.run import Run

IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
FLOATS = st.floats(width=32, allow_nan=False)


@st.composite
def _runs(draw: st.DrawFn) -> Run:
    papers = draw(st.lists(IDS, unique=True, min_size=1, max_size=8))
    queries = draw(st.lists(IDS, unique=True, min_size=1, max_size=5))
    k = draw(st.integers(1, len(papers)))
    rows = [draw(st.permutations(range(len(papers))))[:k] for _ in queries]
    scores = draw(
        st.lists(st.lists(FLOATS, min_size=k, max_size=k), min_size=len(queries), max_size=len(queries))
    )
    # The first paper of each stays, so that every query has a line.
    drop = np.array([[False] + [draw(st.booleans()) for _ in range(k - 1)] for _ in queries])
    return Run(queries, papers, ordered(np.array(rows), np.array(scores, np.float32), k, drop), draw(IDS))


def _as_dict(run: Run) -> dict[str, dict[str, float]]:
    return {query: papers for batch in run.batches(2) for query, papers in batch.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(run=_runs())
def test_a_run_written_and_read_is_the_same_to_the_last_bit(run: Run, tmp_path: Path) -> None:
    run.write(tmp_path / "run.trec")
    again = Run.read(tmp_path / "run.trec")
    assert list(again.query_ids) == list(run.query_ids) and again.name == run.name
    assert _as_dict(again) == _as_dict(run)
    lines = (tmp_path / "run.trec").read_bytes().decode().split("\n")[:-1]
    assert len(lines) == int((run.ranking.papers >= 0).sum())
    assert all(len(line.split()) == 6 and line.split()[1] == "Q0" for line in lines)


def test_lines_are_those_of_trec(tmp_path: Path) -> None:
    ranking = Ranking(
        np.array([[2, 0], [1, -1]], np.int32), np.array([[0.1, -2.5e-8], [3, -np.inf]], np.float32)
    )
    Run(["q 1", "q2"], ["a", "b%", "c\u00a0d"], ranking, "my run").write(tmp_path / "run.trec")
    assert (tmp_path / "run.trec").read_text().splitlines() == [
        "q%201 Q0 c%C2%A0d 1 0.1 my%20run",
        "q%201 Q0 a 2 -2.5e-8 my%20run",
        "q2 Q0 b%25 1 3 my%20run",
    ]


def test_a_run_in_several_pieces_is_written_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ranking = ordered(rng.permuted(np.tile(np.arange(9), (7, 1)), axis=1)[:, :3], rng.random((7, 3)), 3)
    run = Run([f"q{i}" for i in range(7)], [f"p{i}" for i in range(9)], ranking)
    run.write(tmp_path / "whole.trec")
    monkeypatch.setattr("retrieval.run.LINES", 6)
    run.write(tmp_path / "pieces.trec")
    assert (tmp_path / "whole.trec").read_bytes() == (tmp_path / "pieces.trec").read_bytes()


def test_runs_of_other_tools_are_read(tmp_path: Path) -> None:
    # Tabs, several blanks, lines of one query apart, ranks that contradict the scores.
    (tmp_path / "run.trec").write_text("q1\tQ0\ta\t1\t1.5\tx\nq2  Q0 b 1 2 x\nq1 Q0 b 2 3e1 x\n\n")
    assert _as_dict(Run.read(tmp_path / "run.trec")) == {"q1": {"b": 30.0, "a": 1.5}, "q2": {"b": 2.0}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("q Q0 a 1 1.0 x\nq Q0 b 2 x\n", "line 2: 5 fields instead of 6"),
        ("q Q0 a 1 1.0 x\nq Q0 b 2 high x\n", "line 2, field 'score': 'high' is not a number"),
        ("q Q0 a 1 1.0 x\nq Q0 b 2 nan x\n", "line 2, field 'score'"),
        ("q Q0 a 1 1.0 x\n\n" + "q" * 2_000_000, "line 3: is longer than 1,048,576 characters"),
        ("q Q0 a 1 1.0 x\nq Q0 a 2 0.5 x\n", "query 'q' has the paper 'a' twice"),
    ],
)
def test_a_file_that_is_no_run_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.trec").write_text(text)
    with pytest.raises(InputError, match=message):
        Run.read(tmp_path / "run.trec")


def test_a_file_that_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        Run.read(tmp_path / "none.trec")


def test_an_empty_id_cannot_be_written(tmp_path: Path) -> None:
    run = Run([""], ["a"], Ranking(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32)))
    with pytest.raises(InputError, match="an id is empty"):
        run.write(tmp_path / "run.trec")
    assert list(tmp_path.iterdir()) == []
