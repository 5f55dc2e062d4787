"""Layouts of JSON lines: all yield the same papers, spans and references; invalid records are one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from citerec.base.errors import InputError
from citerec.datasets.building.readers import find_files, read_documents
from citerec.formats.documents import Document, FullText, Metadata, Reference
from citerec.formats.names import surname
from citerec.tests.datasets.conftest import write_lines

MARKERS = {"[1]": "b0", "[2": "b1", "3]": "b2"}
BODY: list[tuple[str, str, dict[str, Any]]] = [
    ("1 Introduction", "Trees 😀 are old: Nivre [1] began, others followed [2, 3].", MARKERS),
    ("1 Introduction", "Also see [9].", {"[9]": None}),
    ("2 Method", "Ours is trained as usual [2].", {"[2]": "b1"}),
]
"""Section, text, and what the markers cite."""
TITLES = {"b0": "Deterministic Dependency Parsing", "b1": "Graph Networks for Structured Text"}
TITLES |= {"b2": "Neural Parsing"}
AUTHORS = {"b0": ["J. Nivre", "M. Scholz"], "b1": ["Ji-woo Kim"], "b2": ["K. Lee"]}
YEARS = {"b0": 2004, "b1": 2017, "b2": 2018}
CITED = {"b0": "nivre", "b1": "kim", "b2": ""}
TITLE, ABSTRACT = "Parsing spoken queries", "We parse queries."


def spans(text: str, markers: dict[str, str | None], name: str) -> list[dict[str, Any]]:
    return [{"start": text.index(m), "end": text.index(m) + len(m), name: ref} for m, ref in markers.items()]


def own() -> list[dict[str, Any]]:
    body = [{"section": s, "text": t, "cites": spans(t, markers, "ref")} for s, t, markers in BODY]
    bibliography = {
        ref: {"paper": CITED[ref] or None, "title": TITLES[ref], "authors": AUTHORS[ref], "year": YEARS[ref]}
        for ref in CITED
    }
    record = {"id": "p1", "title": TITLE, "abstract": ABSTRACT, "year": 2021, "authors": ["Ann Writer"]}
    record |= {"field": ["cs.CL"], "identifiers": {"arXiv": "2101.1", "doi": None}}
    return [record | {"body": body, "bibliography": bibliography}]


def s2orc_2020() -> list[dict[str, Any]]:
    metadata: dict[str, Any] = {"paper_id": "p1", "title": TITLE, "abstract": ABSTRACT, "year": 2021}
    metadata |= {"arxiv_id": "2101.1", "doi": None, "has_pdf_parse": True, "inbound_citations": []}
    metadata |= {"authors": [{"first": "Ann", "middle": [], "last": "Writer", "suffix": ""}]}
    metadata |= {"mag_field_of_study": ["cs.CL"]}
    parse: dict[str, Any] = {"paper_id": "p1", "_pdf_hash": "x", "abstract": [], "ref_entries": {}}
    parse["body_text"] = [
        {"section": s, "text": t, "cite_spans": spans(t, markers, "ref_id"), "ref_spans": []}
        for s, t, markers in BODY
    ]
    parse["bib_entries"] = {}
    for ref, cited in CITED.items():
        authors = [dict(zip(("first", "last"), name.split(), strict=True)) for name in AUTHORS[ref]]
        entry = {"title": TITLES[ref], "authors": authors, "year": YEARS[ref], "link": cited or None}
        parse["bib_entries"][ref] = entry | {"venue": ""}
    return [metadata, parse]


class Annotated:
    """Builds a text with annotated spans, which the API encodes as JSON strings."""

    def __init__(self) -> None:
        self.text = "\n"
        self.lists: dict[str, list[dict[str, Any]]] = {}

    def add(self, kind: str, text: str, **attributes: Any) -> int:
        start = len(self.text)
        self.text += f"{text}\n\n"
        self.mark(kind, start, start + len(text), **attributes)
        return start

    def mark(self, kind: str, start: int, end: int, **attributes: Any) -> None:
        span: dict[str, Any] = {"start": start, "end": end}
        self.lists.setdefault(kind, []).append(span | ({"attributes": attributes} if attributes else {}))

    def record(self, names: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        lists = {names.get(kind, kind): json.dumps(spans) for kind, spans in self.lists.items()}
        return {"text": self.text, "annotations": {**lists, "table": None}}


def add_body(text: Annotated) -> None:
    section = ""
    for title, paragraph, markers in BODY:
        if title != section:
            section = title
            text.add("sectionheader", title[2:], n=title[0])
        start = text.add("paragraph", paragraph)
        for span in spans(paragraph, markers, "ref_id"):
            attributes = {} if span["ref_id"] is None else {"ref_id": span["ref_id"]}
            text.mark("bibref", start + span["start"], start + span["end"], **attributes)


def add_bibliography(text: Annotated) -> None:
    for number, (ref, cited) in enumerate(CITED.items(), start=1):
        entry = f"[{number}] {', '.join(AUTHORS[ref])}. {TITLES[ref]}. {YEARS[ref]}."
        start = text.add("bibentry", entry, **({"id": ref} | ({"matched_paper_id": cited} if cited else {})))
        for kind, names in (("bibtitle", [TITLES[ref]]), ("bibauthor", AUTHORS[ref])):
            for name in names:
                place = start + entry.index(name)
                text.mark(kind, place, place + len(name))


PAPER = {"corpusid": "p1", "title": TITLE, "year": 2021, "externalids": {"ArXiv": "2101.1", "DOI": None}}
PAPER |= {"s2fieldsofstudy": [{"category": "cs.CL", "source": source} for source in ("external", "s2")]}
PAPER |= {"authors": [{"authorId": "1", "name": "Ann Writer"}]}
API = [PAPER, {"corpusid": "p1", "openaccessinfo": {"externalids": {}}, "abstract": ABSTRACT}]
"""Records of the files papers and abstracts."""


def s2orc() -> list[dict[str, Any]]:
    text = Annotated()
    text.add("title", "The title as it is printed")
    text.add("abstract", "The abstract as it is printed")
    add_body(text)
    add_bibliography(text)
    text.mark("paragraph", 10**6, 10**6 + 5)
    text.mark("formula", -3, 2)
    record = {"corpusid": "p1", "externalids": {"arxiv": "2101.1", "doi": None}, "updated": "2023-01-01"}
    records: list[Any] = [*API, record | {"content": {"source": {"pdfurls": None}, **text.record()}}]
    return records


def s2orc_v2() -> list[dict[str, Any]]:
    body, back = Annotated(), Annotated()
    add_body(body)
    add_bibliography(back)
    parts = {name: name[:3] + "_" + name[3:] for name in ("bibref", "bibentry", "bibtitle", "bibauthor")}
    names = {**parts, "sectionheader": "section_header"}
    records: list[Any] = [
        *API,
        {"corpusid": "p1", "body": body.record(names), "bibliography": back.record(names)},
    ]
    return records


def documents(path: Path) -> list[Document]:
    return [
        document for file in find_files(str(path)) for document in read_documents(file, lambda done: None)
    ]


def read_text(path: Path) -> tuple[Metadata, FullText]:
    """Metadata and full text of the only document of a file."""
    (document,) = documents(path)
    assert document.full_text is not None
    return document.metadata, document.full_text()


@pytest.mark.parametrize("layout", [own, s2orc, s2orc_v2, s2orc_2020])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_layouts_of_json_lines_are_equivalent(
    tmp_path: Path, layout: Callable[[], list[dict[str, Any]]], suffix: str
) -> None:
    result = documents(write_lines(tmp_path / f"file{suffix}", layout()))
    merged: dict[str, Any] = {}
    for document in reversed(result):
        merged |= {name: value for name, value in document.metadata._asdict().items() if value}
    authors = ("Writer, Ann",) if layout is s2orc_2020 else ("Ann Writer",)
    expected = Metadata("p1", TITLE, ABSTRACT, 2021, authors, ("cs.CL",), ("arxiv:2101.1",))
    assert Metadata(**merged) == expected
    assert [document.full_text is not None for document in result] == [False] * (len(result) - 1) + [True]
    assert result[-1].full_text is not None
    text = result[-1].full_text()
    for paragraph, (_, words, markers) in zip(text.paragraphs, BODY, strict=True):
        assert paragraph.text == words
        assert {words[start:end]: ref for start, end, ref in paragraph.citations} == markers
    sections = [paragraph.section for paragraph in text.paragraphs]
    assert sections[0] == sections[1] != sections[2]
    assert set(text.references) == set(CITED)
    for ref, reference in text.references.items():
        assert (reference.paper, reference.title) == (CITED[ref], TITLES[ref])
        assert reference.year == YEARS[ref] or str(YEARS[ref]) in reference.text
        assert [surname(name) for name in reference.authors] == [surname(name) for name in AUTHORS[ref]]


def test_unarxive(tmp_path: Path) -> None:
    paper = {
        "paper_id": "2212.00001",
        "discipline": "Physics",
        "metadata": {"title": "On $x^2$\n  waves", "authors_parsed": [["Writer", "Ann", ""]]},
        "abstract": {"text": "  We show $x$.\n"},
        "body_text": [
            {"section": "One", "sec_number": "1", "text": "Of {{formula:f1}}: {{cite:b1}}, {{cite:gone}}."},
            {"section": "One", "sec_number": "1", "text": None},
        ],
        "bib_entries": {
            "b0": {"bib_entry_raw": "A. Lee. A book."},
            "b1": {
                "bib_entry_raw": "B. Diaz. Waves.",
                "ids": {"doi": "10.1/X", "arxiv_id": "", "pmc_id": ""},
            },
        },
    }
    metadata, text = read_text(write_lines(tmp_path / "a.jsonl", [paper]))
    identifiers = ("arxiv:2212.00001",)
    assert metadata == Metadata(
        "2212.00001", "On x^2 waves", "We show x.", 2022, ("Writer, Ann",), "Physics", identifiers
    )
    assert text.paragraphs[0][:3] == ("Of : [2], [0].", [(6, 7, "b1"), (11, 12, "gone")], "1 One")
    assert text.references == {
        "b0": Reference(text="A. Lee. A book."),
        "b1": Reference(text="B. Diaz. Waves.", identifiers=("doi:10.1/x",)),
    }
    broken = paper | {"bib_entries": {"b0": {"ids": "x"}}}
    (document,) = documents(write_lines(tmp_path / "b.jsonl", [broken]))
    assert document.full_text is not None
    with pytest.raises(InputError, match=r"line 1, field 'bib_entries.b0.ids': must be an object"):
        document.full_text()


def test_full_texts_provide_missing_titles_and_abstracts(tmp_path: Path) -> None:
    (document,) = documents(write_lines(tmp_path / "s2orc.jsonl", s2orc()[-1:]))
    assert document.metadata.title == "The title as it is printed"
    assert document.metadata.abstract == "The abstract as it is printed"


def broken(value: Any, *path: str | int) -> dict[str, Any]:
    """A record in our layout with one value replaced."""
    record = own()[0]
    inner: Any = record
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return record


API_TEXT = {"corpusid": 1, "content": {"text": "", "annotations": {"title": "[{"}}}
API_SPAN = {"corpusid": 1, "content": {"text": "", "annotations": {"paragraph": '[{"start": 1}]'}}}
CASES = [
    ("[1, 2]", ": must be an object, not a list; a record is one line"),
    ('{"id": "a"', ": malformed JSON"),
    ('{"id": "\\ud800"}', ": malformed JSON"),
    ('{"title": "a"}', ": has neither 'id' (our layout, arXiv) nor 'corpusid' or 'paper_id' (S2ORC)"),
    (broken("a b", "id"), ", field 'id': an id must not be empty or contain white space"),
    (broken("a\0b", "id"), ", field 'id': an id must not be empty or contain white space or"),
    (broken(True, "id"), ", field 'id': must be an id or a whole number, not a boolean"),
    (broken([], "title"), ", field 'title': must be a string, not a list"),
    (broken("soon", "year"), ", field 'year': must be a whole number, not 'soon'"),
    (broken(10**12, "year"), ", field 'year': 1000000000000 is out of range"),
    (broken("Ann", "authors"), ", field 'authors': must be a list, not a string"),
    (broken({}, "body"), ", field 'body': must be a list, not an object"),
    (broken(3, "body", 2), ", field 'body[2]': must be an object, not a number"),
    (broken(3, "body", 1, "text"), ", field 'body[1].text': must be a string, not a number"),
    (broken("x", "body", 0, "cites", 1, "start"), "'body[0].cites[1].start': must be a whole number"),
    (broken({"start": 1}, "body", 0, "cites", 1), ", field 'body[0].cites[1].end': is missing"),
    (broken([], "bibliography"), ", field 'bibliography': must be an object, not a list"),
    (broken("Lee", "bibliography", "b0"), ", field 'bibliography.b0': must be an object, not a string"),
    (broken([], "bibliography", "b0", "paper"), "'bibliography.b0.paper': must be an id ("),
    ({"corpusid": 1, "content": {"text": 3}}, ", field 'content.text': must be a string, not a number"),
    (API_TEXT, ", field 'content.annotations.title': malformed JSON"),
    (API_SPAN, ", field 'content.annotations.paragraph[0].end': is missing"),
    ({"paper_id": 1, "body_text": [{"cite_spans": 1}]}, ", field 'body_text[0].cite_spans': must be a list"),
]


@pytest.mark.parametrize(("record", "message"), CASES)
def test_a_malformed_record_is_a_one_line_error_with_its_location(
    tmp_path: Path, record: Any, message: str
) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"id": "first"}\n' + (record if isinstance(record, str) else json.dumps(record)))
    with pytest.raises(InputError) as error:
        for result in documents(path):
            if result.full_text is not None:
                result.full_text()
    assert message in str(error.value) and str(error.value).startswith(f"{path}, line 2")
    assert "\n" not in str(error.value)


def test_an_overlong_line_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citerec.formats.json_lines.LONGEST", 1 << 20)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a"}\r\n\n  \n{"id": "' + b"b" * (1 << 20))
    with pytest.raises(InputError, match=r"a\.jsonl, line 4: is longer than 1 MB; a record is one line"):
        documents(path)
    path.write_bytes(b'{"id": ' + b"[" * 100_000)
    with pytest.raises(InputError, match=r"a\.jsonl, line 1: malformed JSON"):
        documents(path)
