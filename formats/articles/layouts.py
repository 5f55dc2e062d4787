"""Layouts of JSON lines, told apart by the keys of each record (`read_record`).

own          our own, in which everything but the id is optional:

{"id": str, "title": str, "abstract": str, "year": int, "authors": [str], "field": str or [str],
 "identifiers": {"arxiv": str, "doi": str, ...},
 "body": [{"section": str, "text": str, "cites": [{"start": int, "end": int, "ref": str or null}]}],
 "bibliography": {ref: {"paper": id, "title": str, "authors": [str], "year": int, "text": as printed,
                        "identifiers": {"doi": str, ...}}}}

arxiv        arXiv's metadata snapshot (https://www.kaggle.com/datasets/Cornell-University/arxiv)
s2orc        S2ORC and other dumps of the Semantic Scholar API: papers, abstracts, s2orc, s2orc_v2. A text has
             annotations, each a JSON string with a list of {"start", "end", "attributes"}. In s2orc_v2, body
             and bibliography are separate texts and annotation names have underscores (bib_ref)
s2orc_2020   S2ORC of July 2020: the files `metadata` and `pdf_parses`, which are joined by `paper_id`
unarxive     unarXive: arXiv's papers with placeholders for citations and formulas
             (https://github.com/IllDepence/unarXive)
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import partial
from typing import Any

import msgspec

from citerec.base.errors import MAX_SHOWN, InputError, quoted
from citerec.formats.documents import CitationSpan, Document, FullText, Metadata, Paragraph, Reference
from citerec.formats.identifiers import arxiv_year, find_year, identifier, identifiers
from citerec.formats.json_lines import CitedId, Object, Offset, PaperId, Year, decode_json, validate
from citerec.formats.latex_text import plain_text


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


# What layouts have in common, with the names of their fields.


class _Named(msgspec.Struct):
    """An author or a field of study."""

    name: str | None = None
    first: str | None = None
    last: str | None = None
    category: str | None = None

    def __str__(self) -> str:
        """ "Last, First", which is unambiguous, if the parts are known."""
        last = self.last or self.name or self.category or ""
        return f"{last}, {self.first}" if self.first else last


_Names = list[str | _Named | list[str]]
"""Authors or fields: texts, objects, or lists as arXiv's metadata have them."""
_TEXTS: dict[str, Any] = {"title": str, "abstract": str, "text": str, "section": str, "number": str}
_LISTS: dict[str, Any] = {"authors": _Names, "field": str | _Names, "identifiers": dict[str, Any]}


def _layout(*fields: str | tuple[str, Any] | tuple[str, Any, Any], **names: str) -> Any:
    """Define a record. fields: names of those above, which may be null or missing, or others with their type.
    names: what the layout calls them."""
    types = _TEXTS | _LISTS
    typed: list[Any] = [
        (name, types[name] | None, None) if isinstance(name, str) else name for name in fields
    ]
    return msgspec.defstruct("Record", typed, rename=names)


def _metadata_layout(**names: str) -> Any:
    return _layout(("id", PaperId), ("year", Year, Year(0)), "title", "abstract", *_LISTS, **names)


def _entry_layout(year: Any, **names: str) -> Any:
    return _layout(
        ("paper", CitedId, CitedId()), ("year", year, 0), "title", "authors", "text", "identifiers", **names
    )


def _body_layout(body: str, cites: str = "cites", ref: str = "ref") -> Any:
    span = _layout(("start", Offset), ("end", Offset), ("ref", str | None, None), ref=ref)
    cited = ("cites", list[span] | None, None)  # type: ignore[valid-type]
    paragraph = _layout("text", "section", "number", cited, cites=cites, number="sec_number")
    return _layout(("body", list[paragraph] | None, None), body=body)  # type: ignore[valid-type]


_METADATA = {
    "own": _metadata_layout(),
    "arxiv": _metadata_layout(authors="authors_parsed", field="categories"),
    "s2orc": _metadata_layout(id="corpusid", field="s2fieldsofstudy", identifiers="externalids"),
    "s2orc_2020": _metadata_layout(id="paper_id", field="mag_field_of_study"),
}
_BODIES = {
    "own": _body_layout("body"),
    "s2orc_2020": _body_layout("body_text", "cite_spans", "ref_id"),
    "unarxive": _body_layout("body_text"),
}
_ENTRIES = {
    "own": ("bibliography", _entry_layout(Year)),
    "s2orc_2020": ("bib_entries", _entry_layout(Any, paper="link")),
    "unarxive": ("bib_entries", _entry_layout(Any, text="bib_entry_raw", identifiers="ids")),
}
"""Fields that have bibliographies, and layouts of their entries."""
_S2ORC_IDENTIFIERS = ("arxiv_id", "acl_id", "pmc_id", "pubmed_id", "mag_id", "doi")
_PLACEHOLDER = re.compile(r"\{\{(\w+):([^{}]*)\}\}")


def _read_metadata(record: Object, layout: str, where: str) -> Metadata:
    paper = validate(record, _METADATA[layout], where)
    field = paper.field or ()
    return Metadata(
        paper.id,
        paper.title or "",
        paper.abstract or "",
        paper.year,
        _names(paper.authors),
        field if isinstance(field, str) else tuple(dict.fromkeys(map(str, field))),
        identifiers(paper.identifiers),
    )


def _names(authors: _Names | None) -> tuple[str, ...]:
    """Return the names of authors; arXiv's are in LaTeX."""
    return tuple(
        plain_text(", ".join(name[:2])) if isinstance(name, list) else str(name)
        for name in authors or ()
        if name != []
    )


def _read_text(record: Object, layout: str, where: str) -> FullText:
    paragraphs = [
        Paragraph(
            paragraph.text or "",
            [CitationSpan(span.start, span.end, span.ref or None) for span in paragraph.cites or ()],
            paragraph.section or "",
        )
        for paragraph in validate(record, _BODIES[layout], where).body or ()
    ]
    return FullText(paragraphs, _read_references(record, layout, where))


def _read_references(record: Object, layout: str, where: str) -> dict[str, Reference]:
    """Return the entries of a record by their keys. Raises InputError with the field."""
    field, entry_layout = _ENTRIES[layout]
    references = {}
    entries = {} if record.get(field) is None else record[field]
    for ref, value in validate(entries, dict[str, Any], where, field).items():
        key = ref if ref.isprintable() and len(ref) <= MAX_SHOWN else quoted(ref)
        entry = validate(value, entry_layout, where, f"{field}.{key}")
        year = entry.year if isinstance(entry.year, Year) else find_year(str(entry.year))
        references[ref] = Reference(
            entry.paper,
            entry.title or "",
            _names(entry.authors),
            year,
            entry.text or "",
            identifiers=identifiers(entry.identifiers),
        )
    return references


def read_own(record: Object, where: str) -> Document:
    """Read a record in our own layout. Raises InputError with the field."""
    full_text = None if record.get("body") is None else partial(_read_text, record, "own", where)
    return Document(_read_metadata(record, "own", where), full_text)


def read_arxiv(record: Object, where: str) -> Document:
    """Read a line of arXiv's snapshot. Raises InputError with the field."""
    paper = _of_arxiv(_read_metadata(record, "arxiv", where))
    return Document(paper._replace(field=tuple("".join(paper.field).split())))


def _of_arxiv(paper: Metadata) -> Metadata:
    """Return the metadata of a paper of arXiv: with LaTeX as text, and the year of its id."""
    arxiv = (identifier("arxiv", paper.id),)
    title, abstract = plain_text(paper.title), plain_text(paper.abstract)
    return paper._replace(title=title, abstract=abstract, year=arxiv_year(paper.id), identifiers=arxiv)


def read_s2orc_2020(record: Object, where: str) -> Document:
    """Read a record of `metadata` or `pdf_parses`; the latter has no title and no abstract."""
    if "body_text" in record:
        paper_id = validate(record["paper_id"], PaperId, where, "paper_id")
        return Document(Metadata(paper_id), partial(_read_text, record, "s2orc_2020", where))
    paper = _read_metadata(record, "s2orc_2020", where)
    own = identifiers({kind: record.get(kind) for kind in _S2ORC_IDENTIFIERS})
    return Document(paper._replace(abstract=paper.abstract.replace(":::", " "), identifiers=own))


def read_unarxive(record: Object, where: str) -> Document:
    """Read a paper of unarXive. Raises InputError with the field."""
    front, abstract = (
        validate(record.get(name) or {}, dict[str, Any], where, name) for name in ("metadata", "abstract")
    )
    own = {"id": record["paper_id"], "field": record["discipline"], "abstract": abstract.get("text")}
    own |= {"title": front.get("title"), "authors": front.get("authors_parsed")}
    metadata = _of_arxiv(_read_metadata(own, "own", where))
    return Document(metadata, partial(_read_unarxive_text, record, where))


def _read_unarxive_text(record: Object, where: str) -> FullText:
    """Return a text in which each placeholder of a citation is its number in the bibliography."""
    references = _read_references(record, "unarxive", where)
    numbers = {ref: number for number, ref in enumerate(references, 1)}
    paragraphs = []
    for part in validate(record, _BODIES["unarxive"], where).body or ():
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
        section = f"{part.number} {part.section}"
        paragraphs.append(Paragraph("".join([*pieces, text[done:]]), spans, section))
    return FullText(paragraphs, references)


# Texts with annotations.


class _Attributes(msgspec.Struct):
    id: str | None = None
    ref_id: str | None = None
    matched_paper_id: CitedId = CitedId()


class _Annotation(msgspec.Struct):
    start: Offset
    end: Offset
    attributes: _Attributes | None = None


class _AnnotatedText(msgspec.Struct):
    text: str | None = None
    annotations: dict[str, Any] | None = None


def read_s2orc(record: Object, where: str) -> Document:
    """Read a record of papers, abstracts, s2orc or s2orc_v2. Raises InputError with the field."""
    metadata = _read_metadata(record, "s2orc", where)
    part = "body" if "body" in record else "content"
    if record.get(part) is None:
        return Document(metadata)
    front = _AnnotatedSpans(record, part, where)
    metadata = metadata._replace(
        title=metadata.title or " ".join(front.texts("title")[:1]),
        abstract=metadata.abstract or "\n".join(front.texts("abstract")),
        authors=metadata.authors or tuple(front.texts("author")),
    )
    return Document(metadata, partial(_read_annotated_text, record, where))


class _AnnotatedSpans:
    """A text with its annotations.

    Except for citations, spans outside the text are dropped, and so are spans that start within another of
    the same kind, since thousands of them would copy the text as many times.
    """

    def __init__(self, record: Object, field: str, where: str) -> None:
        part = validate(record.get(field) or {}, _AnnotatedText, where, field)
        self.text = part.text or ""
        self._lists = {kind.replace("_", ""): value for kind, value in (part.annotations or {}).items()}
        self._where, self._field = where, f"{field}.annotations"

    def spans(self, kind: str) -> list[_Annotation]:
        """Return the annotations of a kind, in text order."""
        value, at = self._lists.get(kind), f"{self._field}.{kind}"
        if isinstance(value, str):
            value = decode_json(value, f"{self._where}, field {at!r}")
        spans = validate(value or [], list[_Annotation], self._where, at)
        spans.sort(key=lambda span: (span.start, span.end))
        if kind == "bibref":
            return spans
        disjoint: list[_Annotation] = []
        for span in spans:
            if 0 <= span.start < span.end <= len(self.text) and (
                not disjoint or span.start >= disjoint[-1].end
            ):
                disjoint.append(span)
        return disjoint

    def texts(self, kind: str) -> list[str]:
        """Return the texts that the annotations of a kind cover."""
        return [self.text[span.start : span.end].strip() for span in self.spans(kind)]


def _read_annotated_text(record: Object, where: str) -> FullText:
    if "body" in record:
        body, back = _AnnotatedSpans(record, "body", where), _AnnotatedSpans(record, "bibliography", where)
    else:
        body = back = _AnnotatedSpans(record, "content", where)
    citations = body.spans("bibref")
    headers, paragraphs = body.spans("sectionheader"), []
    for paragraph in body.spans("paragraph"):
        before = bisect_right(headers, paragraph.start, key=lambda header: header.start)
        # The number distinguishes sections of the same name.
        title = body.text[headers[before - 1].start : headers[before - 1].end] if before else ""
        inside = [
            CitationSpan(
                span.start - paragraph.start,
                span.end - paragraph.start,
                (span.attributes and span.attributes.ref_id) or None,
            )
            for span in _spans_within(citations, paragraph)
        ]
        paragraphs.append(Paragraph(body.text[paragraph.start : paragraph.end], inside, f"{before} {title}"))
    titles, authors = back.spans("bibtitle"), back.spans("bibauthorlastname") or back.spans("bibauthor")
    references = {}
    for entry in back.spans("bibentry"):
        attributes = entry.attributes or _Attributes()
        printed, names = (
            [back.text[span.start : span.end] for span in _spans_within(spans, entry)]
            for spans in (titles, authors)
        )
        references[attributes.id or ""] = Reference(
            paper=attributes.matched_paper_id,
            title=printed[0] if printed else "",
            authors=tuple(names),
            text=back.text[entry.start : entry.end],  # with the year
        )
    return FullText(paragraphs, references)


def _spans_within(spans: list[_Annotation], outer: _Annotation) -> list[_Annotation]:
    first = bisect_left(spans, outer.start, key=lambda span: span.start)
    return spans[first : bisect_left(spans, outer.end, key=lambda span: span.start)]
