"""S2ORC of July 2020: the files `metadata` and `pdf_parses`, which are joined by `paper_id`."""

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
from citerec.formats.identifiers import find_year
from citerec.formats.json_lines import CitedId, Object, PaperId, Year, validate


class _Name(msgspec.Struct):
    first: str | None = None
    last: str | None = None

    def __str__(self) -> str:
        """ "Last, First", which is unambiguous."""
        return f"{self.last or ''}, {self.first}" if self.first else self.last or ""


class _Paper(msgspec.Struct):
    paper_id: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)
    authors: list[_Name] | None = None
    mag_field_of_study: list[str] | None = None


class _Entry(msgspec.Struct):
    link: CitedId = CitedId()
    title: str | None = None
    authors: list[_Name] | None = None
    year: Any = None


_IDENTIFIERS = ("arxiv_id", "acl_id", "pmc_id", "pubmed_id", "mag_id", "doi")


_BODY = body_layout("body_text", "cite_spans", "ref_id")


def read_s2orc_2020(record: Object, where: str) -> Document:
    """Read a record of `metadata` or `pdf_parses`; the latter has no title and no abstract."""
    if "body_text" in record:
        paper_id = validate(record["paper_id"], PaperId, where, "paper_id")
        return Document(Metadata(paper_id), partial(_read_text, record, where))
    paper = validate(record, _Paper, where)
    metadata = Metadata(
        paper.paper_id,
        paper.title or "",
        (paper.abstract or "").replace(":::", " "),
        paper.year,
        tuple(map(str, paper.authors or ())),
        tuple(paper.mag_field_of_study or ()),
        read_identifiers({kind.removesuffix("_id"): record.get(kind) for kind in _IDENTIFIERS}),
    )
    return Document(metadata)


def _read_text(record: Object, where: str) -> FullText:
    references = {}
    for ref, entry in read_entries(record, "bib_entries", _Entry, where):
        authors = tuple(map(str, entry.authors or ()))
        references[ref] = Reference(entry.link, entry.title or "", authors, find_year(str(entry.year)))
    return FullText(read_paragraphs(record, _BODY, where), references)
