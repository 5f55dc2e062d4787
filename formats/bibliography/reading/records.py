"""JSON records, which come from other programs: typed access to their fields.

Read here are our own, lines of arXiv's metadata snapshot, and works of OpenAlex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from citerec.base.errors import InputError, quoted
from citerec.formats.bibliography.paper import RETRACTED, LibraryPaper, make_paper, usable_paper
from citerec.formats.identifiers import arxiv_year, clean_doi, find_arxiv_id, find_year
from citerec.formats.json_lines import Object, OnBadRecord, json_type, parse_year
from citerec.formats.latex_text import plain_text
from citerec.formats.names import OTHERS, parse_names


class Fields:
    """Typed access to the fields of a record. Raises InputError for a field of the wrong type."""

    def __init__(self, record: Object, where: str) -> None:
        self.record, self.where = record, where

    def text(self, *names: str) -> str:
        """Return the first non-empty one of these fields; integers become strings."""
        for name in names:
            value = self.record.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            if not isinstance(value, str | None):
                raise self.error(name, f"must be a string, not {json_type(value)}")
            if value:
                return value
        return ""

    def texts(self, *names: str) -> list[str]:
        """Return all strings of these fields, each a list of strings or a single string."""
        texts: list[str] = []
        for name in names:
            value = self.record.get(name)
            for part in value if isinstance(value, list) else [] if value is None else [value]:
                if not isinstance(part, str | None):
                    raise self.error(name, f"must be a list of strings, not of {json_type(part)}")
                texts += [part] if part else []
        return texts

    def year(self, name: str = "year") -> int:
        """Return the year in a field that has a year or a date."""
        value = self.record.get(name)
        try:
            return parse_year(value)
        except ValueError as error:
            if isinstance(value, str) and (year := find_year(value)):
                return year
            raise self.error(name, str(error)) from None

    def child(self, name: str) -> Fields:
        """Return the fields of a nested object; empty if the field is not an object."""
        value = self.record.get(name)
        return Fields(value if isinstance(value, dict) else {}, self.where)

    def children(self, name: str) -> list[Fields]:
        """Return the fields of each object in a list; empty if the field is not a list."""
        value = self.record.get(name)
        parts = value if isinstance(value, list) else []
        return [Fields(part, self.where) for part in parts if isinstance(part, dict)]

    def error(self, name: str, reason: str) -> InputError:
        return InputError(f"{self.where}, field {name!r}: {reason}")


def parse_records(
    path: Path,
    records: Iterable[tuple[Any, Any]],
    parse: Callable[[Fields, str], LibraryPaper | None],
    on_bad: OnBadRecord,
) -> Iterator[LibraryPaper]:
    """Yield the papers of a file's records, each with its key; `parse` gets the fields and the key."""
    for key, record in records:
        fields = Fields(record, f"{path}, record {quoted(key)}")
        if isinstance(record, dict):
            yield from usable_paper(partial(parse, fields, str(key)), fields.where, on_bad)
        else:
            on_bad(InputError(f"{fields.where}: must be an object, not {json_type(record)}"))


def parse_own(fields: Fields, id: str = "") -> LibraryPaper:
    """Parse our own record, an entry of papers.json or a JSON line. id: in place of the record's.

        {"id" or "paper_id", "title", "abstract", "year", "authors", "venue" or "journal", "doi", "arxiv",
         "url", "key", "bibtex", "collections", "tags"}

    Numbers may stand for texts, texts for lists, and {"name"} for authors. Several fields may hold
    collections and tags.
    """
    text, authors = fields.text, fields.record.get("authors")
    if isinstance(authors, str):
        names = [name.full for name in parse_names(authors) if name != OTHERS]
    else:
        names = [author.text("name") for author in fields.children("authors")] or fields.texts("authors")
    return make_paper(
        id or text("id", "paper_id"),
        key=text("key"),
        title=text("title"),
        abstract=text("abstract"),
        authors=names,
        year=fields.year(),
        venue=text("venue", "journal"),
        doi=text("doi"),
        arxiv=text("arxiv"),
        url=text("url"),
        bibtex=text("bibtex"),
        collections=fields.texts("collections", "collection"),
        tags=fields.texts("tags", "keywords", "fields", "field"),
    )


def _in_order(index: dict[str, Any]) -> str:
    """Return the text of an inverted index, {word: positions}.

    >>> _in_order({"a": [0, 2], "b": [1]}), _in_order({"a": [1, "x"], "b": [1], "c": None})
    ('a b a', 'a b')
    """
    listed = ((word, positions) for word, positions in index.items() if isinstance(positions, list))
    pairs = sorted((at, word) for word, positions in listed for at in positions if isinstance(at, int))
    return " ".join([word for _, word in pairs])


def parse_arxiv(fields: Fields) -> LibraryPaper:
    """Parse a line of arXiv's metadata snapshot (https://www.kaggle.com/datasets/Cornell-University/arxiv)."""
    id = fields.text("id")
    if not find_arxiv_id(id):
        raise fields.error("id", f"{quoted(id)} is not an arXiv id")
    authors = [
        " ".join(part for part in (name[1], name[0], *name[2:3]) if isinstance(part, str) and part)
        for name in fields.record.get("authors_parsed") or []
        if isinstance(name, list) and len(name) > 1
    ]
    return make_paper(
        f"arxiv:{find_arxiv_id(id)}",
        title=_remove_latex(fields.text("title")),
        abstract=_remove_latex(fields.text("abstract")),
        authors=[*map(_remove_latex, authors or [name.full for name in parse_names(fields.text("authors"))])],
        year=arxiv_year(id) or find_year(fields.text("update_date")),
        venue=fields.text("journal-ref"),
        doi=fields.text("doi"),
        arxiv=id,
        url=f"https://arxiv.org/abs/{find_arxiv_id(id)}",
        tags=fields.text("categories").split(),
    )


def _remove_latex(text: str) -> str:
    return plain_text(text) if "\\" in text else text


def parse_openalex(fields: Fields) -> LibraryPaper:
    """Parse an OpenAlex work (https://docs.openalex.org/api-entities/works/work-object)."""
    doi = clean_doi(fields.text("doi"))
    index = fields.record.get("abstract_inverted_index") or {}
    if not isinstance(index, dict):
        raise fields.error("abstract_inverted_index", f"must be an object, not {json_type(index)}")
    location = fields.child("primary_location")
    venues = (location.child("source"), fields.child("host_venue"))
    url, own = location.text("landing_page_url"), fields.text("id").rpartition("/")[2]
    return make_paper(
        f"doi:{doi}" if doi else f"openalex:{own}" if own else "",
        title=fields.text("title", "display_name"),
        abstract=_in_order(index),
        authors=[part.child("author").text("display_name") for part in fields.children("authorships")],
        year=fields.year("publication_year"),
        venue=next(filter(None, (venue.text("display_name") for venue in venues)), ""),
        doi=doi,
        arxiv=find_arxiv_id(url) if "arxiv.org" in url else "",
        url=url or fields.text("id"),
        tags=[part.text("display_name") for part in fields.children("keywords") or fields.children("topics")],
        filled=(f"{RETRACTED}:OpenAlex",) if fields.record.get("is_retracted") is True else (),
    )
