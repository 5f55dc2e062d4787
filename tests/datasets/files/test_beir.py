"""The BEIR layout: exported corpora are restored unchanged, and other collections can be read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from citerec.base.errors import InputError
from citerec.datasets.files.export import export
from citerec.datasets.inspect import first_authors
from citerec.datasets.prepare import open_corpus
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import Queries, Query
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import content, write_corpus, write_lines
from citerec.tests.datasets.test_store import Source, sources, write

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


@pytest.mark.slow
@settings(max_examples=15)
@given(source=sources())
def test_an_exported_corpus_is_restored_unchanged(source: Source) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        options: dict[str, Any] = {"splits": ["train", "val", "val_more", "test"], "field": "area"}
        made = open_corpus(write(folder / "source", source), cache_dir=folder / "cache", **options)
        export(lambda: made, folder / "beir")
        again = open_corpus(folder / "beir", cache_dir=folder / "cache", **options)
        assert content(again) == content(made) and list(again.words) == list(made.words)
        assert list(again.context_ids) == list(made.context_ids)


def test_a_field_that_is_the_year_comes_back(tmp_path: Path) -> None:
    papers = {"a": {"year": "2001"}, "b": {"year": "2003"}}
    source = write_corpus(tmp_path / "source", papers, {"c": ("test", "a", "b", "So it is TARGETCIT.")})
    options: dict[str, Any] = {"cache_dir": tmp_path / "cache", "field": "year"}
    made = open_corpus(source, **options)
    export(lambda: made, tmp_path / "beir")
    again = open_corpus(tmp_path / "beir", **options)
    assert content(again) == content(made) and list(again.field_names) == ["2001", "2003"]


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
    retriever = BM25()
    retriever.index(corpus)
    found = retriever.search(test.contexts, 6).papers
    assert found[:, 0].tolist() == [0, 1] and not np.isin(found, [3, 4, 5]).any()
    export(lambda: corpus, tmp_path / "again")
    again = open_corpus(tmp_path / "again", cache_dir=tmp_path, candidates=candidates, field="area")
    assert content(again) == content(corpus)


def test_a_document_with_the_querys_id_is_left_out_of_its_ranking_alone(tmp_path: Path) -> None:
    documents = [*DOCUMENTS, {"_id": "q1", "title": "what parses trees?", "text": "what parses trees?"}]
    headless = [line for line in QRELS if not line.startswith("query-id")]
    corpus = open_corpus(beir(tmp_path / "beir", headless, corpus=documents), cache_dir=tmp_path)
    assert corpus.split("test").contexts.tolist() == [0, 1], "without a header the first row counts"
    retriever = BM25()
    retriever.index(corpus)
    own = corpus.paper_row("q1")
    assert own not in retriever.search(corpus.split("test"), 9).papers[0]
    assert own == retriever.search(Queries.from_list(corpus, [Query("what parses trees?")]), 1).papers[0, 0]
    assert own in retriever.search(np.array([2]), 9).papers[0], "other queries find it"


def test_gzipped_files_and_the_authors_of_papers_are_read(tmp_path: Path) -> None:
    folder = beir(tmp_path / "beir")
    before = open_corpus(folder, cache_dir=tmp_path / "one")
    for path in [*folder.glob("*.jsonl"), *folder.glob("qrels/*.tsv")]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    corpus = open_corpus(folder, cache_dir=tmp_path / "two")
    assert content(corpus) == content(before)
    assert corpus.papers_file is not None
    assert first_authors(corpus, corpus.papers_file, "authors") == ["Lee", *[""] * 5]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"corpus": [{"title": "x"}]}, r"corpus\.jsonl, record 0, field '_id': is missing"),
        ({"corpus": [{"_id": "d1", "text": ["x"]}]}, "'d1', field 'text': must be a string, not a list"),
        ({"corpus": [{"_id": "d1", "text": " "}]}, "record 'd1': title and abstract are both empty"),
        ({"corpus": [{"_id": "d1", "text": "x", "metadata": "y"}]}, "field 'metadata': must be an object"),
        ({"corpus": [{"_id": "d1", "text": "x", "metadata": {"year": "soon"}}]}, "'metadata.year': must be"),
        ({"corpus": ["{"]}, r"corpus\.jsonl, line 1: malformed JSON"),
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
    ],
)  # fmt: skip
def test_invalid_files_are_a_one_line_error(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        open_corpus(beir(tmp_path / "beir", **files), cache_dir=tmp_path)
    assert "\n" not in str(raised.value)


def test_bad_records_can_be_skipped(tmp_path: Path) -> None:
    more = [*DOCUMENTS, {"_id": "d4", "title": "", "text": ""}]
    folder = beir(tmp_path / "beir", [*QRELS, "q3\td4\t1"], corpus=more)
    corpus = open_corpus(folder, cache_dir=tmp_path, on_error="skip", max_bad_share=0.5)
    assert "d4" not in corpus.paper_ids and len(corpus.split("test")) == 2
    assert corpus.dropped["split test"]["kinds"] == {"names a dropped record": 1}


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = beir(tmp_path / "beir")
    with pytest.raises(InputError, match=r"qrels: none of train\.tsv, dev\.tsv \(or \.gz\)"):
        open_corpus(folder, cache_dir=tmp_path, splits=["train", "val"])
    (folder / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"no queries\.jsonl or queries\.jsonl\.gz next to corpus\.jsonl"):
        open_corpus(folder, cache_dir=tmp_path)


def test_an_output_below_a_file_names_the_option(tiny_source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file: .*; set output to another folder"):
        export(lambda: open_corpus(tiny_source, cache_dir=tmp_path), tmp_path / "file" / "beir")


@pytest.mark.slow
def test_the_command_exports_into_a_new_folder(
    tiny_source: Path, tmp_path: Path, script: Callable[..., Done]
) -> None:
    options = [
        "data=custom",
        f"data.dir={tiny_source}",
        f"data.cache_dir={tmp_path}",
        f"output={tmp_path / 'beir'}",
    ]
    done = script("data", "export", *options)
    assert done.code == 0, done.err
    assert f"{tmp_path / 'beir'}: 12 papers, 12 queries (train 6, dev 2, test 4)" in done.out
    assert (tmp_path / "beir" / "qrels" / "dev.tsv").read_text().splitlines()[:2] == [
        "query-id\tcorpus-id\tscore",
        "c7\tretrieval\t1",
    ]
    first = json.loads((tmp_path / "beir" / "queries.jsonl").read_text().splitlines()[0])
    assert first["_id"] == "c1" and first["metadata"] == {"citing_id": "citing-train-1"}
    failed = script("data", "export", *options)
    assert failed.code == 2 and "already exists" in failed.err and failed.err.count("\n") == 1
