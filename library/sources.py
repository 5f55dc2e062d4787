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

import html
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets.citations.graph import PaperLine, read_record
from datasets.errors import InputError
from datasets.files import open_bytes, without_mark
from datasets.fulltext.catalogue import arxiv_year, clean_arxiv, letters_of, title_key, year_in
from datasets.fulltext.documents import Metadata
from datasets.fulltext.latex_source import plain
from datasets.json_lines import Object, OnBadRecord, read_objects
from datasets.progress import reading
from datasets.records import kind_of, parse_year, shown, usable_id
from datasets.source_files import OnBytes, stream_json
from library.papers import LibraryPaper

FORMATS = ".bib, .ris, .json, .jsonl"
IN_FOLDERS = (".bib", ".ris", ".json", ".jsonl", ".ndjson")
"""Names of the files that are read when a source is a folder, also with .gz."""
START = 1 << 16
"""Bytes by which a format is recognised."""

_DOI = re.compile(r"10\.\d{4,9}/\S+")
_TAG = re.compile(
    r"</?(?:jats:)?(?:p|i|b|em|strong|sub|sup|span|sc|scp|italic|bold|title|sec|tt|u)\b[^<>]*>", re.I
)
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
    """The papers of a file, in order. Raises InputError for a file that is of no known format or empty."""
    with open_bytes(path) as (file, _):
        start = file.read(START)
    name = path.name.lower().removesuffix(".gz")
    first = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if not first:
        raise InputError(f"{path}: is empty")
    with reading(path, path.name) as on_bytes:
        if name.endswith((".bib", ".bibtex")) or (first == b"@" and not name.endswith(".ris")):
            from library.bibliographies import read_bibtex

            yield from read_bibtex(path, on_bad)
        elif name.endswith(".ris") or _RIS_START.match(start):
            from library.bibliographies import read_ris

            yield from read_ris(path, on_bad)
        elif first == b"[":
            without_mark(start, path)
            yield from _members(path, list, _csl, on_bytes, on_bad)
        elif first == b"{" and not name.endswith((".jsonl", ".ndjson")) and _OBJECT_OF_OBJECTS.match(start):
            yield from _members(path, dict, _own, on_bytes, on_bad)
        elif first == b"{":
            for where, record in read_objects(path, on_bytes, on_bad):
                yield from _usable(partial(_line, record, where), where, on_bad)
        else:
            raise InputError(f"{path}: is of no known format; give {FORMATS}, also .gz")


def _members(
    path: Path,
    top: Any,
    read: Callable[[Any, Object, str], LibraryPaper],
    on_bytes: OnBytes,
    on_bad: OnBadRecord,
) -> Iterator[LibraryPaper]:
    """The papers of one JSON value."""
    for key, record, twice in stream_json(path, top, on_bytes):
        where = f"{path}, record {shown(key)}"
        if not isinstance(record, dict):
            on_bad(InputError(f"{where}: must be an object, not {kind_of(record)}"))
        elif twice:
            on_bad(InputError(f"{where}, field {twice[0]!r}: is there twice"))
        else:
            yield from _usable(partial(read, key, record, where), where, on_bad)


def _usable(
    read: Callable[[], LibraryPaper | None], where: str, on_bad: OnBadRecord
) -> Iterator[LibraryPaper]:
    """The paper, if it can be used."""
    try:
        paper = read()
        if paper is not None:
            check_paper(paper, where)
            yield paper
    except InputError as error:
        on_bad(error)


def check_paper(paper: LibraryPaper, where: str) -> None:
    """InputError for a paper without title and abstract, or of an id that cannot be one."""
    if not (paper.title or paper.abstract):
        raise InputError(f"{where}: has neither title nor abstract")
    if not usable_id(paper.id):
        reason = "is no id: it must not be empty or hold white space or control characters"
        raise InputError(f"{where}: {shown(paper.id)} {reason}")


def make_paper(id: str = "", **known: Any) -> LibraryPaper:
    """A paper whose texts are cleaned; an empty id is made of its DOI, arXiv id, key or title."""
    doi, arxiv = clean_doi(known.get("doi", "")), clean_arxiv(known.get("arxiv", ""))
    if not arxiv and "arxiv." in doi:
        arxiv = clean_arxiv(doi)
    title, abstract = one_line(known.get("title", "")), one_line(known.get("abstract", ""))
    key = known.get("key", "")
    if not id:
        if doi and not (arxiv and "arxiv." in doi):
            id = f"doi:{doi}"
        elif arxiv:
            id = f"arxiv:{arxiv}"
        elif key:
            id = "key:" + re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", "_", key)
        else:
            id = f"title:{title_key(letters_of(title or abstract)):016x}"
    own = {"id": id, "title": title, "abstract": abstract, "doi": doi, "arxiv": arxiv}
    known["year"] = int(known.get("year", 0))  # readers have a type of their own
    return LibraryPaper(**(known | own))


def one_line(text: str) -> str:
    """With single spaces, and without the mark-up and halves of surrogate pairs that exports leave in.

    >>> one_line("<i>Deep</i>  nets &amp; 1 < 2")
    'Deep nets & 1 < 2'
    """
    if "<" in text:
        text = _TAG.sub("", text)
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return " ".join(text.replace("\0", "").split())


def clean_doi(text: str) -> str:
    """In lower case, without address; "" if there is none.

    >>> clean_doi("https://doi.org/10.1145/3397271.3401075")
    '10.1145/3397271.3401075'
    """
    found = _DOI.search(text)
    return found[0].rstrip(".,;}\"'").lower() if found and found[0].isprintable() else ""


def names_in(value: str) -> tuple[str, ...]:
    """Keywords or groups, set apart by semicolons or else commas, each once."""
    parts = value.split(";" if ";" in value else ",")
    return tuple(dict.fromkeys(part for text in parts if (part := one_line(text))))


def _string(record: Object, where: str, *names: str) -> str:
    """The first of these fields that is there; InputError for one that is no string."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str):
            if value:
                return value
        elif isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        elif value is not None:
            raise InputError(f"{where}, field {name!r}: must be a string, not {kind_of(value)}")
    return ""


def _strings(record: Object, where: str, *names: str) -> tuple[str, ...]:
    """Those of a list of strings, or of a string alone, each once, in all these fields."""
    found: list[str] = []
    for name in names:
        value = record.get(name)
        for part in value if isinstance(value, list) else [] if value is None else [value]:
            if not isinstance(part, str):
                raise InputError(
                    f"{where}, field {name!r}: must be a list of strings, not of {kind_of(part)}"
                )
            found.append(one_line(part))
    return tuple(dict.fromkeys(filter(None, found)))


def _year(record: Object, where: str, name: str = "year") -> int:
    value = record.get(name)
    try:
        return parse_year(value)
    except ValueError as error:
        if isinstance(value, str) and (year := year_in(value)):  # a date
            return year
        raise InputError(f"{where}, field {name!r}: {error}") from None


def _own(key: Any, record: Object, where: str) -> LibraryPaper:
    """A member of papers.json, or a line of our own."""
    authors = record.get("authors")
    if isinstance(authors, list) and authors and isinstance(authors[0], dict):
        record = record | {"authors": [author.get("name") for author in authors if isinstance(author, dict)]}
    return make_paper(
        key,
        key=_string(record, where, "key"),
        title=_string(record, where, "title"),
        abstract=_string(record, where, "abstract"),
        authors=_strings(record, where, "authors"),
        year=_year(record, where),
        venue=one_line(_string(record, where, "venue", "journal")),
        doi=_string(record, where, "doi"),
        arxiv=_string(record, where, "arxiv"),
        url=_string(record, where, "url"),
        collections=_strings(record, where, "collections", "collection"),
        tags=_strings(record, where, "tags", "keywords", "fields", "field"),
        bibtex=_string(record, where, "bibtex"),
    )


_CSL_TYPES = ("title", "author", "issued", "container-title", "DOI", "type")


def _csl(number: int, record: Object, where: str) -> LibraryPaper:
    """An item of CSL JSON (https://citeproc-js.readthedocs.io/en/latest/csl-json/markup.html)."""
    if not any(name in record for name in _CSL_TYPES):
        raise InputError(f"{where}: is no item of CSL JSON (it has neither title nor author nor type)")
    authors = []
    listed = record.get("author") or []
    for name in listed if isinstance(listed, list) else []:
        if isinstance(name, dict):
            parts = ("given", "non-dropping-particle", "dropping-particle", "family", "suffix", "literal")
            authors.append(" ".join(str(name[part]) for part in parts if name.get(part)))
    issued, year = record.get("issued") or {}, 0
    if isinstance(issued, dict):
        year = year_in(str(issued.get("date-parts") or issued.get("raw") or issued.get("literal") or ""))
    note = _string(record, where, "note")
    key = _string(record, where, "citation-key", "citekey")
    if not key and (found := re.search(r"^\s*citation key\s*:\s*(\S+)", note, re.IGNORECASE | re.MULTILINE)):
        key = found[1]
    places = [_string(record, where, name) for name in ("number", "archive_location", "URL")]
    of_arxiv = "arxiv" in " ".join([*places, _string(record, where, "archive", "publisher"), note]).lower()
    return make_paper(
        key=key or _string(record, where, "id"),
        title=_string(record, where, "title"),
        abstract=_string(record, where, "abstract"),
        authors=tuple(filter(None, map(one_line, authors))),
        year=year,
        venue=one_line(_string(record, where, "container-title", "event-title", "publisher")),
        doi=_string(record, where, "DOI"),
        arxiv=next(filter(None, map(clean_arxiv, [*places, note])), "") if of_arxiv else "",
        url=_string(record, where, "URL"),
        collections=_strings(record, where, "collections", "categories"),
        tags=names_in(_string(record, where, "keyword")),
    )


def _line(record: Object, where: str) -> LibraryPaper | None:
    """A line of JSON, of the layout that its keys tell; None for one that is no paper."""
    if "authors_parsed" in record or "submitter" in record:
        return _of_arxiv(record, where)
    if "abstract_inverted_index" in record or "display_name" in record:
        return _of_openalex(record, where)
    if any(name in record for name in _OF_S2):
        return _of_s2(record, where)
    return _own(_string(record, where, "id", "paper_id"), record, where)


def _of_arxiv(record: Object, where: str) -> LibraryPaper:
    """A line of arXiv's metadata snapshot (https://www.kaggle.com/datasets/Cornell-University/arxiv)."""
    id = _string(record, where, "id")
    if not clean_arxiv(id):
        raise InputError(f"{where}, field 'id': {shown(id)} is no arXiv id")
    authors = [
        " ".join(part for part in (name[1], name[0], *name[2:3]) if isinstance(part, str) and part)
        for name in record.get("authors_parsed") or []
        if isinstance(name, list) and len(name) > 1
    ]
    return make_paper(
        f"arxiv:{clean_arxiv(id)}",
        title=_unlatexed(_string(record, where, "title")),
        abstract=_unlatexed(_string(record, where, "abstract")),
        authors=tuple(map(_unlatexed, authors)) or names_in(_string(record, where, "authors")),
        year=arxiv_year(id) or year_in(_string(record, where, "update_date")),
        venue=one_line(_string(record, where, "journal-ref")),
        doi=_string(record, where, "doi"),
        arxiv=id,
        url=f"https://arxiv.org/abs/{clean_arxiv(id)}",
        tags=tuple(_string(record, where, "categories").split()),
    )


def _unlatexed(text: str) -> str:
    return plain(text) if "\\" in text else text


def _of_openalex(record: Object, where: str) -> LibraryPaper:
    """A work of OpenAlex (https://docs.openalex.org/api-entities/works/work-object)."""
    doi = clean_doi(_string(record, where, "doi"))
    index = record.get("abstract_inverted_index") or {}
    if not isinstance(index, dict):
        raise InputError(f"{where}, field 'abstract_inverted_index': must be an object, not {kind_of(index)}")
    places = ((place, word) for word, listed in index.items() if isinstance(listed, list) for place in listed)
    words = sorted((place, word) for place, word in places if isinstance(place, int))
    location = _inner(record, "primary_location")
    source = _inner(location, "source") or _inner(record, "host_venue")
    authors = [
        _inner(one, "author").get("display_name")
        for one in record.get("authorships") or []
        if isinstance(one, dict)
    ]
    url = _string(location, where, "landing_page_url")
    concepts = record.get("keywords") or record.get("topics") or []
    return make_paper(
        f"doi:{doi}" if doi else "openalex:" + _string(record, where, "id").rpartition("/")[2],
        title=_string(record, where, "title", "display_name"),
        abstract=" ".join(word for _, word in words),
        authors=tuple(name for name in authors if isinstance(name, str) and name),
        year=_year(record, where, "publication_year"),
        venue=one_line(_string(source, where, "display_name")),
        doi=doi,
        arxiv=clean_arxiv(url) if "arxiv.org" in url else "",
        url=url or _string(record, where, "id"),
        tags=tuple(
            str(concept["display_name"])
            for concept in concepts
            if isinstance(concept, dict) and concept.get("display_name")
        ),
    )


def _inner(record: Object, name: str) -> Object:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


_OF_S2 = (
    *("corpusid", "citingcorpusid", "paperAbstract", "outCitations", "out_citations"),
    *("outbound_citations", "mag_field_of_study"),
)


def _of_s2(record: Object, where: str) -> LibraryPaper | None:
    """A line of Semantic Scholar's dumps, Citeomatic's, or S2ORC's metadata (datasets.citations.graph)."""
    found = read_record(record, where)
    if not isinstance(found, PaperLine | Metadata):
        raise InputError(f"{where}: is a citation, no paper; give the files of papers")
    tags = found.fields if isinstance(found, PaperLine) else found.field
    known = _inner(record, "externalids") or _inner(_inner(record, "openaccessinfo"), "externalids")
    identifiers = {kind.lower(): value for kind, value in known.items() if isinstance(value, str)}
    authors = record.get("authors")
    names = (
        [author.get("name") for author in authors if isinstance(author, dict)]
        if isinstance(authors, list)
        else []
    )
    paper = make_paper(
        title=found.title,
        abstract=found.abstract,
        authors=tuple(name for name in names if isinstance(name, str) and name),
        year=found.year,
        venue=one_line(_string(record, where, "venue", "journalName")) if not _inner(record, "venue") else "",
        doi=identifiers.get("doi", "") or _string(record, where, "doi"),
        arxiv=identifiers.get("arxiv", "") or _string(record, where, "arxiv_id"),
        url=_string(record, where, "url", "s2Url"),
        tags=(tags,) if isinstance(tags, str) and tags else tuple(tags),
    )
    return paper._replace(id=f"s2:{found.id}")
