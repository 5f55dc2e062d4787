"""Files of papers become the graph that they describe, and a corpus whose queries are papers."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.citations.graph import CitationGraph, open_graph, read_paper_lines
from datasets.citations.queries import QuerySet, corpus_of, open_papers, read_query_lists
from datasets.columns import Ragged
from datasets.errors import InputError
from datasets.splitting import RandomSplitting, YearSplitting

PAPERS: list[dict[str, Any]] = [
    {"paper_id": "a", "title": "On A", "abstract": "About a.", "year": 2000, "fields": ["Art"]},
    {
        "paper_id": "b",
        "title": "On B",
        "abstract": " ",
        "year": "2001",
        "fields": "Law",
        "references": ["a", "b"],
    },
    {"paper_id": "c", "title": None, "abstract": "About c.", "references": ["b", "a", "b", "gone"]},
    {"paper_id": "d", "title": "On D", "abstract": "About d.", "year": 2003, "references": ["a", "late", 7]},
    {"paper_id": 7, "title": "", "abstract": "", "year": 1990, "fields": []},
    {
        "paper_id": "late",
        "title": "Late",
        "abstract": "About it.",
        "year": 2009,
        "fields": ["Art", "Law", "Art"],
    },
]
ALL_TRAIN = RandomSplitting(1.0, 0.0, 0.0, seed=0)
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(papers: list[Any], name: str = "papers.jsonl") -> Path:
        path = tmp_path / name
        lines = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in papers) + "\n"
        path.write_bytes(gzip.compress(lines.encode()) if name.endswith(".gz") else lines.encode())
        return path

    return written


def cited(graph: CitationGraph) -> dict[str, list[str]]:
    return {
        graph.ids[row]: [graph.ids[one] for one in found.tolist()] for row, found in enumerate(graph.cites)
    }


@pytest.mark.parametrize("name", ["papers.jsonl", "papers.jsonl.gz"])
def test_the_graph_is_that_of_the_files(write: Write, tmp_path: Path, name: str) -> None:
    path = write(PAPERS, name)
    extra = write([{"paper_id": "x", "title": "X", "abstract": "x" * 40}], "more.jsonl")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("citing\tcited\nlate\tc\nd\ta\nnobody\ta\n")
    for _ in range(2):  # made, and out of the cache
        graph = open_graph(path, pairs, extra, tmp_path / "cache")
        assert list(graph.ids) == ["a", "b", "c", "d", "7", "late", "x"]
        assert cited(graph) == {
            "a": [], "b": ["a"], "c": ["a", "b"], "d": ["a", "7", "late"], "7": [], "late": ["c"], "x": []
        }  # fmt: skip
        assert graph.years.tolist() == [2000, 2001, 0, 2003, 1990, 2009, 0]
        assert graph.titled.tolist() == [True, True, False, True, False, True, True]
        assert graph.abstract_lengths.tolist() == [8, 0, 8, 8, 0, 9, 40]
        assert graph.is_distractor.tolist() == [False] * 6 + [True]
        assert graph.unknown == 2  # c cites what is gone, nobody cites a
        assert graph.citations.tolist() == [3, 1, 1, 0, 1, 1, 0]
        assert [found.tolist() for found in graph.cited_by] == [[1, 2, 3], [2], [5], [], [3], [3], []]
        assert np.flatnonzero(graph.in_field("Law")).tolist() == [1, 5]
    assert len(list((tmp_path / "cache" / "graphs").glob("*/graph.json"))) == 1


NAMES = [f"p{number}" for number in range(6)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from([*NAMES, "gone"]), max_size=8), min_size=1, max_size=6))
def test_citations_are_pairs_of_different_known_papers(references: list[list[str]]) -> None:
    papers = {NAMES[number]: found for number, found in enumerate(references)}
    lines = [json.dumps({"paper_id": name, "references": found}) for name, found in papers.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "papers.jsonl"
        path.write_text("\n".join(lines))
        graph = open_graph(path, cache_dir=folder)
        plain = {
            name: [other for other in papers if other in found and other != name]
            for name, found in papers.items()
        }
        assert cited(graph) == plain
        turned = [sorted(row for row, name in enumerate(papers) if other in plain[name]) for other in papers]
        assert [found.tolist() for found in graph.cited_by] == turned


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"line 2: malformed JSON"),
        ("[1]", r"line 2: must be an object, not a list"),
        ({"title": "x"}, r"line 2, field 'paper_id': is missing"),
        ({"paper_id": "a b"}, r"line 2, field 'paper_id': an id must not be empty or hold white space"),
        ({"paper_id": "x", "year": "soon"}, r"line 2, field 'year': must be a whole number"),
        ({"paper_id": "x", "fields": 3}, r"line 2, field 'fields': must be a string or a list, not a number"),
        (
            {"paper_id": "x", "references": "a"},
            r"line 2, field 'references': must be a list, not a string",
        ),
        ({"paper_id": "x", "references": ["a", None]}, r"'references\[1\]': must be a number or a string"),
    ],
)
def test_a_record_that_cannot_be_used_is_named(write: Write, tmp_path: Path, line: Any, said: str) -> None:
    path = write([PAPERS[0], line])
    with pytest.raises(InputError, match=said) as error:
        open_graph(path, cache_dir=tmp_path / "cache")
    assert "\n" not in str(error.value) and "papers.jsonl" in str(error.value)


def test_files_that_do_not_fit_are_named(write: Write, tmp_path: Path) -> None:
    path = write(PAPERS)
    with pytest.raises(
        InputError, match=r"papers\.jsonl, .*papers\.jsonl: the paper 'a' is there twice \(and 5 more\)"
    ):
        open_graph([path, path], cache_dir=tmp_path)
    with pytest.raises(InputError, match=r"nowhere: no such file"):
        open_graph(path, tmp_path / "nowhere", cache_dir=tmp_path)
    (tmp_path / "pairs.tsv").write_text("a\tb\na\n")
    with pytest.raises(InputError, match=r"pairs\.tsv: not lines of CITING<tab>CITED"):
        open_graph(path, tmp_path / "pairs.tsv", cache_dir=tmp_path)
    with pytest.raises(InputError, match=r"no papers"):
        open_graph(write([], "empty.jsonl"), cache_dir=tmp_path)
    with pytest.raises(InputError, match=r"no paper has the field 'Physics'; there are 'Art', 'Law'"):
        open_graph(path, cache_dir=tmp_path).in_field("Physics")


def test_papers_ask_by_title_and_abstract_for_what_they_cite(write: Write, tmp_path: Path) -> None:
    corpus = open_papers(write(PAPERS), ALL_TRAIN, cache_dir=tmp_path / "cache", name="mine")
    assert list(corpus.paper_ids) == ["a", "b", "c", "d", "late"]  # 7 has no text
    assert corpus.is_candidate.all() and list(corpus.field_names) == ["Art", "Law"]
    split = corpus.split("train")
    found = {
        corpus.context_ids[row]: [corpus.paper_ids[paper] for paper in papers.tolist()]
        for row, papers in zip(split.contexts.tolist(), split.positives, strict=True)
    }
    assert found == {"b": ["a"], "c": ["a", "b"], "d": ["a"]}  # what d cites of 2009 is later than itself
    assert list(corpus.context_texts) == ["TARGETCIT On B", "TARGETCIT About c.", "TARGETCIT About d."]
    assert [corpus.paper_ids[paper] for paper in corpus.citing.tolist()] == ["b", "c", "d"]


def test_splits_are_by_year_or_by_a_list(write: Write, tmp_path: Path) -> None:
    path = write(PAPERS)
    years = YearSplitting([None, 2001], None, [2002, None])
    by_year = open_papers(path, years, cache_dir=tmp_path / "cache")
    assert {split: len(found) for split, found in by_year.splits.items()} == {"train": 1, "test": 1}
    queries = tmp_path / "queries.json"
    queries.write_text(json.dumps({"test": {"Art": ["c"], "Law": ["a"]}, "val": ["d"]}))
    listed = open_papers(path, years, queries, cache_dir=tmp_path / "cache")
    ids = {
        split: [listed.context_ids[row] for row in found.contexts.tolist()]
        for split, found in listed.splits.items()
    }
    assert ids == {"train": ["b"], "val": ["d"], "test": ["c"]}  # a cites nothing


def test_ranges_of_years_and_files_come_from_the_command_line(write: Write, tmp_path: Path) -> None:
    splitting = "data.splitting"
    options = [f"splitting@{splitting}=year", f"{splitting}.train=[null,2001]", f"{splitting}.val=null"]
    options += [
        f"{splitting}.test=[2002,null]",
        f"data.papers=[{write(PAPERS)}]",
        f"data.cache_dir={tmp_path}",
    ]
    options += ["data.near_duplicates=0.5", f"data.held_out=[{write(PAPERS[1:2], 'other.jsonl')}]"]
    with initialize_config_dir(str(Path(__file__).parents[2] / "conf"), version_base="1.3"):
        questions = instantiate(compose("count", options).data)
    asked = {split: some.papers.tolist() for split, some in questions.queries.items()}
    assert asked == {"train": [], "val": [], "test": [3]} and questions.removed.tolist() == [1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", r"must be an object of splits"),
        ("{", r"malformed JSON"),
        ('{"test": {"Art": "a"}}', r"'test': must be a list of ids, or an object of such lists"),
        ('{"test": ["a"], "val": {"Art": ["a"]}}', r"'a' is in 'test' and in 'val'"),
        ('{"test": ["a", "zz", "y"]}', r"queries\.json, 'test': 2 of 3 ids are not in .*: zz, y"),
    ],
)
def test_lists_of_queries_that_cannot_be_used_are_named(
    write: Write, tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "queries.json"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        read_query_lists(path).rows("test", open_graph(write(PAPERS), cache_dir=tmp_path / "cache"))


def test_a_corpus_without_citations_is_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no paper cites another that is in it"):
        open_papers(write(PAPERS[:1]), ALL_TRAIN, cache_dir=tmp_path)


def test_rows_of_a_corpus_are_the_rows_that_were_chosen(write: Write, tmp_path: Path) -> None:
    graph = open_graph(write(PAPERS), cache_dir=tmp_path / "cache")
    asked = {"test": QuerySet(np.array([3]), Ragged.from_rows([[0]]))}
    corpus = corpus_of(graph, np.array([0, 3, 5]), asked, "some", tmp_path / "cache")
    assert list(corpus.paper_ids) == ["a", "d", "late"] and corpus.years.tolist() == [2000, 2003, 2009]
    again = corpus_of(graph, np.array([0, 3, 5]), asked, "some", tmp_path / "cache")
    assert again.fingerprint == corpus.fingerprint
    other = corpus_of(graph, np.array([0, 1, 3]), asked, "some", tmp_path / "cache")
    assert other.fingerprint != corpus.fingerprint


def test_lines_of_our_own_are_read_as_they_are(write: Write) -> None:
    papers = list(read_paper_lines(write(["\ufeff" + json.dumps(PAPERS[0]), "", PAPERS[5]])))
    assert [paper.id for paper in papers] == ["a", "late"]
    assert papers[1].fields == ("Art", "Law") and papers[1].where.endswith("line 3")
