"""S2ORC of the Semantic Scholar API: its files papers, abstracts, s2orc and s2orc_v2.

A text has annotations, each a JSON string with a list of {"start", "end", "attributes"}. In `s2orc_v2`, body
and bibliography are separate texts and annotation names have underscores (`bib_ref`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from typing import Any

import msgspec

from citerec.base.errors import InputError
from citerec.formats.documents import CitationSpan, Document, FullText, Metadata, Paragraph, Reference
from citerec.formats.identifiers import identifiers
from citerec.formats.json_lines import CitedId, Object, Offset, PaperId, Year, validate


class _Author(msgspec.Struct):
    name: str | None = None


class _Field(msgspec.Struct):
    category: str | None = None


class _Paper(msgspec.Struct):
    corpusid: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)
    authors: list[_Author] | None = None
    s2fieldsofstudy: list[_Field] | None = None
    externalids: dict[str, Any] | None = None


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
    paper = validate(record, _Paper, where)
    metadata = Metadata(
        paper.corpusid,
        paper.title or "",
        paper.abstract or "",
        paper.year,
        tuple(author.name or "" for author in paper.authors or ()),
        tuple(dict.fromkeys(field.category or "" for field in paper.s2fieldsofstudy or ())),
        identifiers(paper.externalids),
    )
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
            try:
                value = msgspec.json.decode(value)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{self._where}, field {at!r}: malformed JSON: {error}") from None
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
