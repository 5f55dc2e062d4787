"""Queries and candidates of each protocol, compared with the source files; qrels, and measures of runs."""

import json
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ir_measures import RR, R

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.evaluation.benchmarks.contexts.shared import truncate_with_ties
from citerec.evaluation.measures import means, query_values
from citerec.evaluation.protocol import Qrels, make_protocols, seen_groups
from citerec.evaluation.settings import DRAFT, INDUCTIVE, PROTOCOLS, TRANSDUCTIVE
from citerec.retrieval.base import Ranking, top_k
from citerec.retrieval.filters import Filters
from citerec.retrieval.run import Run
from citerec.tests.conftest import CONTEXTS

IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
SEEN = {"parsing", "graph", "speech", "vision"}


def test_seen_needs_one_target_that_training_cites(tiny_source: Path, tmp_path: Path) -> None:
    queries = json.loads((tiny_source / "test.json").read_text())
    queries[0]["positive_ids"] = ["poetry", "speech"]  # not seen, seen
    queries[1]["positive_ids"] = ["poetry", "retrieval"]  # neither
    (tiny_source / "test.json").write_text(json.dumps(queries))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    groups = seen_groups(corpus, corpus.split("test"))
    assert groups["seen"].tolist() == [True, False, False, True]
    np.testing.assert_array_equal(groups["unseen"], ~groups["seen"])
    assert len(Qrels.from_split(corpus, corpus.split("test")).judgements["c9"]) == 2


def test_what_other_training_splits_cite_is_seen(tiny_source: Path, tmp_path: Path) -> None:
    before = open_corpus(tiny_source, cache_dir=tmp_path / "before").seen
    (tiny_source / "train.json").rename(tiny_source / "train_named.json")
    splits = ["train_named", "val", "test"]
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", splits=splits)
    assert corpus.seen.any() and np.array_equal(corpus.seen, before)
    assert seen_groups(corpus, corpus.split("test")).keys() == {"seen", "unseen"}
    assert names(corpus, Filters()) == [TRANSDUCTIVE, INDUCTIVE]


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_inductive_targets_and_candidates_are_unseen_in_training(tiny_corpus: Corpus, split: str) -> None:
    result = make_protocols((TRANSDUCTIVE, INDUCTIVE), tiny_corpus, tiny_corpus.split(split), Filters())
    assert result[0].name == TRANSDUCTIVE and result[0].candidates == 11
    assert len(result[0].queries) == len(tiny_corpus.split(split))
    wanted = {
        key for key, (its_split, _, cited, _) in CONTEXTS.items() if its_split == split and cited not in SEEN
    }
    if split == "train":
        assert not wanted and len(result) == 1
        return
    assert {tiny_corpus.context_ids[row] for row in result[1].queries.contexts.tolist()} == wanted
    pool = {tiny_corpus.paper_ids[row] for row in np.flatnonzero(result[1].filters.allowed(tiny_corpus))}
    assert len(pool) == result[1].candidates == 7 and not pool & SEEN and "bare" not in pool
    assert {
        paper for own in Qrels.from_split(tiny_corpus, result[1].queries).judgements.values() for paper in own
    } <= pool


def names(corpus: Corpus, filters: Filters) -> list[str]:
    return [
        item.name for item in make_protocols((TRANSDUCTIVE, INDUCTIVE), corpus, corpus.split("test"), filters)
    ]


def test_a_query_with_one_target_that_training_cites_is_not_inductive(
    tiny_source: Path, tmp_path: Path
) -> None:
    queries = json.loads((tiny_source / "test.json").read_text())
    queries[2]["positive_ids"] = ["poetry", "speech"]
    (tiny_source / "test.json").write_text(json.dumps(queries))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    assert names(corpus, Filters()) == [TRANSDUCTIVE]
    with pytest.raises(InputError, match=r"benchmark.protocols=\['inductive'\]: .* add transductive"):
        make_protocols([INDUCTIVE], corpus, corpus.split("test"), Filters())


def test_without_a_training_split_there_is_no_inductive_protocol(tiny_source: Path, tmp_path: Path) -> None:
    (tiny_source / "train.json").unlink()
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    assert names(corpus, Filters()) == [TRANSDUCTIVE]


def test_filters_that_leave_no_unseen_paper(tiny_corpus: Corpus) -> None:
    filters = Filters(exclude=sorted(set(tiny_corpus.paper_ids) - SEEN))
    result = make_protocols((TRANSDUCTIVE, INDUCTIVE), tiny_corpus, tiny_corpus.split("test"), filters)
    assert [item.name for item in result] == [TRANSDUCTIVE] and result[0].candidates == 4
    with pytest.raises(InputError, match="none of the candidates"):
        make_protocols(
            PROTOCOLS, tiny_corpus, tiny_corpus.split("test"), Filters(exclude=list(tiny_corpus.paper_ids))
        )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        IDS, st.dictionaries(IDS, st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=4
    )
)
def test_qrels_round_trip(tmp_path: Path, judgements: dict[str, dict[str, int]]) -> None:
    Qrels(judgements).write(tmp_path / "qrels.trec")
    assert Qrels.read(tmp_path / "qrels.trec").judgements == judgements


@pytest.mark.parametrize("blank", [" ", "  "])  # read by Arrow, or line by line
def test_a_relevance_that_is_too_large_is_one_line(tmp_path: Path, blank: str) -> None:
    (tmp_path / "qrels.trec").write_text(f"q 0 a 1\nq{blank}0 b 1{'0' * 30}\n")
    with pytest.raises(InputError, match=r"row 2, field 'relevance': invalid value '10+'"):
        Qrels.read(tmp_path / "qrels.trec")


def test_a_draft_knows_the_other_citations_of_its_paper(tiny_corpus: Corpus) -> None:
    split = tiny_corpus.split("train")
    result = make_protocols([DRAFT], tiny_corpus, split, Filters())[0]
    queries = result.retriever_queries(tiny_corpus)
    for query, known_rows in enumerate(queries.known):
        context = tiny_corpus.context_ids[int(split.contexts[query])]
        citing = CONTEXTS[context][1]
        others = {cited for key, (_, own, cited, _) in CONTEXTS.items() if own == citing and key != context}
        assert {tiny_corpus.paper_ids[row] for row in known_rows} == others


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
