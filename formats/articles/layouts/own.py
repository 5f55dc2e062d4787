"""Our own layout, in which everything but the id is optional:

{"id": str, "title": str, "abstract": str, "year": int, "authors": [str], "field": str or [str],
 "identifiers": {"arxiv": str, "doi": str, ...},
 "body": [{"section": str, "text": str, "cites": [{"start": int, "end": int, "ref": str or null}]}],
 "bibliography": {ref: {"paper": id, "title": str, "authors": [str], "year": int, "text": as printed,
                        "identifiers": {"doi": str, ...}}}}
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from citerec.formats.articles.layouts.fields import (
    body_layout,
    read_entries,
    read_identifiers,
    read_paragraphs,
)
from citerec.formats.documents import Document, FullText, Metadata, Reference
from citerec.formats.json_lines import CitedId, Object, PaperId, Year, validate


class _Paper(msgspec.Struct):
    id: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)
    authors: list[str] | None = None
    field: list[str] | str | None = None
    identifiers: dict[str, Any] | None = None


class _Entry(msgspec.Struct):
    paper: CitedId = CitedId()
    title: str | None = None
    authors: list[str] | None = None
    year: Year = Year(0)
    text: str | None = None
    identifiers: dict[str, Any] | None = None


_BODY = body_layout("body", "cites", "ref")


def read_own(record: Object, where: str) -> Document:
    """Read a record in our own layout. Raises InputError with the field."""
    paper = validate(record, _Paper, where)
    metadata = Metadata(
        paper.id,
        paper.title or "",
        paper.abstract or "",
        paper.year,
        tuple(paper.authors or ()),
        tuple(paper.field) if isinstance(paper.field, list) else paper.field or "",
        read_identifiers(paper.identifiers),
    )
    text = None if record.get("body") is None else partial(_read_text, record, where)
    return Document(metadata, text)


def _read_text(record: Object, where: str) -> FullText:
    references = {}
    for ref, entry in read_entries(record, "bibliography", _Entry, where):
        authors = tuple(entry.authors or ())
        references[ref] = Reference(
            entry.paper,
            entry.title or "",
            authors,
            entry.year,
            entry.text or "",
            identifiers=read_identifiers(entry.identifiers),
        )
    return FullText(read_paragraphs(record, _BODY, where), references)
