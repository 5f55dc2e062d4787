"""Collections in the BEIR layout."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.datasets.prepare import open_corpora, open_corpus
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import Queries, Query
from citerec.tests.datasets.conftest import content, write_lines

DOCUMENTS: list[dict[str, Any]] = [
    {"_id": "d1", "title": "Parsing", "text": "A parser for trees.", "metadata": {"authors": ["A. Lee"]}},
    {
        "_id": "d2",
        "title": "",
        "text": "Sound becomes phonemes.",
        "metadata": {"year": 2001, "area": "speech"},
    },
    {"_id": 3, "title": "Only a title about verse", "text": ""},
]
QUERIES: list[dict[str, Any]] = [
    {"_id": "q1", "text": "what parses trees?"},
    {
        "_id": "q2",
        "text": "Sound TARGETCIT.",
        "metadata": {"title": "On speech", "abstract": "Ours.", "year": 2020},
    },
    {"_id": "q3", "text": "parsing sound", "metadata": None},
]
QRELS = ["query-id\tcorpus-id\tscore", "q1\td1\t2", "q2\td2\t1", "q1\t3\t1", "q2\td1\t0"]


def beir(folder: Path, qrels: Sequence[str] = QRELS, **files: Sequence[Any]) -> Path:
    """Write `corpus` and `queries`, by default those above, and qrels/test.tsv to a folder."""
    (folder / "qrels").mkdir(parents=True)
    for name, lines in {"corpus": DOCUMENTS, "queries": QUERIES, **files}.items():
        write_lines(folder / f"{name}.jsonl", lines)
    write_lines(folder / "qrels" / "test.tsv", qrels)
    return folder


@pytest.mark.parametrize("candidates", ["all", "abstract"])
def test_queries_of_other_collections_get_an_implicit_citing_paper(tmp_path: Path, candidates: str) -> None:
    corpus = open_corpus(beir(tmp_path / "beir"), cache_dir=tmp_path, candidates=candidates, field="area")
    assert list(corpus.paper_ids) == ["d1", "d2", "3", "query/q1", "query/q2", "query/q3"]
    assert corpus.is_candidate.tolist() == [True, True, candidates == "all", False, False, False]
    assert corpus.context_texts[:] == [
        "TARGETCIT what parses trees?",
        "Sound TARGETCIT.",
        "TARGETCIT parsing sound",
    ]
    assert [corpus.paper_ids[row] for row in corpus.citing] == ["query/q1", "query/q2", "query/q3"]
    assert (corpus.titles[4], corpus.abstracts[4], corpus.years[4]) == ("On speech", "Ours.", 2020)
    assert (corpus.titles[3], corpus.abstracts[3], corpus.years[1]) == ("", "", 2001)
    test = corpus.split("test")
    assert test.contexts.tolist() == [0, 1] and [row.tolist() for row in test.positives] == [[0, 2], [1]]
    assert list(corpus.field_names) == ["speech"]
    retriever = BM25().index(corpus)
    result = retriever.search(test.contexts, 6).papers
    assert result[:, 0].tolist() == [0, 1] and not np.isin(result, [3, 4, 5]).any()


def test_a_query_may_name_its_citing_paper_and_a_field_may_be_the_year(tmp_path: Path) -> None:
    queries = [{"_id": "q1", "text": "So it is TARGETCIT.", "metadata": {"citing_id": "d1"}}, *QUERIES[1:]]
    corpus = open_corpus(beir(tmp_path / "beir", queries=queries), cache_dir=tmp_path, field="area")
    assert corpus.paper_ids[corpus.citing[0]] == "d1" and len(corpus.paper_ids) == 5
    queries[0]["metadata"]["citing_id"] = 3  # a whole number, as the document has
    corpus = open_corpus(beir(tmp_path / "number", queries=queries), cache_dir=tmp_path)
    assert corpus.paper_ids[corpus.citing[0]] == "3"
    documents = [DOCUMENTS[0], {**DOCUMENTS[1], "metadata": {"year": "2001"}}, DOCUMENTS[2]]
    corpus = open_corpus(beir(tmp_path / "dated", corpus=documents), cache_dir=tmp_path, field="year")
    assert list(corpus.field_names) == ["2001"] and corpus.years[1] == 2001


def test_a_document_with_the_querys_id_is_left_out_of_its_ranking_alone(tmp_path: Path) -> None:
    documents = [*DOCUMENTS, {"_id": "q1", "title": "what parses trees?", "text": "what parses trees?"}]
    headless = [line for line in QRELS if not line.startswith("query-id")]
    corpus = open_corpus(beir(tmp_path / "beir", headless, corpus=documents), cache_dir=tmp_path)
    assert corpus.split("test").contexts.tolist() == [0, 1], "without a header the first row counts"
    retriever = BM25().index(corpus)
    own = corpus.paper_row("q1")
    assert own not in retriever.search(corpus.split("test"), 9).papers[0]
    assert own == retriever.search(Queries.from_list(corpus, [Query("what parses trees?")]), 1).papers[0, 0]
    assert own in retriever.search(np.array([2]), 9).papers[0], "other queries find it"
    folders = [tmp_path / "beir", beir(tmp_path / "z")]  # the second has no such document
    both = open_corpora(folders, cache_dir=tmp_path)
    queries = both.split("test").contexts
    assert both.own_papers(queries[:1]).tolist() == [both.paper_row("beir/q1")]
    assert both.own_papers(queries[1:]).tolist() == both.citing[queries[1:]].tolist()


def test_grades_and_queries_without_a_relevant_paper_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    qrels = ["query-id\tcorpus-id\tscore", "q1\td1\t2", "q2\td2\t0"]
    assert len(open_corpus(beir(tmp_path / "beir", qrels), cache_dir=tmp_path).split("test")) == 1
    assert "test.tsv: 1 of 2 queries have no relevant paper and are left out" in caplog.text
    assert "test.tsv: has grades; papers scored above 0 are all equally relevant here" in caplog.text


def test_documents_without_words_are_no_candidates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    empty = {"_id": "d4", "title": " ", "text": ""}
    folder = beir(tmp_path / "beir", [*QRELS, "q3\td4\t1"], corpus=[*DOCUMENTS, empty])
    corpus = open_corpus(folder, cache_dir=tmp_path, candidates="all")
    assert corpus.is_candidate.tolist() == [True] * 3 + [False] * 4
    assert "1 of 3 papers have no title" in caplog.text, "d2, of three candidates"
    assert "1 citations of non-candidates" in caplog.text


def test_gzipped_files_are_read(tmp_path: Path) -> None:
    folder = beir(tmp_path / "beir")
    before = open_corpus(folder, cache_dir=tmp_path / "one")
    for path in [*folder.glob("*.jsonl"), *folder.glob("qrels/*.tsv")]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    corpus = open_corpus(folder, cache_dir=tmp_path / "two")
    assert content(corpus) == content(before)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"corpus": [{"title": "x"}]}, r"corpus\.jsonl, record 0, field '_id': is missing"),
        ({"corpus": [{"_id": "d1", "text": ["x"]}]}, "'d1', field 'text': must be a string, not a list"),
        ({"corpus": [{"_id": "d1", "text": " "}]}, "record 'd1': title and abstract are both empty"),
        ({"corpus": [{"_id": "d1", "text": "x", "metadata": "y"}]}, "field 'metadata': must be an object"),
        ({"corpus": [{"_id": "d1", "text": "x", "metadata": {"year": "soon"}}]}, "'metadata.year': must be"),
        ({"corpus": ["{"]}, r"corpus\.jsonl, line 1: malformed JSON"),
        ({"queries": [{"_id": "q1", "text": "a TARGETCIT TARGETCIT"}]}, "'q1', field 'text': TARGETCIT must"),
        ({"queries": [{"_id": "q1"}]}, r"queries\.jsonl, record 'q1', field 'text': is missing"),
        ({"queries": [{"_id": "q1", "text": ""}]}, r"queries\.jsonl, record 'q1'.*: the context is empty"),
        ({"queries": [{"_id": "q1", "text": "x", "metadata": {"citing_id": "d9"}}]}, "no document 'd9'"),
        ({"qrels": ["query\tdocument\tscore"]}, r"test\.tsv, line 1: must be query-id, corpus-id and a "),
        ({"qrels": [QRELS[0], "q1 d1 1"]}, r"test\.tsv, line 2: must be query-id, corpus-id and a whole"),
        ({"qrels": [QRELS[0], "q1\td1\tx"]}, r"test\.tsv, line 2: must be query-id, corpus-id and a whole"),
        ({"qrels": ["q1\td1\t" + "9" * 5000]}, r"test\.tsv, line 1: must be query-id, corpus-id and a whole"),
        (
            {"qrels": [QRELS[0], "q1\td9\t1"]},
            r"test\.tsv, record 'q1', field 'corpus-id': no document 'd9' in corpus\.jsonl",
        ),
        (
            {"qrels": [QRELS[0], "q9\td1\t1"]},
            r"test\.tsv, record 'q9', field 'query-id': no query 'q9' in queries\.jsonl",
        ),
        ({"qrels": [QRELS[0], "q1\td1\t0"]}, r"test\.tsv: no queries"),
        (
            {"qrels": [*QRELS, "q2\td2\t1"]},
            r"test\.tsv, record 'q2', field 'corpus-id': a paper appears twice: 'd2'",
        ),
    ],
)  # fmt: skip
def test_invalid_files_are_a_one_line_error(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        open_corpus(beir(tmp_path / "beir", **files), cache_dir=tmp_path)
    assert "\n" not in str(raised.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = beir(tmp_path / "beir")
    with pytest.raises(InputError, match=r"qrels: none of train\.tsv, dev\.tsv \(or \.gz\)"):
        open_corpus(folder, cache_dir=tmp_path, splits=["train", "val"])
    (folder / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"no queries\.jsonl or queries\.jsonl\.gz next to corpus\.jsonl"):
        open_corpus(folder, cache_dir=tmp_path)
