"""arXiv's metadata snapshot (https://www.kaggle.com/datasets/Cornell-University/arxiv)."""

from __future__ import annotations

import msgspec

from citerec.formats.documents import Document, Metadata
from citerec.formats.identifiers import arxiv_year, identifier
from citerec.formats.json_lines import Object, PaperId, validate
from citerec.formats.latex_text import plain_text


class _ArxivPaper(msgspec.Struct):
    id: PaperId
    title: str | None = None
    abstract: str | None = None
    authors_parsed: list[list[str]] | None = None
    categories: str | None = None


def read_arxiv(record: Object, where: str) -> Document:
    """Read a line of arXiv's snapshot. Raises InputError with the field."""
    paper = validate(record, _ArxivPaper, where)
    authors = tuple(plain_text(", ".join(name[:2])) for name in paper.authors_parsed or () if name)
    fields = tuple((paper.categories or "").split())
    texts = plain_text(paper.title or ""), plain_text(paper.abstract or "")
    year = arxiv_year(paper.id)
    return Document(Metadata(paper.id, *texts, year, authors, fields, (identifier("arxiv", paper.id),)))
