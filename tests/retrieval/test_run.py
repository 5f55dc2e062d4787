"""Run files, and cached runs against the retriever that wrote them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.retrieval.base import Ranking, Retriever, top_k
from citerec.retrieval.filters import Filters
from citerec.retrieval.fusion import Fusion
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.run import CachedRun, Run
from citerec.tests.retrieval.made import assert_same, write_runs

IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def _runs(draw: st.DrawFn) -> Run:
    papers = draw(st.lists(IDS, unique=True, min_size=1, max_size=8))
    queries = draw(st.lists(IDS, unique=True, min_size=1, max_size=5))
    k = draw(st.integers(1, len(papers)))
    rows = [draw(st.permutations(range(len(papers))))[:k] for _ in queries]
    scores = draw(
        st.lists(st.lists(FLOATS, min_size=k, max_size=k), min_size=len(queries), max_size=len(queries))
    )
    # Keep the first paper, so that every query has a line.
    drop = np.array([[False] + [draw(st.booleans()) for _ in range(k - 1)] for _ in queries])
    return Run(queries, papers, top_k(np.array(rows), np.array(scores, np.float32), k, drop), draw(IDS))


def _as_dict(run: Run) -> dict[str, dict[str, float]]:
    return {query: papers for batch in run.batches(2) for query, papers in batch.items()}


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(run=_runs())
def test_a_run_written_and_read_is_the_same_to_the_last_bit(run: Run, tmp_path: Path) -> None:
    run.write(tmp_path / "run.trec")
    again = Run.read(tmp_path / "run.trec")
    assert list(again.query_ids) == list(run.query_ids) and again.name == run.name
    assert _as_dict(again) == _as_dict(run)
    lines = (tmp_path / "run.trec").read_bytes().decode().split("\n")[:-1]
    assert len(lines) == int((run.ranking.papers >= 0).sum())
    assert all(len(line.split()) == 6 and line.split()[1] == "Q0" for line in lines)


def test_lines_are_in_trec_format(tmp_path: Path) -> None:
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
    ranking = top_k(rng.permuted(np.tile(np.arange(9), (7, 1)), axis=1)[:, :3], rng.random((7, 3)), 3)
    run = Run([f"q{i}" for i in range(7)], [f"p{i}" for i in range(9)], ranking)
    run.write(tmp_path / "whole.trec")
    monkeypatch.setattr("citerec.retrieval.run.LINES", 6)
    run.write(tmp_path / "pieces.trec")
    assert (tmp_path / "whole.trec").read_bytes() == (tmp_path / "pieces.trec").read_bytes()


def test_runs_of_other_tools_are_read(tmp_path: Path) -> None:
    # Tabs, several blanks, lines of one query apart, ranks that contradict the scores.
    (tmp_path / "run.trec").write_text("q1\tQ0\ta\t1\t1.5\tx\nq2  Q0 b 1 2 x\nq1 Q0 b 2 3e1 x\n\n")
    assert _as_dict(Run.read(tmp_path / "run.trec")) == {"q1": {"b": 30.0, "a": 1.5}, "q2": {"b": 2.0}}
    (tmp_path / "run.trec").write_text("q1 Q0 10.1/a%3Cp1 1 1.5 x\n")  # as in a DOI; our own blank is %20
    assert _as_dict(Run.read(tmp_path / "run.trec")) == {"q1": {"10.1/a%3Cp1": 1.5}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Empty CSV file"),
        ("\n\n", "Empty CSV file"),
        ("q Q0 a 1 1.0 x\nq Q0 b 2 x\n", "Row #2: Expected 6 columns, got 5: q Q0 b 2 x"),
        ("q Q0 a 1 1.0 x\nq Q0 b 2 high x\n", "row 2, field 'score': invalid value 'high'"),
        ("q Q0 a 1 1.0 x\nq Q0 b 2 nan x\n", "line 2, field 'score'"),
        ("q Q0 a 1 1.0 x\nq Q0 b 2 inf x\n", "line 2, field 'score': is not a finite number"),
        ("q Q0 a 1 1.0 x\nq Q0 a 2 0.5 x\n", "query 'q' has the paper 'a' twice"),
    ],
)
def test_invalid_files_raise_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.trec").write_text(text)
    with pytest.raises(InputError, match=message):
        Run.read(tmp_path / "run.trec")


def _queries(corpus: Corpus) -> np.ndarray:
    return np.concatenate([corpus.split("test").contexts, corpus.split("val").contexts])


@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize("filters", [None, Filters(exclude=["parsing"]), Filters(year="citing")])
def test_returns_the_rankings_of_the_retriever(
    tiny_corpus: Corpus, tmp_path: Path, k: int, filters: Filters | None
) -> None:
    bm25 = BM25().index(tiny_corpus)
    run = CachedRun(write_runs(bm25, tiny_corpus, tmp_path)).index(tiny_corpus)
    assert_same(run.search(_queries(tiny_corpus), k, filters), bm25.search(_queries(tiny_corpus), k, filters))


def test_runs_of_different_depth_and_one_file_by_name(tiny_corpus: Corpus, tmp_path: Path) -> None:
    fame = Popularity().index(tiny_corpus)
    (val,) = write_runs(BM25().index(tiny_corpus), tiny_corpus, tmp_path, ["val"])
    (test,) = write_runs(fame, tiny_corpus, tmp_path, ["test"])
    both, alone = CachedRun([val, test]).index(tiny_corpus), CachedRun(str(test)).index(tiny_corpus)
    contexts = tiny_corpus.split("test").contexts
    assert_same(both.search(contexts, 6), fame.search(contexts, 6))
    assert_same(alone.search(contexts, 6), fame.search(contexts, 6))


def test_the_first_papers_are_candidates_and_ties_are_in_the_order_of_the_corpus(
    tiny_corpus: Corpus, tmp_path: Path
) -> None:
    bare, last, first = "bare", *(tiny_corpus.paper_ids[row] for row in (4, 2))
    lines = [f"c9 Q0 {paper} 0 {score} r\n" for paper, score in ((bare, 3), (last, 2), (first, 2))]
    (tmp_path / "run.trec").write_text("".join(lines))
    run = CachedRun(tmp_path / "run.trec").index(tiny_corpus)
    contexts = tiny_corpus.split("test").contexts[:1]
    assert [run.search(contexts, k).papers.tolist() for k in (1, 2)] == [[[2]], [[2, 4]]]


def test_an_index_of_other_files_is_refused(tiny_corpus: Corpus, tmp_path: Path) -> None:
    files = write_runs(BM25().index(tiny_corpus), tiny_corpus, tmp_path)
    CachedRun(files).index(tiny_corpus).save(tmp_path / "index")
    files[0].write_text(files[0].read_text() + "\n")
    with pytest.raises(InputError, match="the index was built with files="):
        CachedRun(files).load(tmp_path / "index", tiny_corpus)


def test_runs_fuse_as_their_retrievers_do(tiny_corpus: Corpus, tmp_path: Path) -> None:
    parts: dict[str, Retriever] = {"words": BM25(), "fame": Popularity()}
    fusion = Fusion(parts).index(tiny_corpus)
    runs = {name: CachedRun(write_runs(part, tiny_corpus, tmp_path)) for name, part in parts.items()}
    fused_runs = Fusion(runs).index(tiny_corpus)
    assert fused_runs.tuned == fusion.tuned
    assert_same(fused_runs.search(_queries(tiny_corpus), 8), fusion.search(_queries(tiny_corpus), 8))


def test_a_split_without_a_file(tiny_corpus: Corpus, tmp_path: Path) -> None:
    files = write_runs(BM25().index(tiny_corpus), tiny_corpus, tmp_path, ["test"])
    run = CachedRun(files).index(tiny_corpus)
    with pytest.raises(InputError, match=r"bm25-test\.trec: no query of split 'val' of tiny"):
        run.search(tiny_corpus.split("val").contexts, 3)
    with pytest.raises(InputError, match="no query of split 'val'"):
        Fusion({"words": run}).index(tiny_corpus)


def test_a_query_in_no_file_gets_no_papers(
    tiny_corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bm25 = BM25().index(tiny_corpus)
    contexts = tiny_corpus.split("test").contexts
    ids = [tiny_corpus.context_ids[row] for row in contexts[1:].tolist()] + ["from elsewhere"]
    result = bm25.search(contexts, 5)
    rest = np.roll(np.arange(len(contexts)), -1)
    Run(ids, tiny_corpus.paper_ids, Ranking(result.papers[rest], result.scores[rest])).write(tmp_path / "run")
    with caplog.at_level(logging.WARNING):
        run = CachedRun(tmp_path / "run").index(tiny_corpus)
    assert "1 of the 4 queries of split test are missing" in caplog.text
    assert "1 of 4 queries are not in tiny" in caplog.text
    again = run.search(contexts, 5)
    assert (again.papers[0] == -1).all() and np.isneginf(again.scores[0]).all()
    assert_same(Ranking(again.papers[1:], again.scores[1:]), Ranking(result.papers[1:], result.scores[1:]))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["x Q0 speech 1 1 r"], "has none of the run's 1 queries .the first is 'x'."),
        (
            ["c9 Q0 speech 1 2 r", "c9 Q0 novel 2 1 r"],
            "query 'c9' has the paper 'novel', which corpus tiny lacks",
        ),
    ],
)
def test_unrelated_runs_raise_one_line(
    tiny_corpus: Corpus, tmp_path: Path, lines: list[str], message: str
) -> None:
    (tmp_path / "run.trec").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=rf"run\.trec.*{message}"):
        CachedRun(tmp_path / "run.trec").index(tiny_corpus)


def test_a_query_in_two_files(tiny_corpus: Corpus, tmp_path: Path) -> None:
    (file,) = write_runs(BM25().index(tiny_corpus), tiny_corpus, tmp_path, ["test"])
    with pytest.raises(InputError, match=r"query 'c\d+' is also in an earlier file of retriever.files"):
        CachedRun([file, file]).index(tiny_corpus)


def test_max_results_of_a_run(tiny_corpus: Corpus, tmp_path: Path) -> None:
    val, test = write_runs(
        BM25(query=["context", "title", "abstract"]).index(tiny_corpus), tiny_corpus, tmp_path
    )
    whole = Run.read(test)
    ranking = Ranking(whole.ranking.papers[:, :2], whole.ranking.scores[:, :2])
    Run(whole.query_ids, whole.paper_ids, ranking).write(test)
    run = CachedRun([val, test]).index(tiny_corpus)
    assert run.max_results(tiny_corpus.split("test").contexts) == 2
    assert (run.max_results(tiny_corpus.split("val").contexts) or 99) > 2
    everyone = Popularity().index(tiny_corpus)
    assert everyone.max_results(tiny_corpus.split("test").contexts) is None
