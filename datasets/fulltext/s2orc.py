"""S2ORC: full texts as one text with annotations, and the layout of the release of 2020.

Full texts of the Semantic Scholar API (`s2orc`) have `corpusid`, `content.text` and `content.annotations`, an
object of JSON strings that each hold a list of {"start", "end", "attributes"}: `title`, `abstract`, `author`,
`sectionheader`, `paragraph`, `bibref` (attributes.ref_id), `bibentry` (attributes.id, matched_paper_id), and
parts of entries: `bibtitle`, `bibauthor`, `bibauthorlastname`. In `s2orc_v2`, body and bibliography are texts
of their own and the names have underscores (`bib_ref`). Years, and titles and abstracts as published, are in
the files `papers` and `abstracts` of the same release: name these too, before the full texts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import partial
from typing import NamedTuple

import orjson

from datasets.errors import InputError
from datasets.fulltext.records import (
    Cite,
    FullText,
    Object,
    Paper,
    Paragraph,
    Record,
    Reference,
    identity,
    mapping,
    named,
    objects,
    optional_identity,
    string,
    strings,
    whole,
)
from datasets.fulltext.records import refuse_of_values as refuse
from datasets.records import year_of

_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


class _Span(NamedTuple):
    start: int
    end: int
    attributes: Object


class _Annotated:
    """A text with its annotations; spans that do not lie in it are left out, except citations.

    So are those that begin in another of their kind: thousands of them would be as many copies of the text.
    """

    def __init__(self, record: Object, field: str, where: str) -> None:
        part = mapping(record, field, where)
        self._where = f"{where}, {field}"
        self.text = string(part, "text", self._where)
        lists = mapping(part, "annotations", self._where)
        self._lists = {kind.replace("_", ""): value for kind, value in lists.items()}

    def spans(self, kind: str) -> list[_Span]:
        """Spans of a kind, in the order of the text."""
        where, value = f"{self._where}, annotations", self._lists.get(kind)
        if isinstance(value, str):
            try:
                value = orjson.loads(value)
            except orjson.JSONDecodeError as error:
                raise InputError(f"{where}, field {kind!r}: malformed JSON: {error}") from None
        spans = []
        for span, place in objects({kind: value}, kind, where):
            start, end = whole(span, "start", place), whole(span, "end", place)
            if kind == "bibref" or 0 <= start < end <= len(self.text):
                spans.append(_Span(start, end, mapping(span, "attributes", place)))
        spans.sort(key=lambda span: span[:2])
        if kind == "bibref":
            return spans
        apart: list[_Span] = []
        for one in spans:
            if not apart or one.start >= apart[-1].end:
                apart.append(one)
        return apart

    def texts(self, kind: str) -> list[str]:
        return [self.text[start:end].strip() for start, end, _ in self.spans(kind)]


def read_s2orc(record: Object, where: str) -> Record:
    """A record of the files s2orc, s2orc_v2, papers or abstracts. Raises InputError that names the field."""
    identifiers = mapping(record, "externalids", where)
    paper = Paper(
        id=identity(record, "corpusid", where),
        title=string(record, "title", where),
        abstract=string(record, "abstract", where),
        year=year_of(record.get("year"), where),
        authors=tuple(string(author, "name", place) for author, place in objects(record, "authors", where)),
        field=tuple(
            dict.fromkeys(
                string(field, "category", place) for field, place in objects(record, "s2fieldsofstudy", where)
            )
        ),
        identifiers=frozenset(kind.lower() for kind, value in identifiers.items() if value),
    )
    part = "body" if "body" in record else "content"
    if record.get(part) is None:
        return Record(where, paper)
    front = _Annotated(record, part, where)
    paper = paper._replace(
        title=paper.title or " ".join(front.texts("title")[:1]),
        abstract=paper.abstract or "\n".join(front.texts("abstract")),
        authors=paper.authors or tuple(front.texts("author")),
    )
    return Record(where, paper, partial(_full_text, record, where))


def _full_text(record: Object, where: str) -> FullText:
    if "body" in record:
        body, back = _Annotated(record, "body", where), _Annotated(record, "bibliography", where)
    else:
        body = back = _Annotated(record, "content", where)
    cites = [
        Cite(start, end, string(attributes, "ref_id", where) or None)
        for start, end, attributes in body.spans("bibref")
    ]
    headers, starts = body.spans("sectionheader"), [cite.start for cite in cites]
    header_starts = [header.start for header in headers]
    paragraphs = []
    for start, end, _ in body.spans("paragraph"):
        before = bisect_right(header_starts, start)
        # Its number makes a section of its own of two that have the same name.
        title = body.text[slice(*headers[before - 1][:2])] if before else ""
        inside = cites[bisect_left(starts, start) : bisect_left(starts, end)]
        moved = [cite._replace(start=cite.start - start, end=cite.end - start) for cite in inside]
        paragraphs.append(Paragraph(body.text[start:end], moved, f"{before} {title}"))
    return FullText(paragraphs, _references(back, where))


def _references(back: _Annotated, where: str) -> dict[str, Reference]:
    titles = back.spans("bibtitle")
    authors = back.spans("bibauthorlastname") or back.spans("bibauthor")
    references = {}
    for start, end, attributes in back.spans("bibentry"):
        ref = string(attributes, "id", where)
        entry = back.text[start:end]
        title = _inside(back, titles, start, end)
        references[ref] = Reference(
            paper=optional_identity(attributes, "matched_paper_id", where),
            title=title[0] if title else "",
            authors=tuple(_inside(back, authors, start, end)),
            text=entry,  # with the year
        )
    return references


def _inside(back: _Annotated, spans: list[_Span], start: int, end: int) -> list[str]:
    """The texts of the spans that start between the two."""
    place = bisect_left(spans, start, key=lambda span: span.start)
    inside: list[str] = []
    for span in spans[place:]:
        if span.start >= end:
            break
        inside.append(back.text[span.start : span.end])
    return inside


def read_s2orc_2020(record: Object, where: str) -> Record:
    """A record of `metadata` or `pdf_parses` of the release of July 2020. Raises InputError.

    The two belong together by `paper_id`; name the files of both. Abstracts are those of the metadata.
    """
    paper_id = identity(record, "paper_id", where)
    if "body_text" in record:
        return Record(where, Paper(paper_id), partial(_full_text_2020, record, where))
    paper = Paper(
        id=paper_id,
        title=string(record, "title", where),
        abstract=string(record, "abstract", where).replace(":::", " "),
        year=year_of(record.get("year"), where),
        authors=tuple(_name(author, place) for author, place in objects(record, "authors", where)),
        field=strings(record, "mag_field_of_study", where),
        identifiers=frozenset(
            kind.removesuffix("_id")
            for kind in ("arxiv_id", "acl_id", "pmc_id", "pubmed_id", "mag_id", "doi")
            if record.get(kind)
        ),
    )
    return Record(where, paper)


def _full_text_2020(record: Object, where: str) -> FullText:
    paragraphs = []
    for paragraph, place in objects(record, "body_text", where):
        cites = [
            Cite(whole(cite, "start", at), whole(cite, "end", at), string(cite, "ref_id", at) or None)
            for cite, at in objects(paragraph, "cite_spans", place)
        ]
        section = string(paragraph, "section", place)
        paragraphs.append(Paragraph(string(paragraph, "text", place), cites, section))
    references = {}
    for ref, entry in mapping(record, "bib_entries", where).items():
        if not isinstance(entry, dict):
            raise refuse(where, named("bib_entries", ref), "an object", entry)
        place = f"{where}, {named('bib_entries', ref)}"
        references[ref] = Reference(
            paper=optional_identity(entry, "link", place),
            title=string(entry, "title", place),
            authors=tuple(_name(author, at) for author, at in objects(entry, "authors", place)),
            year=int(found[0]) if (found := _YEAR.search(str(entry.get("year")))) else 0,
        )
    return FullText(paragraphs, references)


def _name(author: Object, where: str) -> str:
    """ "Last, First", so that it is clear which is which."""
    last, first = string(author, "last", where), string(author, "first", where)
    return f"{last}, {first}" if first else last
