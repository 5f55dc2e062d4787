"""Files that papers come from, read one paper at a time.

    .bib                    BibTeX and BibLaTeX (library.bibliographies)
    .ris                    RIS (library.bibliographies)
    .json                   CSL JSON, a list; or papers.json, an object of papers by id
    JSON lines              arXiv's metadata snapshot, OpenAlex works, Semantic Scholar's dumps and S2ORC's
                            metadata, and our own: {"id" or "paper_id", "title", "abstract", "year",
                            "authors", "venue", "doi", "arxiv", "url", "key", "collections", "tags"}

All may be gzipped. A file of another name is recognised by how it begins. A record that cannot be used is
told to `on_bad` with its place; reading goes on.

The id of a paper is that of its source in papers.json and our own lines; arxiv:ID in arXiv's snapshot,
s2:ID in Semantic Scholar's files; else the first it has of doi:DOI, arxiv:ID, openalex:ID, key:KEY and
title:HASH.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets.citations.graph import PaperLine, read_record
from datasets.errors import InputError
from datasets.files import open_bytes, strip_byte_order_mark
from datasets.fulltext.catalogue import arxiv_year, clean_arxiv, year_in
from datasets.fulltext.documents import Metadata
from datasets.fulltext.latex_source import plain_text
from datasets.json_lines import Object, OnBadRecord, read_objects
from datasets.progress import OnBytes, read_progress
from datasets.records import json_type, parse_year, quoted
from datasets.source_files import stream_json
from library.bibliographies import read_bibtex, read_ris
from library.papers import LibraryPaper, clean_doi, make_paper, names_in, usable_paper

FORMATS = ".bib, .ris, .json, .jsonl"
IN_FOLDERS = (".bib", ".ris", ".json", ".jsonl", ".ndjson")
"""Names of the files that are read when a source is a folder, also with .gz."""
START = 1 << 16
"""Bytes by which a format is recognised."""

_OBJECT_OF_OBJECTS = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{')
_RIS_START = re.compile(rb"\s*TY  ?-")


def find_sources(names: Sequence[str]) -> list[Path]:
    """The files that are named, each once; of a folder papers.json, or else all with such a suffix.

    InputError for a name without files.
    """
    found: dict[Path, None] = {}
    for name in names:
        path = Path(name).expanduser()
        if path.is_dir():
            own = [path / file for file in ("papers.json", "papers.json.gz") if (path / file).is_file()]
            inside = (file for file in sorted(path.rglob("*")) if file.is_file())
            files = own[:1] or [file for file in inside if file.name.removesuffix(".gz").endswith(IN_FOLDERS)]
            if not files:
                raise InputError(f"source={name}: a folder without files of papers ({FORMATS}, also .gz)")
        elif path.is_file():
            files = [path]
        else:
            raise InputError(f"source={name}: no such file")
        found.update(dict.fromkeys(file.resolve() for file in files))
    return list(found)


def read_source(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """The papers of a file, in order. Raises InputError for a file that is empty or has an unknown format."""
    with open_bytes(path) as (file, _):
        start = file.read(START)
    name = path.name.lower().removesuffix(".gz")
    first = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if not first:
        raise InputError(f"{path}: is empty")
    with read_progress(path, path.name) as on_bytes:
        if name.endswith((".bib", ".bibtex")) or (first == b"@" and not name.endswith(".ris")):
            yield from read_bibtex(path, on_bad)
        elif name.endswith(".ris") or _RIS_START.match(start):
            yield from read_ris(path, on_bad)
        elif first == b"[":
            strip_byte_order_mark(start, path)
            yield from _members(path, list, _csl, on_bytes, on_bad)
        elif first == b"{" and not name.endswith((".jsonl", ".ndjson")) and _OBJECT_OF_OBJECTS.match(start):
            yield from _members(path, dict, _own, on_bytes, on_bad)
        elif first == b"{":
            for where, record in read_objects(path, on_bytes, on_bad):
                yield from usable_paper(partial(_line, _Fields(record, where)), where, on_bad)
        else:
            raise InputError(f"{path}: has an unknown format; give {FORMATS}, also .gz")


class _Fields:
    """The fields of a record. Reading one raises InputError if it is of another type than wanted."""

    def __init__(self, record: Object, where: str) -> None:
        self.record, self.where = record, where

    def text(self, *names: str) -> str:
        """The first of these fields that is there; a number counts as its digits."""
        for name in names:
            value = self.record.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            if not isinstance(value, str | None):
                raise self.wrong(name, f"must be a string, not {json_type(value)}")
            if value:
                return value
        return ""

    def texts(self, *names: str) -> list[str]:
        """All that these fields have: lists of strings, or a string alone."""
        found: list[str] = []
        for name in names:
            value = self.record.get(name)
            for part in value if isinstance(value, list) else [] if value is None else [value]:
                if not isinstance(part, str):
                    raise self.wrong(name, f"must be a list of strings, not of {json_type(part)}")
                found.append(part)
        return found

    def year(self, name: str = "year") -> int:
        """Also of a date."""
        value = self.record.get(name)
        try:
            return parse_year(value)
        except ValueError as error:
            if isinstance(value, str) and (year := year_in(value)):
                return year
            raise self.wrong(name, str(error)) from None

    def inside(self, name: str) -> _Fields:
        """Those of an object in a field; none if there is no object."""
        value = self.record.get(name)
        return _Fields(value if isinstance(value, dict) else {}, self.where)

    def each(self, name: str) -> list[_Fields]:
        """Those of the objects in a list."""
        value = self.record.get(name)
        listed = value if isinstance(value, list) else []
        return [_Fields(part, self.where) for part in listed if isinstance(part, dict)]

    def wrong(self, name: str, why: str) -> InputError:
        return InputError(f"{self.where}, field {name!r}: {why}")


def _members(
    path: Path,
    top: type[dict[Any, Any]] | type[list[Any]],
    read: Callable[[_Fields, str], LibraryPaper],
    on_bytes: OnBytes,
    on_bad: OnBadRecord,
) -> Iterator[LibraryPaper]:
    """The papers of one JSON value; read: gets their fields and keys."""
    for key, record, twice in stream_json(path, top, on_bytes):
        fields = _Fields(record, f"{path}, record {quoted(key)}")
        if not isinstance(record, dict):
            on_bad(InputError(f"{fields.where}: must be an object, not {json_type(record)}"))
        elif twice:
            on_bad(fields.wrong(twice[0], "appears twice"))
        else:
            yield from usable_paper(partial(read, fields, key), fields.where, on_bad)


def _own(fields: _Fields, id: str) -> LibraryPaper:
    """A member of papers.json, or a line of our own."""
    named = [author.text("name") for author in fields.each("authors")]
    return make_paper(
        id,
        **{name: fields.text(name) for name in ("key", "title", "abstract", "doi", "arxiv", "url", "bibtex")},
        authors=named or fields.texts("authors"),
        year=fields.year(),
        venue=fields.text("venue", "journal"),
        collections=fields.texts("collections", "collection"),
        tags=fields.texts("tags", "keywords", "fields", "field"),
    )


_CSL_TYPES = ("title", "author", "issued", "container-title", "DOI", "type")
_CSL_NAME = ("given", "non-dropping-particle", "dropping-particle", "family", "suffix", "literal")


def _csl(fields: _Fields, _: str) -> LibraryPaper:
    """An item of CSL JSON (https://citeproc-js.readthedocs.io/en/latest/csl-json/markup.html)."""
    if not any(name in fields.record for name in _CSL_TYPES):
        raise InputError(f"{fields.where}: is not a CSL JSON item (it has neither title nor author nor type)")
    issued = fields.inside("issued").record
    date = issued.get("date-parts") or issued.get("raw") or issued.get("literal") or ""
    note = fields.text("note")
    key = fields.text("citation-key", "citekey")
    if not key and (found := re.search(r"^\s*citation key\s*:\s*(\S+)", note, re.IGNORECASE | re.MULTILINE)):
        key = found[1]
    places = [fields.text(name) for name in ("number", "archive_location", "URL")]
    of_arxiv = "arxiv" in " ".join([*places, fields.text("archive", "publisher"), note]).lower()
    return make_paper(
        key=key or fields.text("id"),
        title=fields.text("title"),
        abstract=fields.text("abstract"),
        authors=[" ".join(filter(None, map(name.text, _CSL_NAME))) for name in fields.each("author")],
        year=year_in(str(date)),
        venue=fields.text("container-title", "event-title", "publisher"),
        doi=fields.text("DOI"),
        arxiv=next(filter(None, map(clean_arxiv, [*places, note])), "") if of_arxiv else "",
        url=fields.text("URL"),
        collections=fields.texts("collections", "categories"),
        tags=names_in(fields.text("keyword")),
    )


def _line(fields: _Fields) -> LibraryPaper | None:
    """A line of JSON, of the layout that its keys tell; None for one that is no paper."""
    if "authors_parsed" in fields.record or "submitter" in fields.record:
        return _of_arxiv(fields)
    if "abstract_inverted_index" in fields.record or "display_name" in fields.record:
        return _of_openalex(fields)
    if any(name in fields.record for name in _OF_S2):
        return _of_s2(fields)
    return _own(fields, fields.text("id", "paper_id"))


def _of_arxiv(fields: _Fields) -> LibraryPaper:
    """A line of arXiv's metadata snapshot (https://www.kaggle.com/datasets/Cornell-University/arxiv)."""
    id = fields.text("id")
    if not clean_arxiv(id):
        raise fields.wrong("id", f"{quoted(id)} is no arXiv id")
    authors = [
        " ".join(part for part in (name[1], name[0], *name[2:3]) if isinstance(part, str) and part)
        for name in fields.record.get("authors_parsed") or []
        if isinstance(name, list) and len(name) > 1
    ]
    return make_paper(
        f"arxiv:{clean_arxiv(id)}",
        title=_unlatexed(fields.text("title")),
        abstract=_unlatexed(fields.text("abstract")),
        authors=[*map(_unlatexed, authors)] or names_in(fields.text("authors")),
        year=arxiv_year(id) or year_in(fields.text("update_date")),
        venue=fields.text("journal-ref"),
        doi=fields.text("doi"),
        arxiv=id,
        url=f"https://arxiv.org/abs/{clean_arxiv(id)}",
        tags=fields.text("categories").split(),
    )


def _unlatexed(text: str) -> str:
    return plain_text(text) if "\\" in text else text


def _of_openalex(fields: _Fields) -> LibraryPaper:
    """A work of OpenAlex (https://docs.openalex.org/api-entities/works/work-object)."""
    doi = clean_doi(fields.text("doi"))
    index = fields.record.get("abstract_inverted_index") or {}
    if not isinstance(index, dict):
        raise fields.wrong("abstract_inverted_index", f"must be an object, not {json_type(index)}")
    places = ((place, word) for word, listed in index.items() if isinstance(listed, list) for place in listed)
    words = sorted((place, word) for place, word in places if isinstance(place, int))
    location = fields.inside("primary_location")
    venues = (location.inside("source"), fields.inside("host_venue"))
    url = location.text("landing_page_url")
    return make_paper(
        f"doi:{doi}" if doi else "openalex:" + fields.text("id").rpartition("/")[2],
        title=fields.text("title", "display_name"),
        abstract=" ".join(word for _, word in words),
        authors=[one.inside("author").text("display_name") for one in fields.each("authorships")],
        year=fields.year("publication_year"),
        venue=next(filter(None, (venue.text("display_name") for venue in venues)), ""),
        doi=doi,
        arxiv=clean_arxiv(url) if "arxiv.org" in url else "",
        url=url or fields.text("id"),
        tags=[one.text("display_name") for one in fields.each("keywords") or fields.each("topics")],
    )


_OF_S2 = (
    *("corpusid", "citingcorpusid", "paperAbstract", "outCitations", "out_citations"),
    *("outbound_citations", "mag_field_of_study"),
)


def _of_s2(fields: _Fields) -> LibraryPaper | None:
    """A line of Semantic Scholar's dumps, Citeomatic's, or S2ORC's metadata (datasets.citations.graph)."""
    found = read_record(fields.record, fields.where)
    if not isinstance(found, PaperLine | Metadata):
        raise InputError(f"{fields.where}: is a citation, not a paper; give the files of papers")
    tags = found.fields if isinstance(found, PaperLine) else found.field
    known = (
        fields.inside("externalids").record or fields.inside("openaccessinfo").inside("externalids").record
    )
    identifiers = {kind.lower(): value for kind, value in known.items() if isinstance(value, str)}
    return make_paper(
        f"s2:{found.id}",
        title=found.title,
        abstract=found.abstract,
        authors=[author.text("name") for author in fields.each("authors")],
        year=found.year,
        venue="" if fields.inside("venue").record else fields.text("venue", "journalName"),
        doi=identifiers.get("doi", "") or fields.text("doi"),
        arxiv=identifiers.get("arxiv", "") or fields.text("arxiv_id"),
        url=fields.text("url", "s2Url"),
        tags=[tags] if isinstance(tags, str) else tags,
    )
