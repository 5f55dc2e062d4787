"""data.on_error=skip: bad records are dropped and counted by kind, up to a share of each file."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.inspect.report import inspect_corpus
from datasets.prepare import open_corpus
from datasets.records import EXAMPLES
from tests.conftest import PAPERS


def skipping(folder: Path, share: float = 1.0, **settings: Any) -> Corpus:
    return open_corpus(
        folder, cache_dir=folder.parent / "cache", on_error="skip", max_bad_share=share, **settings
    )


def kinds(corpus: Corpus) -> dict[str, dict[str, int]]:
    """Of the parts that lost records."""
    return {part: counts["kinds"] for part, counts in corpus.dropped.items() if counts["kinds"]}


def change(folder: Path, stem: str, **records: Any) -> None:
    """Put records into a file, in place of those of the same key."""
    file = folder / f"{stem}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | records))


def queries(corpus: Corpus) -> dict[str, list[str]]:
    return {
        name: [corpus.context_ids[row] for row in split.contexts] for name, split in corpus.splits.items()
    }


def without(record: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != field}


def test_bad_records_are_counted_by_kind_and_with_them_what_names_them(tiny_source: Path) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    contexts = json.loads((tiny_source / "contexts.json").read_text())
    change(
        tiny_source, "papers", vision=papers["vision"] | {"title": 3}, poetry=papers["poetry"] | {"year": "?"}
    )
    change(
        tiny_source,
        "contexts",
        c1=without(contexts["c1"], "citing_id"),
        c2=contexts["c2"] | {"masked_text": "as TARGETCIT and TARGETCIT"},
        c7=contexts["c7"] | {"refid": "nobody"},
    )
    text = (tiny_source / "contexts.json").read_text()
    again = json.dumps(contexts["c3"])
    (tiny_source / "contexts.json").write_text(f'{text[:-1]}, "c3": {again}, "c 13": {again}}}')
    (tiny_source / "val.json").write_text(
        json.dumps(
            [
                {"context_id": "c7", "positive_ids": ["graph"]},
                {"context_id": "c8", "positive_ids": ["graph"]},
                {"context_id": "c8", "positive_ids": ["graph"]},
                {"context_id": "c3", "positive_ids": ["graph"]},
                {"context_id": "c99", "positive_ids": ["graph"]},
                {"context_id": "c9", "positive_ids": ["graph", "vision"]},
                {"context_id": "c9", "positive_ids": ["graph", "nobody"]},
                {"context_id": "c9", "positive_ids": []},
                "c9",
            ]
        )
    )
    corpus = skipping(tiny_source)
    # c5 and c12 cite a dropped paper, c11 too.
    assert kinds(corpus) == {
        "papers": {"wrong type": 1, "wrong value": 1},
        "contexts": {
            "names a dropped record": 3,
            "missing field": 1,
            "wrong number of markers": 1,
            "unknown paper": 1,
            "duplicate id": 1,
            "unusable id": 1,
        },
        "split train": {"names a dropped record": 3},
        "split val": {
            "names a dropped record": 2,
            "in two splits": 2,
            "unknown context": 1,
            "unknown paper": 1,
            "empty": 1,
            "wrong type": 1,
        },
        "split test": {"names a dropped record": 2},
    }
    assert {part: counts["records"] for part, counts in corpus.dropped.items()} == {
        "papers": 12, "contexts": 14, "split train": 6, "split val": 9, "split test": 4,
    }  # fmt: skip
    assert list(corpus.paper_ids) == [paper for paper in PAPERS if paper not in ("vision", "poetry")]
    assert list(corpus.context_ids) == ["c3", "c4", "c6", "c8", "c9", "c10"]
    assert queries(corpus) == {"train": ["c3", "c4", "c6"], "val": ["c8"], "test": ["c9", "c10"]}


def test_what_is_left_is_the_corpus_without_the_bad_records(tiny_source: Path, tmp_path: Path) -> None:
    """The same store as of files that never had them."""
    papers, contexts = (
        {**json.loads((tiny_source / f"{stem}.json").read_text())} for stem in ("papers", "contexts")
    )
    clean = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    change(tiny_source, "papers", extra={"title": []})
    change(tiny_source, "contexts", extra=without(contexts["c1"], "masked_text"))
    corpus = skipping(tiny_source)
    assert list(corpus.paper_ids) == list(papers) and list(corpus.context_ids) == list(contexts)
    for file in sorted(clean.path.iterdir()):
        if file.name != "store.json":
            assert (corpus.path / file.name).read_bytes() == file.read_bytes(), file.name


def test_examples_are_kept_with_the_store(tiny_source: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = {f"bad{number}": {"title": number} for number in range(EXAMPLES + 5)}
    change(tiny_source, "papers", **bad, empty={})
    with caplog.at_level(logging.WARNING, "datasets"):
        corpus = skipping(tiny_source)
    lines = [json.loads(line) for line in (corpus.path / "dropped.jsonl").read_text().splitlines()]
    assert len(lines) == EXAMPLES + 1
    assert lines[0] == {
        "file": "papers.json",
        "record": "bad0",
        "field": "title",
        "kind": "wrong type",
        "reason": "must be a string, not a number",
    }
    assert lines[-1]["record"] == "empty" and lines[-1]["field"] is None
    table, later = caplog.messages
    assert str(corpus.path / "dropped.jsonl") in table
    assert [line.split() for line in table.splitlines()[2:]] == [
        ["papers.json", "wrong", "type", "25", "65.79%"], ["papers.json", "empty", "1", "2.63%"],
    ]  # fmt: skip
    assert later == "corpus tiny: bad records were left out: 26 of 38 in papers.json"
    caplog.clear()
    with caplog.at_level(logging.WARNING, "datasets"):
        assert skipping(tiny_source).dropped == corpus.dropped
    assert caplog.messages == [later]


def test_too_many_are_refused(tiny_source: Path, tmp_path: Path) -> None:
    change(tiny_source, "papers", a={"title": 1}, b={"title": 2}, c={"title": "c", "year": "?"})
    message = (
        f"{tiny_source}/papers.json: 3 of 15 records (20.00%) are bad, more than data.max_bad_share=0.19 "
        "allows; the commonest kind is 'wrong type' (2)"
    )
    with pytest.raises(InputError) as error:
        skipping(tiny_source, 0.19)
    assert str(error.value) == message
    assert not [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()]
    assert len(skipping(tiny_source, 0.2).paper_ids) == 12
    with pytest.raises(InputError) as error:  # the store is there
        skipping(tiny_source, 0.19)
    assert str(error.value) == message
    with pytest.raises(InputError, match=r"record 'a', field 'title': must be a string, not a number"):
        open_corpus(tiny_source, cache_dir=tmp_path / "cache")


def test_what_follows_of_bad_records_counts_too(tiny_source: Path) -> None:
    change(
        tiny_source, "papers", parsing={"title": 1}, **{f"p{number}": {"title": "x"} for number in range(100)}
    )
    with pytest.raises(
        InputError, match=r"contexts.json: 4 of 12 records \(33.33%\).*'names a dropped record' \(4\)"
    ):
        skipping(tiny_source, 0.05)


def test_a_file_whose_structure_is_broken_cannot_be_skipped(tiny_source: Path) -> None:
    text = (tiny_source / "papers.json").read_text()
    for broken in (
        text[:-1],
        text.replace('"Graph networks"', '"Graph networks', 1),
        text.replace("},", "}", 1),
    ):
        (tiny_source / "papers.json").write_text(broken)
        with pytest.raises(InputError, match=r"^\S+/papers.json: malformed JSON at") as error:
            skipping(tiny_source)
        assert "\n" not in str(error.value)


def test_a_store_of_its_own(tiny_source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    strict = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    assert strict.dropped == {}
    with caplog.at_level(logging.WARNING, "datasets"):
        lenient = skipping(tiny_source)
    assert lenient.fingerprint != strict.fingerprint and not kinds(lenient) and not caplog.messages
    assert skipping(tiny_source, 0.5).path == lenient.path


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_error": "ignore"}, "data.on_error: 'ignore' is not one of raise, skip"),
        ({"on_error": None}, "data.on_error: None is not one of raise, skip"),
        ({"max_bad_share": 1.5}, "data.max_bad_share: must be a share of 0 to 1, not 1.5"),
        ({"max_bad_share": float("nan")}, "data.max_bad_share: must be a share of 0 to 1, not nan"),
        ({"max_bad_share": "1%"}, "data.max_bad_share: must be a share of 0 to 1, not '1%'"),
    ],
)
def test_settings_that_cannot_be(tiny_source: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        open_corpus(tiny_source, cache_dir=tiny_source.parent / "cache", **settings)
    assert str(error.value) == message


def test_an_inspection_counts_them_and_reads_past_them(tiny_source: Path, tmp_path: Path) -> None:
    text = (tiny_source / "papers.json").read_text()
    bad = '"b": {"title": 3}, "c": {"title": 4, "authors": "x", "authors": "y"}, '
    last = ', "last": {"title": "Last", "authors": ["x"], "authors": ["Zoe Last"]}}'
    (tiny_source / "papers.json").write_text("{" + bad + text[1:-1] + last)
    inspect_corpus(lambda: skipping(tiny_source), tmp_path / "out")
    found = json.loads((tmp_path / "out" / "inspect.json").read_text())
    assert found["dropped/wrong_type/papers.json"] == 2
    assert found["dropped/wrong_type/papers.json/examples"] == ["b", "c"]
    assert found["dropped/wrong_type/contexts.json"] == 0
    assert found["papers/papers/all"] == 13 and found["papers/no_authors/all"] == 12  # the last one has
