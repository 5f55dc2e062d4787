"""unarXive: arXiv's papers with placeholders for citations and formulas
(https://github.com/IllDepence/unarXive)."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec

from citerec.formats.articles.layouts.fields import read_entries, read_identifiers
from citerec.formats.documents import (
    CitationSpan,
    Document,
    FullText,
    Metadata,
    Paragraph,
    Reference,
)
from citerec.formats.identifiers import arxiv_year, identifier
from citerec.formats.json_lines import Object, PaperId, validate
from citerec.formats.latex_text import plain_text


class _Metadata(msgspec.Struct):
    title: str | None = None
    authors_parsed: list[list[str]] | None = None


class _Text(msgspec.Struct):
    text: str | None = None
    section: str | None = None
    sec_number: str | None = None
    content_type: str | None = None


class _Entry(msgspec.Struct):
    bib_entry_raw: str | None = None
    ids: dict[str, Any] | None = None


class _Paper(msgspec.Struct):
    paper_id: PaperId
    discipline: str | None = None
    metadata: _Metadata | None = None
    abstract: _Text | None = None
    body_text: list[_Text] | None = None


_PLACEHOLDER = re.compile(r"\{\{(\w+):([^{}]*)\}\}")


def read_unarxive(record: Object, where: str) -> Document:
    """Read a paper of unarXive. Raises InputError with the field."""
    paper = validate(record, _Paper, where)
    front = paper.metadata or _Metadata()
    metadata = Metadata(
        paper.paper_id,
        plain_text(front.title or ""),
        plain_text((paper.abstract and paper.abstract.text) or ""),
        arxiv_year(paper.paper_id),
        tuple(plain_text(", ".join(name[:2])) for name in front.authors_parsed or () if name),
        paper.discipline or "",
        (identifier("arxiv", paper.paper_id),),
    )
    return Document(metadata, partial(_read_text, paper, record, where))


def _read_text(paper: _Paper, record: Object, where: str) -> FullText:
    references = {}
    for ref, entry in read_entries(record, "bib_entries", _Entry, where):
        known = read_identifiers(
            {kind.removesuffix("_id"): value for kind, value in (entry.ids or {}).items()}
        )
        references[ref] = Reference(text=entry.bib_entry_raw or "", identifiers=known)
    numbers = {ref: number for number, ref in enumerate(references, 1)}
    paragraphs = []
    for part in paper.body_text or ():
        pieces: list[str] = []
        spans: list[CitationSpan] = []
        length = done = 0
        text = part.text or ""
        for found in _PLACEHOLDER.finditer(text):
            mark = f"[{numbers.get(found[2], 0)}]" if found[1] == "cite" else ""  # formulas are left out
            pieces += text[done : found.start()], mark
            length += found.start() - done + len(mark)
            done = found.end()
            if mark:
                spans.append(CitationSpan(length - len(mark) + 1, length - 1, found[2]))
        paragraphs.append(
            Paragraph("".join([*pieces, text[done:]]), spans, f"{part.sec_number} {part.section}")
        )
    return FullText(paragraphs, references)
