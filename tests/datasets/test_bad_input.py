"""Bad source files: one line that names file, record and field, and no store."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datasets.errors import InputError
from datasets.prepare import open_corpus

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
        (lambda p: p.update({"a b": p["bare"]}), "record 'a b': an id must not be empty or hold"),
        (lambda p: p.update({"a\0b": p["bare"]}), r"record 'a\x00b': an id must not be empty or hold"),
        (put("graph", "year", {"a": 1}), "'year': must be a whole number, not an object"),
        (put("graph", "year", "9" * 5000), f"'year': must be a whole number, not '{'9' * 79}..."),
        (lambda p: p.update({"": p["bare"]}), "record '': an id must not be empty or hold"),
        (lambda p: p.pop("citing-val"), "record 'c7', field 'citing_id': no paper 'citing-val'"),
        (lambda p: p.pop("parsing"), "record 'c1', field 'refid': no paper 'parsing'"),
    ],
    "contexts": [
        (put("c2", "masked_text", ""), "record 'c2', field 'masked_text': the context is empty"),
        (put("c2", "masked_text", " TARGETCIT\n"), "'masked_text': the context is empty"),
        (put("c2", "masked_text", "no marker"), "exactly once, it is there 0 times"),
        (put("c2", "masked_text", "TARGETCIT and TARGETCIT"), "exactly once, it is there 2 times"),
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
        (put(1, "positive_ids", "graph"), "'positive_ids': must be a list of paper ids, not a string"),
        (put(1, "positive_ids", [["graph"]]), "'positive_ids': must hold paper ids (strings), not a list"),
        (put(1, "positive_ids", [1]), "'positive_ids': must hold paper ids (strings), not a number"),
        (put(1, "positive_ids", ["graph", "graph"]), "'positive_ids': a paper is there twice"),
        (put(1, "positive_ids", ["x"]), "record 1, field 'positive_ids': no paper 'x' in the papers file"),
        (lambda q: q.append(q[0]), "record 2, field 'context_id': context 'c7' is in this split"),
        (put(1, "context_id", "c1"), "record 1, field 'context_id': context 'c1' is in split 'train'"),
        (lambda q: q.append("c1"), "record 2: must be an object, not a string"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("stem", "change", "message"), [(stem, *case) for stem, cases in CASES.items() for case in cases]
)
def test_error_names_the_place(
    tiny_source: Path, tmp_path: Path, stem: str, change: Change, message: str
) -> None:
    file = tiny_source / f"{stem}.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(InputError) as error:
        open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    assert message in str(error.value)
    assert str(error.value).startswith(f"{tiny_source}/") and "\n" not in str(error.value)
    assert not [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("venue", "message"),
    [
        (7, "papers.json, record 'graph', field 'venue': must be a string or a list of strings, as .*number"),
        (["a", 7], "'venue': must be a string or a list of strings, as data.field=venue says, not a number"),
        ({"a": "b"}, "'venue': must be a string or a list of strings, .*, not an object"),
        ([["a"]], "'venue': must be a string or a list of strings, .*, not a list"),
        (None, "papers.json: no paper has the field 'venue' that data.field names"),
    ],
)
def test_a_field_that_cannot_be_used(tiny_source: Path, tmp_path: Path, venue: object, message: str) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    papers["graph"]["venue"] = venue
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    assert open_corpus(tiny_source, cache_dir=tmp_path / "cache")  # who does not ask for it is not bothered
    with pytest.raises(InputError, match=message):
        open_corpus(tiny_source, cache_dir=tmp_path / "cache", field="venue")


@pytest.mark.parametrize(("stem", "record"), [("papers", "graph"), ("contexts", "c2")])
def test_a_record_that_is_there_twice(tiny_source: Path, tmp_path: Path, stem: str, record: str) -> None:
    file = tiny_source / f"{stem}.json"
    text = file.read_text()
    again = json.dumps(json.loads(text)[record])
    file.write_text(f'{text.rstrip()[:-1]}, "{record}": {again}}}')
    with pytest.raises(InputError, match=f"{stem}.json, record '{record}': .* is there already"):
        open_corpus(tiny_source, cache_dir=tmp_path / "cache")


def test_splits_of_one_group_may_share_citing_papers(tiny_source: Path, tmp_path: Path) -> None:
    queries = json.loads((tiny_source / "val.json").read_text())
    (tiny_source / "val.json").write_text(json.dumps(queries[:1]))
    (tiny_source / "val_more.json").write_text(json.dumps(queries[1:]))
    splits = ["train", "val", "test", "val_more"]
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", splits=splits)
    assert [len(corpus.splits[name]) for name in splits] == [6, 1, 4, 1]
    (tiny_source / "val_more.json").rename(tiny_source / "extra.json")
    with pytest.raises(InputError, match="'citing-val' of context 'c8' is in split 'val' too"):
        open_corpus(tiny_source, cache_dir=tmp_path / "cache", splits=["train", "val", "extra"])


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (["papers"], "no papers.json or papers.json.gz"),
        (["contexts"], "no contexts.json or contexts.json.gz"),
        (["train", "val", "test"], "none of the split files train.json, val.json, test.json"),
    ],
)
def test_missing_files(tiny_source: Path, tmp_path: Path, gone: list[str], message: str) -> None:
    for stem in gone:
        (tiny_source / f"{stem}.json").unlink()
    with pytest.raises(InputError, match=f"{tiny_source}: {message}"):
        open_corpus(tiny_source, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dir": "/no/such/folder"}, "/no/such/folder: no such folder"),
        ({"dir": ""}, "data.dir: name the folder"),
        ({"papers": "/no/such/file"}, "/no/such/file: no such file"),
        ({"tokenizer": "bpe"}, "data.tokenizer: no tokeniser 'bpe'; choose from default, reference"),
        ({"candidates": "some"}, "data.candidates: 'some' is not one of abstract, all"),
        ({"splits": "train"}, "data.splits: must be a list of names"),
        ({"splits": []}, "data.splits: must be a list of names"),
        ({"splits": ["../train"]}, "data.splits: '../train' is no name of a split"),
        ({"splits": ["papers"]}, "data.splits: 'papers' is no name of a split"),
    ],
)
def test_settings_that_cannot_be(
    tiny_source: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        open_corpus(**({"dir": tiny_source, "cache_dir": tmp_path / "cache"} | settings))
    assert message in str(error.value)


def test_a_file_in_the_place_of_a_folder_and_a_folder_in_the_place_of_a_file(
    tiny_source: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no such folder"):
        open_corpus(tiny_source / "papers.json", cache_dir=tmp_path / "cache")
    with pytest.raises(InputError, match=r"set data\.cache_dir to another folder"):
        open_corpus(tiny_source, cache_dir=tiny_source / "papers.json")
    (tiny_source / "val.json").unlink()
    (tiny_source / "val.json").mkdir()
    with pytest.raises(InputError, match=r"val\.json: no such file"):
        open_corpus(tiny_source, cache_dir=tmp_path / "cache")


def test_no_candidate_is_left(tiny_source: Path, tmp_path: Path) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    (tiny_source / "papers.json").write_text(json.dumps({key: {"title": key} for key in papers}))
    with pytest.raises(InputError, match=r"no paper has an abstract.*data\.candidates=all"):
        open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    assert open_corpus(tiny_source, cache_dir=tmp_path / "cache", candidates="all").is_candidate.all()


def test_a_huge_abstract_is_kept_whole(
    tiny_source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    papers["graph"]["abstract"] = "wordy " * 20_000
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    with caplog.at_level(logging.WARNING, "datasets"):
        corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    assert len(caplog.records) == 1 and "1 papers of 50000 characters or more" in caplog.text
    assert corpus.abstracts[1] == papers["graph"]["abstract"]
    assert corpus.abstract_tokens.lengths[1] == 20_000 and corpus.words[0] == "wordy"


def test_a_cited_paper_that_cannot_be_found_is_reported(
    tiny_source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queries = json.loads((tiny_source / "val.json").read_text())
    queries[0]["positive_ids"], queries[1]["positive_ids"] = ["bare"], ["citing-val"]
    (tiny_source / "val.json").write_text(json.dumps(queries))
    with caplog.at_level(logging.WARNING, "datasets"):
        open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    assert "2 citations of a paper that is no candidate, or of the citing paper itself" in caplog.text


@pytest.mark.parametrize("year", [None, "", "1999", 1999, 1999.0])
def test_years_as_published_files_have_them(tiny_source: Path, tmp_path: Path, year: object) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    papers["graph"]["year"] = year
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    assert corpus.years[1] == (1999 if year else 0)
