"""Our own records of papers: an entry of papers.json, or a JSON line.

    {"id" or "paper_id", "title", "abstract", "year", "authors", "venue" or "journal", "doi", "arxiv", "url",
     "key", "bibtex", "collections", "tags"}

Numbers may stand for texts, texts for lists, and {"name"} for authors. Several fields may hold collections
and tags.
"""

from __future__ import annotations

from typing import Any

import msgspec

from citerec.formats.bibliography.paper import LibraryPaper, clean_text, derived_id
from citerec.formats.bibliography.reading.fields import Fields
from citerec.formats.identifiers import clean_doi, find_arxiv_id
from citerec.formats.json_lines import YEARS, Object, validate
from citerec.formats.names import OTHERS, parse_names

Text = str | int | None
Texts = list[str] | str | None


class Author(msgspec.Struct):
    name: Text = None


class OwnRecord(msgspec.Struct):
    """A record; `paper` also checks the fields whose type is Any."""

    id: Any = None
    paper_id: Any = None
    """read if there is no other id"""
    key: Text = None
    title: Text = None
    abstract: Text = None
    year: Any = None
    authors: list[str | Author | None] | str | None = None
    venue: Text = None
    journal: Any = None
    """an object in other programs' files, which is not read if there is a venue"""
    doi: Text = None
    arxiv: Text = None
    url: Text = None
    bibtex: Text = None
    collections: Texts = None
    collection: Texts = None
    tags: Texts = None
    keywords: Texts = None
    fields: Texts = None
    field: Texts = None

    @classmethod
    def read(cls, record: Object, where: str) -> OwnRecord:
        """Raises InputError for a field of the wrong type. where: of the record, for the error."""
        try:
            return msgspec.convert(record, cls)
        except msgspec.ValidationError:
            return validate(record, cls, where)  # raises

    def paper(self, where: str, id: str = "") -> LibraryPaper:
        """Return the paper. Raises InputError for a field of the wrong type or a bad year.

        id: in place of the record's.
        """
        # Large libraries have millions of them, most without most fields.
        key, title, abstract, venue, doi, arxiv, url, bibtex = (
            value if type(value) is str else "" if value is None else str(value)
            for value in (
                *(self.key, self.title, self.abstract, self.venue),
                *(self.doi, self.arxiv, self.url, self.bibtex),
            )
        )
        title, abstract = clean_text(title), clean_text(abstract)
        if not venue and self.journal is not None:
            venue = Fields({"journal": self.journal}, where).text("journal")
        doi, arxiv = doi and clean_doi(doi), arxiv and find_arxiv_id(arxiv)
        if not arxiv and "arxiv." in doi:
            arxiv = find_arxiv_id(doi)
        if not id:
            id = self.id if type(self.id) is str else ""
        if not id:
            id = Fields({"id": self.id, "paper_id": self.paper_id}, where).text("id", "paper_id")
        return LibraryPaper(
            id or derived_id(doi, arxiv, key, title or abstract),
            key,
            title,
            abstract,
            _cleaned(self._authors()) if self.authors else (),
            self.year
            if type(self.year) is int and self.year in YEARS
            else Fields({"year": self.year}, where).year(),
            venue and clean_text(venue),
            doi,
            arxiv,
            url,
            _distinct(self.collections, self.collection) if self.collections or self.collection else (),
            _distinct(self.tags, self.keywords, self.fields, self.field),
            bibtex,
        )

    def _authors(self) -> list[str]:
        """Return the names of objects, or else of texts."""
        if isinstance(self.authors, str):
            return [name.full for name in parse_names(self.authors) if name != OTHERS]
        authors = self.authors or []
        objects = [str(author.name or "") for author in authors if isinstance(author, Author)]
        return objects or [author for author in authors if isinstance(author, str)]


def _cleaned(texts: list[str]) -> tuple[str, ...]:
    return tuple(filter(None, map(clean_text, texts)))


def _distinct(*fields: Texts) -> tuple[str, ...]:
    texts = [text for field in fields if field for text in ([field] if isinstance(field, str) else field)]
    return tuple(dict.fromkeys(_cleaned(texts))) if texts else ()
