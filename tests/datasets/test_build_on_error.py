"""datasets.build on_error=skip: records of full texts that cannot be used are left out, counted and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datasets.build import build_corpus
from datasets.errors import InputError
from datasets.prepare import open_corpus
from datasets.splitting import RandomSplitting

TEXTS = Path(__file__).parent / "fulltexts"
TRAIN = RandomSplitting(1, 0, 0, seed=0)
BAD = {
    "lines.jsonl": [
        ('{"id": "a"', "line 1: malformed JSON"),
        ('["id"]', "line 2: must be an object, not a list"),
        ('{"id": "a", "title": 3}', "line 3, field 'title': must be a string, not a number"),
        ('{"id": "c d"}', "line 4, field 'id': an id must not be empty"),
        ('{"key": 3}', "line 5: has neither 'id'"),
    ],
    "paper.xml": [("<TEI", "malformed XML")],
    "paper.tex": [
        ("\\documentclass{a}\\def\\a{\\a\\a}\\begin{document}\\a", "the macro \\a is replaced without end")
    ],
}
LATE = {"title": "Late", "abstract": "Its text cannot be used.", "body": [{"text": 3}]}
"""Found bad when the contexts are cut."""


def texts_with(folder: Path, bad: dict[str, str]) -> str:
    """The good papers of the tests, each between two bad ones."""
    folder.mkdir()
    (folder / "good.jsonl").write_bytes((TEXTS / "papers.jsonl").read_bytes())
    (folder / "1911.00042.xml").write_bytes((TEXTS / "1911.00042.grobid.tei.xml").read_bytes())
    for name, text in bad.items():
        (folder / name).write_text(text)
    return str(folder)


def build(source: str, output: Path, **settings: Any) -> Any:
    return build_corpus(source, output, TRAIN, window=60, shortest=20, **settings)


def test_bad_records_are_left_out_and_named(tmp_path: Path) -> None:
    clean = build(texts_with(tmp_path / "clean", {}), tmp_path / "a")
    assert clean.skipped.left_out == 0
    bad = {name: "\n".join(text for text, _ in cases) for name, cases in BAD.items()}
    bad["late.jsonl"] = (
        json.dumps({"id": "late", **LATE}) + "\n" + json.dumps({"id": "good", **LATE, "body": []})
    )
    source = texts_with(tmp_path / "source", bad)
    with pytest.raises(
        InputError, match=r"late\.jsonl, line 1, field 'body\[0\]|lines\.jsonl, line 1: malformed JSON"
    ):
        build(source, tmp_path / "b")
    report = build(source, tmp_path / "b", on_error="skip", max_bad_share=0.6)
    assert report.skipped.left_out == 8 and report.skipped.read == clean.skipped.read + 1
    said = [
        *(message for cases in BAD.values() for _, message in cases),
        "field 'body[0].text': must be a string",
    ]
    for message in said:
        assert sum(message in example for example in report.skipped.examples) == 1, message
    written = json.loads((tmp_path / "b" / "report.json").read_text())["records"]
    assert written["left_out"] == 8 and written["examples"] == report.skipped.examples
    assert "8 cannot be used" in (tmp_path / "b" / "report.md").read_text()
    assert "8 records cannot be used" in report.summary()
    found, expected = (open_corpus(tmp_path / name, cache_dir=tmp_path / "cache") for name in ("b", "a"))
    assert list(found.context_texts) == list(expected.context_texts)
    assert set(found.paper_ids) - set(expected.paper_ids) == {"late", "good"}


def test_too_many_are_refused(tmp_path: Path) -> None:
    source = texts_with(tmp_path / "source", {"lines.jsonl": "{\n{"})
    records = build(texts_with(tmp_path / "clean", {}), tmp_path / "a").skipped.read + 2
    message = (
        rf"source: 2 of {records} records .* cannot be used, more than max_bad_share=0\.1 allows; the first: "
    )
    with pytest.raises(InputError, match=message + r"\S+/lines\.jsonl, line 1: malformed JSON"):
        build(source, tmp_path / "b", on_error="skip", max_bad_share=0.1)
    assert not (tmp_path / "b").exists()
    late = texts_with(tmp_path / "late", {"late.jsonl": json.dumps({"id": "late", **LATE})})
    with pytest.raises(InputError, match=r"source: 1 of .*body"):
        build(late, tmp_path / "b", on_error="skip", max_bad_share=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_error": "drop"}, "on_error: 'drop' is not one of raise, skip"),
        ({"max_bad_share": 2}, "max_bad_share: must be a share of 0 to 1, not 2"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        build(str(TEXTS), tmp_path / "out", **settings)
    assert str(error.value) == message
