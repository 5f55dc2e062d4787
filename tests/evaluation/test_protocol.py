"""Queries and candidates of each protocol, compared with the source files; and qrels."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.evaluation.protocol import Qrels, make_protocols, seen_groups
from citerec.evaluation.settings import DRAFT, INDUCTIVE, PROTOCOLS, TRANSDUCTIVE
from citerec.retrieval.filters import Filters
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
