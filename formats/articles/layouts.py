"""Layouts of JSON lines, told apart by the keys of each record (`read_record`).

own          our own, in which everything but the id is optional:

{"id": str, "title": str, "abstract": str, "year": int, "authors": [str], "field": str or [str],
 "identifiers": {"arxiv": str, "doi": str, ...},
 "body": [{"section": str, "text": str, "cites": [{"start": int, "end": int, "ref": str or null}]}],
 "bibliography": {ref: {"paper": id, "title": str, "authors": [str], "year": int, "text": as printed,
                        "identifiers": {"doi": str, ...}}}}

arxiv        arXiv's metadata snapshot (https://www.kaggle.com/datasets/Cornell-University/arxiv)
s2orc        S2ORC and other dumps of the Semantic Scholar API (formats.articles.s2orc)
s2orc_2020   S2ORC of July 2020: the files `metadata` and `pdf_parses`, which are joined by `paper_id`
unarxive     unarXive: arXiv's papers with placeholders for citations and formulas
             (https://github.com/IllDepence/unarXive)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from citerec.base.errors import MAX_SHOWN, InputError, quoted
from citerec.formats.articles.s2orc import read_s2orc
from citerec.formats.documents import CitationSpan, Document, FullText, Metadata, Paragraph, Reference
from citerec.formats.identifiers import arxiv_year, find_year, identifier, identifiers
from citerec.formats.json_lines import CitedId, Object, Offset, PaperId, Year, validate
from citerec.formats.latex_text import plain_text

__all__ = ["read_own", "read_record", "read_s2orc", "read_s2orc_2020"]


def read_record(record: Object, where: str) -> Document:
    """Read a record in any layout. Raises InputError with the field."""
    if "authors_parsed" in record:
        return read_arxiv(record, where)
    if "corpusid" in record:
        return read_s2orc(record, where)
    if "paper_id" in record:
        return (read_unarxive if "discipline" in record else read_s2orc_2020)(record, where)
    if "id" in record:
        return read_own(record, where)
    raise InputError(f"{where}: has neither 'id' (our layout, arXiv) nor 'corpusid' or 'paper_id' (S2ORC)")


class _Name(msgspec.Struct):
    first: str | None = None
    last: str | None = None

    def __str__(self) -> str:
        """ "Last, First", which is unambiguous."""
        return f"{self.last or ''}, {self.first}" if self.first else self.last or ""


class _Own(msgspec.Struct):
    id: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)
    authors: list[str] | None = None
    field: list[str] | str | None = None
    identifiers: dict[str, Any] | None = None


class _OwnEntry(msgspec.Struct):
    paper: CitedId = CitedId()
    title: str | None = None
    authors: list[str] | None = None
    year: Year = Year(0)
    text: str | None = None
    identifiers: dict[str, Any] | None = None


class _Arxiv(msgspec.Struct):
    id: PaperId
    title: str | None = None
    abstract: str | None = None
    authors_parsed: list[list[str]] | None = None
    categories: str | None = None


class _S2orc2020(msgspec.Struct):
    paper_id: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)
    authors: list[_Name] | None = None
    mag_field_of_study: list[str] | None = None


class _S2orc2020Entry(msgspec.Struct):
    link: CitedId = CitedId()
    title: str | None = None
    authors: list[_Name] | None = None
    year: Any = None


class _UnarxiveFront(msgspec.Struct):
    title: str | None = None
    authors_parsed: list[list[str]] | None = None


class _UnarxiveText(msgspec.Struct):
    text: str | None = None
    section: str | None = None
    sec_number: str | None = None
    content_type: str | None = None


class _UnarxiveEntry(msgspec.Struct):
    bib_entry_raw: str | None = None
    ids: dict[str, Any] | None = None


class _Unarxive(msgspec.Struct):
    paper_id: PaperId
    discipline: str | None = None
    metadata: _UnarxiveFront | None = None
    abstract: _UnarxiveText | None = None
    body_text: list[_UnarxiveText] | None = None


class _Bibliography(NamedTuple):
    """The field of a record that has its bibliography by keys, the layout of an entry, and how it is read."""

    field: str
    layout: Any
    reference: Callable[[Any], Reference]

    def read(self, record: Object, where: str) -> dict[str, Reference]:
        """Return the entries of a record by their keys. Raises InputError with the field."""
        entries = {} if record.get(self.field) is None else record[self.field]
        references = {}
        for ref, entry in validate(entries, dict[str, Any], where, self.field).items():
            key = ref if ref.isprintable() and len(ref) <= MAX_SHOWN else quoted(ref)
            references[ref] = self.reference(validate(entry, self.layout, where, f"{self.field}.{key}"))
        return references


def _body_layout(body: str, cites: str, ref: str) -> Any:
    """Define a layout of paragraphs with citation spans, by the names of its fields."""
    offsets = [("start", Offset), ("end", Offset)]
    span = msgspec.defstruct("Span", [*offsets, ("ref", str | None, None)], rename={"ref": ref})
    texts = [("text", str | None, None), ("section", str | None, None)]
    cited = ("cites", list[span] | None, None)  # type: ignore[valid-type]
    paragraph = msgspec.defstruct("Paragraph", [*texts, cited], rename={"cites": cites})
    paragraphs = ("body", list[paragraph] | None, None)  # type: ignore[valid-type]
    return msgspec.defstruct("Body", [paragraphs], rename={"body": body})


_OWN = (
    _body_layout("body", "cites", "ref"),
    _Bibliography(
        "bibliography",
        _OwnEntry,
        lambda entry: Reference(
            entry.paper,
            entry.title or "",
            tuple(entry.authors or ()),
            entry.year,
            entry.text or "",
            identifiers=identifiers(entry.identifiers),
        ),
    ),
)
_S2ORC_2020 = (
    _body_layout("body_text", "cite_spans", "ref_id"),
    _Bibliography(
        "bib_entries",
        _S2orc2020Entry,
        lambda entry: Reference(
            entry.link, entry.title or "", tuple(map(str, entry.authors or ())), find_year(str(entry.year))
        ),
    ),
)
"""Layouts of bodies and bibliographies."""
_UNARXIVE = _Bibliography(
    "bib_entries",
    _UnarxiveEntry,
    lambda entry: Reference(text=entry.bib_entry_raw or "", identifiers=identifiers(entry.ids)),
)
_S2ORC_IDENTIFIERS = ("arxiv_id", "acl_id", "pmc_id", "pubmed_id", "mag_id", "doi")
_PLACEHOLDER = re.compile(r"\{\{(\w+):([^{}]*)\}\}")


def _read_text(record: Object, layouts: tuple[Any, _Bibliography], where: str) -> FullText:
    body, bibliography = layouts
    paragraphs = [
        Paragraph(
            paragraph.text or "",
            [CitationSpan(span.start, span.end, span.ref or None) for span in paragraph.cites or ()],
            paragraph.section or "",
        )
        for paragraph in validate(record, body, where).body or ()
    ]
    return FullText(paragraphs, bibliography.read(record, where))


def read_own(record: Object, where: str) -> Document:
    """Read a record in our own layout. Raises InputError with the field."""
    paper = validate(record, _Own, where)
    metadata = Metadata(
        paper.id,
        paper.title or "",
        paper.abstract or "",
        paper.year,
        tuple(paper.authors or ()),
        tuple(paper.field) if isinstance(paper.field, list) else paper.field or "",
        identifiers(paper.identifiers),
    )
    return Document(
        metadata, None if record.get("body") is None else partial(_read_text, record, _OWN, where)
    )


def read_arxiv(record: Object, where: str) -> Document:
    """Read a line of arXiv's snapshot. Raises InputError with the field."""
    paper = validate(record, _Arxiv, where)
    texts = plain_text(paper.title or ""), plain_text(paper.abstract or "")
    authors, fields = _parsed_authors(paper.authors_parsed), tuple((paper.categories or "").split())
    arxiv = (identifier("arxiv", paper.id),)
    return Document(Metadata(paper.id, *texts, arxiv_year(paper.id), authors, fields, arxiv))


def _parsed_authors(authors: list[list[str]] | None) -> tuple[str, ...]:
    """Return "Last, First" of arXiv's parsed names, which are in LaTeX."""
    return tuple(plain_text(", ".join(name[:2])) for name in authors or () if name)


def read_s2orc_2020(record: Object, where: str) -> Document:
    """Read a record of `metadata` or `pdf_parses`; the latter has no title and no abstract."""
    if "body_text" in record:
        paper_id = validate(record["paper_id"], PaperId, where, "paper_id")
        return Document(Metadata(paper_id), partial(_read_text, record, _S2ORC_2020, where))
    paper = validate(record, _S2orc2020, where)
    metadata = Metadata(
        paper.paper_id,
        paper.title or "",
        (paper.abstract or "").replace(":::", " "),
        paper.year,
        tuple(map(str, paper.authors or ())),
        tuple(paper.mag_field_of_study or ()),
        identifiers({kind: record.get(kind) for kind in _S2ORC_IDENTIFIERS}),
    )
    return Document(metadata)


def read_unarxive(record: Object, where: str) -> Document:
    """Read a paper of unarXive. Raises InputError with the field."""
    paper = validate(record, _Unarxive, where)
    front = paper.metadata or _UnarxiveFront()
    metadata = Metadata(
        paper.paper_id,
        plain_text(front.title or ""),
        plain_text((paper.abstract and paper.abstract.text) or ""),
        arxiv_year(paper.paper_id),
        _parsed_authors(front.authors_parsed),
        paper.discipline or "",
        (identifier("arxiv", paper.paper_id),),
    )
    return Document(metadata, partial(_read_unarxive_text, paper, record, where))


def _read_unarxive_text(paper: _Unarxive, record: Object, where: str) -> FullText:
    """Return a text in which each placeholder of a citation is its number in the bibliography."""
    references = _UNARXIVE.read(record, where)
    numbers = {ref: number for number, ref in enumerate(references, 1)}
    paragraphs = []
    for part in paper.body_text or ():
        pieces: list[str] = []
        spans: list[CitationSpan] = []
        length = done = 0
        text = part.text or ""
        for placeholder in _PLACEHOLDER.finditer(text):
            kind, ref = placeholder.groups()
            mark = f"[{numbers.get(ref, 0)}]" if kind == "cite" else ""  # formulas are left out
            pieces += text[done : placeholder.start()], mark
            length += placeholder.start() - done + len(mark)
            done = placeholder.end()
            if mark:
                spans.append(CitationSpan(length - len(mark) + 1, length - 1, ref))
        section = f"{part.sec_number} {part.section}"
        paragraphs.append(Paragraph("".join([*pieces, text[done:]]), spans, section))
    return FullText(paragraphs, references)
