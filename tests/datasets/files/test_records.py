"""Bad records: a one-line error that names file, record and field."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from citerec.base.errors import InputError
from citerec.tests.datasets.conftest import Open

Change = Callable[[Any], object]


def put(record: str | int, field: str, value: object) -> Change:
    return lambda content: content[record].update({field: value})


def drop(record: str | int, field: str) -> Change:
    return lambda content: content[record].pop(field)


CASES: dict[str, list[tuple[Change, str]]] = {
    "papers": [
        (lambda p: p.clear(), "no papers"),
        (lambda p: p.update(x=[]), "record 'x': must be an object, not a list"),
        (put("graph", "title", 3), "record 'graph', field 'title': must be a string, not a number"),
        (put("graph", "title", ["a"]), "record 'graph', field 'title': must be a string, not a list"),
        (put("graph", "abstract", {}), "record 'graph', field 'abstract': must be a string, not an object"),
        (put("graph", "abstract", True), "'abstract': must be a string, not a boolean"),
        (put("bare", "title", " "), "record 'bare': title and abstract are both empty"),
        (drop("bare", "title"), "record 'bare': title and abstract are both empty"),
        (put("graph", "year", "soon"), "record 'graph', field 'year': must be a whole number, not 'soon'"),
        (put("graph", "year", 2001.5), "record 'graph', field 'year': must be a whole number"),
        (put("graph", "year", 10**12), "record 'graph', field 'year': 1000000000000 is out of range"),
        (lambda p: p.update({"a b": p["bare"]}), "record 'a b': an id must not be empty or contain"),
        (lambda p: p.update({"a\0b": p["bare"]}), r"record 'a\x00b': an id must not be empty or contain"),
        (put("graph", "year", {"a": 1}), "'year': must be a whole number, not an object"),
        (put("graph", "year", "9" * 5000), f"'year': must be a whole number, not '{'9' * 79}..."),
        (lambda p: p.update({"": p["bare"]}), "record '': an id must not be empty or contain"),
        (lambda p: p.pop("citing-val"), "record 'c7', field 'citing_id': no paper 'citing-val'"),
        (lambda p: p.pop("parsing"), "record 'c1', field 'refid': no paper 'parsing'"),
    ],
    "contexts": [
        (put("c2", "masked_text", ""), "record 'c2', field 'masked_text': the context is empty"),
        (put("c2", "masked_text", " TARGETCIT\n"), "'masked_text': the context is empty"),
        (put("c2", "masked_text", "no marker"), "exactly once but occurs 0 times"),
        (put("c2", "masked_text", "TARGETCIT and TARGETCIT"), "exactly once but occurs 2 times"),
        (put("c2", "masked_text", None), "record 'c2', field 'masked_text': must be a string, not null"),
        (drop("c2", "masked_text"), "record 'c2', field 'masked_text': is missing"),
        (drop("c2", "citing_id"), "record 'c2', field 'citing_id': is missing"),
        (put("c2", "citing_id", "x"), "record 'c2', field 'citing_id': no paper 'x' in the papers file"),
        (put("c2", "citing_id", 7), "record 'c2', field 'citing_id': must be a string, not a number"),
        (put("c2", "refid", "x"), "record 'c2', field 'refid': no paper 'x' in the papers file"),
        (put("c2", "refid", 7), "record 'c2', field 'refid': must be a string, not a number"),
        (put("c2", "context_id", "x"), "field 'context_id': 'x' differs from the record's key"),
        (lambda c: c.pop("c7"), "val.json, record 0, field 'context_id': no context 'c7'"),
        (put("c8", "citing_id", "citing-train-1"), "'citing-train-1' of context 'c8' is in split 'train'"),
    ],
    "val": [
        (lambda q: q.clear(), "no queries"),
        (put(1, "context_id", "x"), "record 1, field 'context_id': no context 'x' in the contexts file"),
        (put(1, "context_id", None), "record 1, field 'context_id': must be a string, not null"),
        (drop(1, "context_id"), "record 1, field 'context_id': is missing"),
        (drop(1, "positive_ids"), "record 1, field 'positive_ids': is missing"),
        (put(1, "positive_ids", []), "record 1, field 'positive_ids': is empty"),
        (put(1, "positive_ids", "graph"), "'positive_ids': must be a list, not a string"),
        (put(1, "positive_ids", [["graph"]]), "'positive_ids[0]': must be a string, not a list"),
        (put(1, "positive_ids", [1]), "'positive_ids[0]': must be a string, not a number"),
        (put(1, "positive_ids", ["graph", "graph"]), "'positive_ids': a paper appears twice"),
        (put(1, "positive_ids", ["x"]), "record 1, field 'positive_ids': no paper 'x' in the papers file"),
        (lambda q: q.append(q[0]), "record 2, field 'context_id': context 'c7' is already in this split"),
        (put(1, "context_id", "c1"), "field 'context_id': context 'c1' is already in split 'train'"),
        (lambda q: q.append("c1"), "record 2: must be an object, not a string"),
    ],
}  # fmt: skip


@pytest.fixture
def edit(tiny_source: Path) -> Callable[[str, Change], None]:
    """Change the content of one of the files."""

    def change(stem: str, change: Change) -> None:
        file = tiny_source / f"{stem}.json"
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return change


def no_store(tmp_path: Path) -> bool:
    return not [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("stem", "change", "message"), [(stem, *case) for stem, cases in CASES.items() for case in cases]
)
def test_error_names_the_place(
    opened: Open, edit: Any, tiny_source: Path, tmp_path: Path, stem: str, change: Change, message: str
) -> None:
    edit(stem, change)
    with pytest.raises(InputError) as error:
        opened()
    assert message in str(error.value)
    assert str(error.value).startswith(f"{tiny_source}/") and "\n" not in str(error.value)
    assert no_store(tmp_path)


@pytest.mark.parametrize(
    ("venue", "message"),
    [
        (7, "papers.json, record 'graph', field 'venue': must be a string or a list of strings .* a number"),
        (["a", 7], "'venue': must be a string or a list of strings .data.field=venue., not a number"),
        ({"a": "b"}, "'venue': must be a string or a list of strings .*, not an object"),
        ([["a"]], "'venue': must be a string or a list of strings .*, not a list"),
        (None, "papers.json: no paper has the field 'venue' set by data.field"),
    ],
)
def test_a_field_that_cannot_be_used(opened: Open, edit: Any, venue: object, message: str) -> None:
    edit("papers", put("graph", "venue", venue))
    assert opened()  # only an error if data.field is set
    with pytest.raises(InputError, match=message):
        opened(field="venue")


@pytest.mark.parametrize(("stem", "record"), [("papers", "graph"), ("contexts", "c2")])
def test_a_duplicate_record(opened: Open, tiny_source: Path, stem: str, record: str) -> None:
    file = tiny_source / f"{stem}.json"
    text = file.read_text()
    file.write_text(f'{text[:-1]}, "{record}": {json.dumps(json.loads(text)[record])}}}')
    with pytest.raises(InputError, match=f"{stem}.json, record '{record}': .* already exists"):
        opened()


def test_splits_of_one_group_may_share_citing_papers(opened: Open, tiny_source: Path) -> None:
    queries = json.loads((tiny_source / "val.json").read_text())
    (tiny_source / "val.json").write_text(json.dumps(queries[:1]))
    (tiny_source / "val_more.json").write_text(json.dumps(queries[1:]))
    splits = ["train", "val", "test", "val_more"]
    assert [len(opened(splits=splits).splits[name]) for name in splits] == [6, 1, 4, 1]
    (tiny_source / "val_more.json").rename(tiny_source / "extra.json")
    with pytest.raises(InputError, match="'citing-val' of context 'c8' is in split 'val' too"):
        opened(splits=["train", "val", "extra"])


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (["papers"], "no papers.json or papers.json.gz"),
        (["contexts"], "no contexts.json or contexts.json.gz"),
        (["train", "val", "test"], "none of the split files train.json, val.json, test.json"),
    ],
)
def test_missing_files(opened: Open, tiny_source: Path, gone: list[str], message: str) -> None:
    for stem in gone:
        (tiny_source / f"{stem}.json").unlink()
    with pytest.raises(InputError, match=f"{tiny_source}: {message}"):
        opened()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dir": "/no/such/folder"}, "/no/such/folder: no such folder"),
        ({"dir": ""}, "data.dir: set the folder"),
        ({"papers": "/no/such/file"}, "/no/such/file: no such file"),
        ({"tokenizer": "bpe"}, "data.tokenizer=bpe: choose default or reference"),
        ({"candidates": "some"}, "data.candidates=some: choose abstract or all"),
        ({"splits": "train"}, "data.splits: must be a list of names"),
        ({"splits": []}, "data.splits: must be a list of names"),
        ({"splits": ["../train"]}, "data.splits: '../train' is not a valid split name"),
        ({"splits": ["papers"]}, "data.splits: 'papers' is not a valid split name"),
    ],
)
def test_invalid_settings(opened: Open, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        opened(**settings)
    assert message in str(error.value)


def test_a_file_instead_of_a_folder_and_a_folder_instead_of_a_file(opened: Open, tiny_source: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        opened(dir=tiny_source / "papers.json")
    with pytest.raises(InputError, match=r"set data\.cache_dir to another folder"):
        opened(cache_dir=tiny_source / "papers.json")
    (tiny_source / "val.json").unlink()
    (tiny_source / "val.json").mkdir()
    with pytest.raises(InputError, match=r"val\.json: no such file"):
        opened()


def test_no_candidate_is_left(opened: Open, edit: Any) -> None:
    edit("papers", lambda papers: papers.update({key: {"title": key} for key in papers}))
    with pytest.raises(InputError, match=r"no paper has an abstract.*data\.candidates=all"):
        opened()
    assert opened(candidates="all").is_candidate.all()


def test_a_huge_abstract_is_kept_whole(opened: Open, edit: Any) -> None:
    edit("papers", put("graph", "abstract", "wordy " * 20_000))
    corpus = opened()
    assert corpus.abstracts[1] == "wordy " * 20_000
    assert corpus.abstract_tokens.lengths[1] == 20_000 and corpus.words[0] == "wordy"


def test_papers_without_a_title_are_counted_once(
    opened: Open, edit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    edit("papers", put("graph", "title", ""))
    edit("papers", put("speech", "title", " "))
    with caplog.at_level(logging.WARNING, "datasets"):
        for _ in range(2):
            opened()
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "2 of 12 papers have no title; only their abstract is read, if any"
    ]


def test_an_unreachable_target_is_reported(opened: Open, edit: Any, caplog: pytest.LogCaptureFixture) -> None:
    edit("val", put(0, "positive_ids", ["bare"]))
    edit("val", put(1, "positive_ids", ["citing-val"]))
    with caplog.at_level(logging.WARNING, "datasets"):
        opened()
    assert "2 citations of non-candidates, or of the citing paper itself" in caplog.text


@pytest.mark.parametrize("year", [None, "", "1999", 1999, 1999.0])
def test_years_as_published_files_have_them(opened: Open, edit: Any, year: object) -> None:
    edit("papers", put("graph", "year", year))
    assert opened().years[1] == (1999 if year else 0)
