"""Citation graphs of paper files, and corpora whose queries are papers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.utils import instantiate

from citerec.base.errors import InputError
from citerec.datasets.citations.graph import CitationGraph, open_graph, read_paper_lines
from citerec.datasets.citations.queries import (
    GraphQueries,
    QuerySet,
    open_papers,
    open_queries,
    read_query_lists,
)
from citerec.datasets.corpus import Corpus
from citerec.datasets.splitting import RandomSplitting, YearShares, YearSplitting
from citerec.tests.composing import compose_config
from citerec.tests.datasets.conftest import write_lines

ABOUT = {"b": {"title": "On B", "abstract": " "}, "d": {"title": "On D", "abstract": "About d."}}
ABOUT["late"] = {"title": "Late", "abstract": "About it."}
PAPERS: list[dict[str, Any]] = [
    {"paper_id": "a", "title": "On A", "abstract": "About a.", "year": 2000, "fields": ["Art"]},
    {"paper_id": "b", **ABOUT["b"], "year": "2001", "fields": "Law", "references": ["a", "b"]},
    {"paper_id": "c", "title": None, "abstract": "About c.", "references": ["b", "a", "b", "gone"]},
    {"paper_id": "d", **ABOUT["d"], "year": 2003, "references": ["a", "late", 7]},
    {"paper_id": 7, "title": "", "abstract": "", "year": 1990, "fields": []},
    {"paper_id": "late", **ABOUT["late"], "year": 2009, "fields": ["Art", "Law", "Art"]},
]
TITLED = {"title": "Mono-unsaturated fat", "abstract": "Part ::: two.", "year": 2019}
S2ORC_2020 = {"paper_id": "18980380", **TITLED, "mag_field_of_study": ["Medicine", "Biology"]}
S2ORC_2020 |= {"outbound_citations": ["11", "12"], "inbound_citations": ["13"]}
CORPUS = {"id": "4cd223df", "title": "Preliminary study", "paperAbstract": "An abstract.", "year": 2014}
CORPUS |= {"fieldsOfStudy": ["Art"], "outCitations": ["18980380"], "inCitations": []}
# DBLP and PubMed of Ren et al. 2014 in Citeomatic's layout.
CITEOMATIC = {"id": "13", "title": "mining top - k patterns", "abstract": "we mine .", "year": 2009}
CITEOMATIC |= {"title_raw": "Mining Top-K Patterns", "abstract_raw": "We mine."}
CITEOMATIC |= {"out_citations": ["12", "14"], "authors": ["A. B."], "key_phrases": ["mining"], "date": None}
ALL_TRAIN = RandomSplitting(1.0, 0.0, 0.0, seed=0)
SHARES = YearShares(0.6, 0.2, 0.2, None, 0)
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return lambda papers=PAPERS, name="papers.jsonl": write_lines(tmp_path / name, papers)


def cited(graph: CitationGraph) -> dict[str, list[str]]:
    return {graph.ids[row]: [graph.ids[item] for item in result] for row, result in enumerate(graph.cites)}


@pytest.mark.parametrize("name", ["papers.jsonl", "papers.jsonl.gz"])
def test_the_graph_matches_the_files(write: Write, tmp_path: Path, name: str) -> None:
    path = write(PAPERS, name)
    extra = write([{"paper_id": "x", "title": "X", "abstract": "x" * 40}], "more.jsonl")
    for _ in range(2):  # built, then cached
        graph = open_graph(path, distractors=extra, cache_dir=tmp_path / "cache")
        assert list(graph.ids) == ["a", "b", "c", "d", "7", "late", "x"]
        assert cited(graph) == {
            "a": [], "b": ["a"], "c": ["a", "b"], "d": ["a", "7", "late"], "7": [], "late": [], "x": []
        }  # fmt: skip
        assert graph.years.tolist() == [2000, 2001, 0, 2003, 1990, 2009, 0]
        assert graph.titled.tolist() == [True, True, False, True, False, True, True]
        assert graph.abstract_lengths.tolist() == [8, 0, 8, 8, 0, 9, 40]
        assert graph.is_distractor.tolist() == [False] * 6 + [True]
        assert graph.unknown == 1  # c cites a missing paper
        assert graph.citations.tolist() == [3, 1, 0, 0, 1, 1, 0]
        assert np.flatnonzero(graph.in_field("Law")).tolist() == [1, 5]
    assert len(list((tmp_path / "cache" / "graphs").glob("*/graph.json"))) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"malformed JSON"),
        ("[1]", r"must be an object, not a list"),
        ({"title": "x"}, r"unknown layout; must be our own \(paper_id, references\), S2ORC metadata"),
        ({"corpusid": 12, "title": "A second"}, r"is a part of a paper, without its references"),
        (
            {"citingcorpusid": 12, "citedcorpusid": 11},
            r"is a citation, not a paper; give the files of papers",
        ),
        ({**CORPUS, "outCitations": [None]}, r"field 'outCitations\[0\]': must be a number or a"),
        ({**S2ORC_2020, "year": 3.5}, r"field 'year': must be a whole number"),
        ({**CITEOMATIC, "out_citations": "12"}, r"field 'out_citations': must be a list, not"),
        ({"paper_id": "a b"}, r"field 'paper_id': an id must not be empty or contain white space"),
        ({"paper_id": "x", "year": "soon"}, r"field 'year': must be a whole number"),
        ({"paper_id": "x", "fields": 3}, r"field 'fields': must be a string or a list, not a number"),
        ({"paper_id": "x", "references": "a"}, r"field 'references': must be a list, not a string"),
        ({"paper_id": "x", "references": ["a", None]}, r"'references\[1\]': must be a number or a string"),
    ],
)
def test_an_invalid_record_is_named(write: Write, tmp_path: Path, line: Any, said: str) -> None:
    with pytest.raises(InputError, match=rf"papers\.jsonl, line 2.*{said}") as error:
        open_graph(write([PAPERS[0], line]), cache_dir=tmp_path / "cache")
    assert "\n" not in str(error.value)


def test_inconsistent_files_are_named(write: Write, tmp_path: Path) -> None:
    path = write()
    for papers, said in (
        ([path, path], r"papers\.jsonl, .*papers\.jsonl: the paper 'a' appears twice \(and 5 more\)"),
        (tmp_path / "nowhere", r"nowhere: no such file"),
        (write([], "empty.jsonl"), r"no papers"),
    ):
        with pytest.raises(InputError, match=said):
            open_graph(papers, cache_dir=tmp_path)
    with pytest.raises(InputError, match=r"no paper has the field 'Physics'; known fields: 'Art', 'Law'"):
        open_graph(path, cache_dir=tmp_path).in_field("Physics")
    with pytest.raises(InputError, match=r"no paper cites 1 or more papers of the collection"):
        open_papers(write(PAPERS[:1], "one.jsonl"), ALL_TRAIN, cache_dir=tmp_path)


def test_lines_in_our_own_layout_are_read_unchanged(write: Write) -> None:
    papers = list(read_paper_lines(write(["\ufeff" + json.dumps(PAPERS[0]), "", PAPERS[5]])))
    assert [paper.id for paper in papers] == ["a", "late"]
    assert papers[1].fields == ("Art", "Law")


def test_dumps_are_read_as_they_are(write: Write) -> None:
    older = {key: value for key, value in CITEOMATIC.items() if not key.endswith("_raw")} | {"id": 14}
    undated = {"id": "9e9c", "title": "On open research", "paperAbstract": "", "outCitations": ["4cd223df"]}
    papers = read_paper_lines(write([S2ORC_2020, CORPUS, CITEOMATIC, older, undated]))
    assert [tuple(paper) for paper in papers] == [
        ("18980380", "Mono-unsaturated fat", "Part   two.", 2019, ("Medicine", "Biology"), ("11", "12")),
        ("4cd223df", "Preliminary study", "An abstract.", 2014, ("Art",), ("18980380",)),
        ("13", "Mining Top-K Patterns", "We mine.", 2009, (), ("12", "14")),
        ("14", "mining top - k patterns", "we mine .", 2009, (), ("12", "14")),
        ("9e9c", "On open research", "", 0, (), ("4cd223df",)),
    ]


def test_a_papers_json_is_read_like_lines(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "papers.json"
    path.write_text(json.dumps({str(paper["paper_id"]): paper | {"paper_id": None} for paper in PAPERS}))
    assert list(read_paper_lines(path)) == list(read_paper_lines(write()))
    path.write_text('{"a": {"title": 1}}')
    with pytest.raises(InputError, match=r"papers\.json, record 'a', field 'title'"):
        list(read_paper_lines(path))


# The corpus of a graph: its queries are papers.


def queries_of(corpus: Corpus) -> dict[str, dict[str, list[str]]]:
    return {
        name: {
            corpus.context_ids[row]: [corpus.paper_ids[paper] for paper in papers]
            for row, papers in zip(split.contexts.tolist(), split.positives, strict=True)
        }
        for name, split in corpus.splits.items()
    }


def test_papers_are_queries_for_their_references(write: Write, tmp_path: Path) -> None:
    corpus = open_papers(write(), ALL_TRAIN, cache_dir=tmp_path / "cache", name="mine")
    assert list(corpus.paper_ids) == ["a", "b", "c", "d", "late"]  # 7 has no text
    assert corpus.is_candidate.all() and list(corpus.field_names) == ["Art", "Law"]
    # d cites a later paper of 2009.
    assert queries_of(corpus) == {"train": {"b": ["a"], "c": ["a", "b"], "d": ["a"]}}
    assert list(corpus.context_texts) == ["TARGETCIT On B", "TARGETCIT About c.", "TARGETCIT About d."]
    assert [corpus.paper_ids[paper] for paper in corpus.citing.tolist()] == ["b", "c", "d"]


def test_splits_are_by_year_or_by_a_list(write: Write, tmp_path: Path) -> None:
    years = YearSplitting([None, 2001], None, [2002, None])
    by_year = open_papers(write(), years, cache_dir=tmp_path / "cache")
    assert {split: len(result) for split, result in by_year.splits.items()} == {"train": 1, "test": 1}
    queries = tmp_path / "queries.json"
    queries.write_text(json.dumps({"test": {"Art": ["c"], "Law": ["a"]}, "val": ["d"]}))
    listed = queries_of(open_papers(write(), years, queries, cache_dir=tmp_path / "cache"))
    result = {split: list(queries) for split, queries in listed.items()}
    assert result == {"train": ["b"], "val": ["d"], "test": ["c"]}  # a cites nothing


def test_ranges_of_years_and_files_come_from_the_command_line(write: Write, tmp_path: Path) -> None:
    options = ["splitting@data.splitting=year", "data.splitting.train=[null,2001]", "data.splitting.val=null"]
    options += ["data.splitting.test=[2002,null]", f"data.papers=[{write()}]", f"data.cache_dir={tmp_path}"]
    corpus = instantiate(compose_config("evaluate", ["data=papers", "retriever=bm25", *options]).data)
    assert {split: list(queries) for split, queries in queries_of(corpus).items()} == {
        "train": ["b"],
        "test": ["d"],
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", r"must be an object of splits"),
        ("{", r"malformed JSON"),
        ('{"test": {"Art": "a"}}', r"'test': must be a list of ids, or an object of such lists"),
        ('{"test": ["a"], "val": {"Art": ["a"]}}', r"'a' is in 'test' and in 'val'"),
        ('{"test": ["a", 99]}', r"'test': 1 of 2 ids are not in .*: 99"),
        ('{"test": ["a", "zz", "y"]}', r"queries\.json, 'test': 2 of 3 ids are not in .*: zz, y"),
    ],
)
def test_invalid_query_lists(write: Write, tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "queries.json"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        read_query_lists(path).rows("test", open_graph(write(), cache_dir=tmp_path / "cache"))


# Choice of queries: splits by year, near-duplicates of held-out papers, counts.

YEARS = [2003, 2001, None, 2001, 2004, 2002, 2001, 2002, 2005, 2003, 2001]
TITLES = [
    "Parsing trees", "Graph models", "Undated", "On sound", "On sounds of human speech", "Of pictures",
    "Rhyme and metre", "Speech sounds on", "Rhyme, and Metre!", "Attention", "Nothing",
]  # fmt: skip
CITES: dict[int, list[int]] = {
    0: [1, 8],  # 8 is later
    2: [1],
    3: [6],
    4: [0, 2, 5, 99],  # 2 has no year, 99 is in no file
    5: [1],
    6: [1],
    7: [3],
    8: [0, 4],
    9: [6],
}


def dated(titles: list[str] = TITLES, cites: dict[int, list[int]] = CITES) -> list[dict[str, Any]]:
    return [
        {"paper_id": f"p{row}", "title": title, "abstract": f"Abstract {row}.", "year": YEARS[row]}
        | {"references": [f"p{item}" for item in cites.get(row, [])]}
        for row, title in enumerate(titles)
    ]


@pytest.fixture
def find(write: Write, tmp_path: Path) -> Callable[..., GraphQueries]:
    return lambda splitting=SHARES, **more: open_queries(
        write(dated()), splitting, cache_dir=tmp_path / "cache", **more
    )


def rows(queries: dict[str, QuerySet]) -> dict[str, dict[int, list[int]]]:
    return {
        split: {row: result.tolist() for row, result in zip(some.papers.tolist(), some.relevant, strict=True)}
        for split, some in queries.items()
    }


def test_queries_by_shares_of_the_years(find: Callable[..., GraphQueries]) -> None:
    result = find()
    assert result.papers.tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9, 10]  # 2 has no year
    # By year, then position: 1 3 6 10 5 7 | 0 9 | 4 8. Papers without citations are not queries.
    train = {3: [6], 5: [1], 6: [1], 7: [3]}
    expected = {"train": train, "val": {0: [1], 9: [6]}, "test": {4: [0, 5], 8: [0, 4]}}
    assert rows(result.queries) == expected
    everything = rows(find(RandomSplitting(0.0, 0.0, 1.0, seed=0), near_duplicates=0.7).queries)
    assert everything["test"].keys() == {0, 2, 3, 4, 5, 6, 7, 8, 9} and not everything["train"]


def test_relevant_papers_can_be_limited_to_the_training_years(find: Callable[..., GraphQueries]) -> None:
    assert rows(find(found="train").queries)["test"] == {4: [5]}
    assert rows(find(min_cited=2).queries) == {"train": {}, "val": {}, "test": {4: [0, 5], 8: [0, 4]}}
    years = YearSplitting([None, 2003], None, [2004, None])
    assert rows(find(years, found="train", min_cited=2).queries)["test"] == {4: [0, 5]}
    with pytest.raises(
        InputError, match=r"no paper cites 3 or more papers of the collection that have a text"
    ):
        find(min_cited=3)


def test_near_duplicates_of_held_out_papers_are_dropped_from_training(
    find: Callable[..., GraphQueries],
    write: Write,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("INFO")
    plain, held = find(), find(near_duplicates=0.7)
    assert rows(held.queries)["train"] == {3: [6], 5: [1], 7: [3]}  # not 6, which is like 8, a query of test
    assert held.papers.tolist() == plain.papers.tolist()
    assert "dropped 1 of 4 training queries whose title is a near-duplicate of a held-out one" in caplog.text
    # The result is cached.
    assert rows(find(near_duplicates=0.5).queries)["train"].keys() == {
        3,
        5,
    }  # speech, sounds, on: and `of` in 4
    monkeypatch.setattr("citerec.datasets.citations.queries.TitleIndex", None)
    assert rows(find(near_duplicates=0.5).queries)["train"].keys() == {3, 5}
    corpus = open_papers(write(dated()), SHARES, cache_dir=tmp_path / "cache", near_duplicates=0.7)
    result = {split: list(queries) for split, queries in queries_of(corpus).items()}
    assert result == {"train": ["p3", "p5", "p7"], "val": ["p0", "p9"], "test": ["p4", "p8"]}
    assert corpus.has_paper("p6") and corpus.is_candidate.all()  # it stays a candidate
    assert not corpus.has_paper("p2")


def test_listed_queries_are_held_out_as_well(write: Write, tmp_path: Path) -> None:
    queries = tmp_path / "queries.json"
    queries.write_text(json.dumps({"test": ["p6"]}))
    result = open_queries(write(dated()), SHARES, queries, cache_dir=tmp_path, near_duplicates=0.7)
    assert rows(result.queries)["test"] == {6: [1]}
    train = rows(result.queries)["train"]
    assert 2 in train and 8 not in train  # a list may contain papers without a year


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"near_duplicates": 1.5}, r"data\.near_duplicates=1\.5: must be"),
        ({"min_cited": 0}, r"data\.min_cited=0: must be at least 1"),
        ({"found": "test"}, r"data\.found=test: choose all or train"),
    ],
)
def test_invalid_options(find: Callable[..., GraphQueries], options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        find(**options)
