"""Readers for RIS, PubMed's NBIB, and EndNote's tagged and XML files."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import rispy

from citerec.base.errors import InputError
from citerec.datasets.formats.json_lines import OnBadRecord
from citerec.datasets.fulltext.catalogue import find_arxiv_id, find_year
from citerec.datasets.languages.inputs import decode_text
from citerec.library.papers import LibraryPaper, make_paper, split_names, usable_paper

_RECORD = re.compile(r"^(TY  ?-.*?(?:^ER  ?-[^\n]*|(?=^TY  ?-)|\Z))", re.MULTILINE | re.DOTALL)
_RECORD_END = re.compile(r"^ER  ?-", re.MULTILINE)


def read_ris(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a RIS file, in order. Raises InputError for a file without records."""
    pieces = _RECORD.split(decode_text(path))  # alternately text outside records and a record
    if len(pieces) == 1:
        raise InputError(f"{path}: has no records (TY  - JOUR ... ER  -)")
    line = 1
    for number, piece in enumerate(pieces):
        if number % 2:
            where = f"{path}, line {line}"
            record = piece if _RECORD_END.search(piece) else f"{piece.rstrip()}\nER  - "
            yield from usable_paper(partial(_parse_ris, record, where), where, on_bad)
        elif piece.strip():
            start = line + piece[: -len(piece.lstrip())].count("\n")
            on_bad(InputError(f"{path}, line {start}: is outside of a record; records begin with TY  -"))
        line += piece.count("\n")


def _parse_ris(record: str, where: str) -> LibraryPaper:
    try:
        parsed = rispy.loads(record, skip_unknown_tags=True)
    except (rispy.parser.ParseError, ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{where}: is not a RIS record: {error}") from None
    if not parsed:
        raise InputError(f"{where}: is not a RIS record (it must begin with TY  - and end with ER  -)")
    fields: dict[str, Any] = parsed[0]

    def values(*names: str) -> list[str]:
        found = (fields.get(name) or [] for name in names)
        return [str(text) for value in found for text in (value if isinstance(value, list) else [value])]

    def first(*names: str) -> str:
        return next(map(str.strip, values(*names)), "")

    url = first("urls", "url")
    number = first("number", "custom7", "accession_number")
    arxiv_fields = [number, url, first("notes"), first("journal_name")]
    return make_paper(
        key=first("label", "id"),
        title=first("title", "primary_title", "short_title"),
        abstract=first("abstract", "notes_abstract"),
        authors=map(_given_name_first, values("authors", "first_authors")),
        year=find_year(first("year", "publication_year", "date")),
        venue=first("secondary_title", "alternate_title3", "journal_name", "publisher"),
        doi=first("doi"),
        arxiv=next(filter(None, map(find_arxiv_id, arxiv_fields)), ""),
        url=url,
        tags=[name for text in values("keywords") for name in split_names(text)],
    )


def _given_name_first(name: str) -> str:
    """Turn "Lee, Ann B." into "Ann B. Lee"."""
    family, _, given = name.partition(",")
    given, _, suffix = given.partition(",")
    return f"{given} {family} {suffix}"


# NBIB and EndNote's tagged format have no parser that is kept up; both are lines of a tag and its value.
_TAGGED = {
    "nbib": (
        re.compile(r"^PMID *-", re.MULTILINE),
        re.compile(r"^([A-Z]{2,4}) *- (.*(?:\n {6}.*)*)", re.MULTILINE),
    ),
    "enw": (re.compile(r"^%0 ", re.MULTILINE), re.compile(r"^%(\S) (.*(?:\n(?!%\S ).*)*)", re.MULTILINE)),
}
"""Beginning of a record, and a line with its continuation."""


def read_nbib(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a PubMed file, in order. Raises InputError for a file without records."""
    for fields, where in _read_tagged(path, "nbib", "PMID- ..."):
        identifiers = [text for name in ("LID", "AID") for text in fields.get(name, ())]
        pmid = _first(fields, "PMID")
        paper = partial(
            make_paper,
            title=_first(fields, "TI", "BTI").removesuffix("."),
            abstract=_first(fields, "AB"),
            authors=[_given_name_first(name) for name in fields.get("FAU", fields.get("AU", ()))]
            + fields.get("CN", []),
            year=find_year(_first(fields, "DP", "DEP")),
            venue=_first(fields, "JT", "TA", "CTI"),
            doi=next((text for text in identifiers if text.endswith("[doi]")), "").removesuffix("[doi]"),
            url=f"https://pubmed.ncbi.nlm.nih.gov/{pmid}/" if pmid.isdecimal() else "",
            tags=[term.replace("*", "") for name in ("OT", "MH") for term in fields.get(name, ())],
        )
        yield from usable_paper(paper, where, on_bad)


def read_enw(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a file in EndNote's tagged format. Raises InputError for a file without records."""
    for fields, where in _read_tagged(path, "enw", "%0 Journal Article ..."):
        url = _first(fields, "U")
        paper = partial(
            make_paper,
            key=_first(fields, "F"),
            title=_first(fields, "T"),
            abstract=_first(fields, "X"),
            authors=map(_given_name_first, fields.get("A", fields.get("E", ()))),
            year=find_year(_first(fields, "D", "8")),
            venue=_first(fields, "J", "B", "I"),
            doi=_first(fields, "R"),
            arxiv=find_arxiv_id(url) if "arxiv.org" in url else "",
            url=url,
            tags=[
                name
                for text in fields.get("K", ())
                for line in text.splitlines()
                for name in split_names(line)
            ],
        )
        yield from usable_paper(paper, where, on_bad)


def _read_tagged(path: Path, kind: str, example: str) -> Iterator[tuple[dict[str, list[str]], str]]:
    """Yield the values of each record by tag, and where it is."""
    start, field = _TAGGED[kind]
    text = decode_text(path)
    starts = [match.start() for match in start.finditer(text)]
    if not starts:
        raise InputError(f"{path}: has no records ({example})")
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        fields: dict[str, list[str]] = {}
        for tag, value in field.findall(text, begin, end):
            fields.setdefault(tag, []).append(value.strip())
        yield fields, f"{path}, line {text.count(chr(10), 0, begin) + 1}"


def _first(fields: dict[str, list[str]], *names: str) -> str:
    return next((text for name in names for text in fields.get(name, ()) if text), "")


_CONTROL = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f]")


def read_endnote_xml(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of EndNote's XML. Raises InputError for malformed XML or a file without records.

    Declarations of a document type are refused, so no entity is ever defined, and no other file is read.
    """
    text = _CONTROL.sub(" ", decode_text(path))
    if "<!DOCTYPE" in text:
        raise InputError(f"{path}: declares a document type (<!DOCTYPE), which EndNote does not; remove it")
    try:
        records = ET.fromstring(text).findall(".//record")
    except ET.ParseError as error:
        raise InputError(f"{path}: malformed XML: {error}") from None
    if not records:
        raise InputError(f"{path}: has no records (<xml><records><record> ...), as EndNote exports them")
    for number, record in enumerate(records, start=1):
        where = f"{path}, record {number}"
        yield from usable_paper(partial(_parse_endnote, record), where, on_bad)


def _parse_endnote(record: ET.Element) -> LibraryPaper:
    def texts(*places: str) -> list[str]:
        """Return the texts at the first of these places that has any."""
        for place in places:
            if found := [
                text for part in record.findall(place) if (text := "".join(part.itertext()).strip())
            ]:
                return found
        return []

    def first(*places: str) -> str:
        return next(iter(texts(*places)), "")

    url = first("urls/related-urls/url", "urls/web-urls/url")
    return make_paper(
        key=first("label"),
        title=first("titles/title"),
        abstract=first("abstract"),
        authors=map(
            _given_name_first,
            texts("contributors/authors/author", "contributors/secondary-authors/author"),
        ),
        year=find_year(first("dates/year", "dates/pub-dates/date")),
        venue=first(
            "titles/secondary-title", "periodical/full-title", "alt-periodical/full-title", "publisher"
        ),
        doi=first("electronic-resource-num"),
        arxiv=find_arxiv_id(url) if "arxiv.org" in url else "",
        url=url,
        tags=[name for text in texts("keywords/keyword") for name in split_names(text)],
    )
