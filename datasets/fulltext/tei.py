"""TEI XML as GROBID writes it, one paper a file.

Title, abstract, authors and date are those of the header. Running text is that of the paragraphs of the body
and the annexes, a `div` being a section; figures, tables, formulas on lines of their own and notes are left
out. A citation is a `ref` of the type bibr, its `target` an entry (`biblStruct`) of the list of references.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from typing import Any

from datasets.errors import InputError
from datasets.files import whole_file
from datasets.fulltext.bibliography import arxiv_year
from datasets.fulltext.records import Cite, FullText, Paper, Paragraph, Record, Reference

_TEI = "{http://www.tei-c.org/ns/1.0}"
_ID = "{http://www.w3.org/XML/1998/namespace}id"
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_SPACE = re.compile(r"\s+")
_LEFT_OUT = frozenset((f"{_TEI}note", f"{_TEI}figure", f"{_TEI}table"))
LARGEST = 1 << 25
"""Bytes of a document at most."""
DEEPEST = 200
"""Elements in each other at most."""


def read_tei(path: Path, paper: str) -> Record:
    """The paper of a file, plain or gzipped. Raises InputError for what is no TEI document."""
    content = whole_file(path, LARGEST)
    try:
        root = ET.fromstring(content, ET.XMLParser(target=_Builder(path)))
    except (ET.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{path}: malformed XML: {error}") from None
    if root.tag != f"{_TEI}TEI":
        raise InputError(f"{path}: must be a TEI document, not {root.tag.rpartition('}')[2]!r}")
    header = root.find(f"{_TEI}teiHeader")
    if header is None:
        raise InputError(f"{path}: the TEI document has no teiHeader")
    document = header.find(f"{_TEI}fileDesc/{_TEI}sourceDesc/{_TEI}biblStruct")
    described = _reference(document) if document is not None else Reference()
    dates = [described.year] if described.year else [_year(date) for date in header.iter(f"{_TEI}date")]
    abstract = header.find(f"{_TEI}profileDesc/{_TEI}abstract")
    return Record(
        str(path),
        Paper(
            id=paper,
            title=_text(header.find(f"{_TEI}fileDesc/{_TEI}titleStmt/{_TEI}title")) or described.title,
            abstract=_text(abstract),
            year=arxiv_year(paper) or next((year for year in dates if year), 0),
            authors=described.authors,
            identifiers=frozenset(("arxiv",)) if arxiv_year(paper) else frozenset(),
        ),
        partial(_full_text, root),
    )


class _Builder(ET.TreeBuilder):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._depth = path, 0

    def start(self, tag: Any, attrs: Any) -> ET.Element:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InputError(f"{self._path}: more than {DEEPEST} elements are nested; a file is one paper")
        return super().start(tag, attrs)

    def end(self, tag: Any) -> ET.Element:
        self._depth -= 1
        return super().end(tag)


def _full_text(root: ET.Element) -> FullText:
    paragraphs = []
    parts = root.findall(f"{_TEI}text/{_TEI}body")
    parts += root.findall(f"{_TEI}text/{_TEI}back/{_TEI}div[@type='annex']")
    divisions = [division for part in parts for division in part.iter(f"{_TEI}div")]
    for number, division in enumerate(divisions):
        section = f"{number} {_text(division.find(f'{_TEI}head'))}"
        paragraphs += [_paragraph(element, section) for element in division.findall(f"{_TEI}p")]
    entries = [entry for entry in root.iter(f"{_TEI}biblStruct") if entry.get(_ID)]
    return FullText(paragraphs, {entry.attrib[_ID]: _reference(entry) for entry in entries})


def _paragraph(element: ET.Element, section: str) -> Paragraph:
    """Its text with single spaces, and the citations in it; one that names two entries is two spans."""
    pieces: list[str] = []
    cites: list[Cite] = []
    length = 0

    def add(text: str | None) -> None:
        nonlocal length
        piece = _SPACE.sub(" ", text or "")
        pieces.append(piece.removeprefix(" ") if not pieces or pieces[-1].endswith(" ") else piece)
        length += len(pieces[-1])
        if not pieces[-1]:
            pieces.pop()

    def walk(node: ET.Element) -> None:
        start = length
        if node.tag not in _LEFT_OUT:
            add(node.text)
            for child in node:
                walk(child)
            if node.tag == f"{_TEI}ref" and node.get("type") == "bibr" and length > start:
                targets = [target.removeprefix("#") for target in node.get("target", "").split()]
                cites.extend(Cite(start, length, target or None) for target in targets or [""])
        if node is not element:
            add(node.tail)

    walk(element)
    return Paragraph("".join(pieces), cites, section)


def _reference(entry: ET.Element) -> Reference:
    """Of a biblStruct: the title of the article, or else of the book."""
    titles = [entry.find(f"{_TEI}{part}/{_TEI}title") for part in ("analytic", "monogr")]
    authors = entry.findall(f"{_TEI}analytic/{_TEI}author") or entry.findall(f"{_TEI}monogr/{_TEI}author")
    raw = entry.find(f"{_TEI}note[@type='raw_reference']")
    return Reference(
        title=next((text for title in titles if (text := _text(title))), ""),
        authors=tuple(name for author in authors if (name := _name(author))),
        year=next((year for date in entry.iter(f"{_TEI}date") if (year := _year(date))), 0),
        text=_text(raw),
    )


def _name(author: ET.Element) -> str:
    """ "Surname, Forename"."""
    last = _text(author.find(f"{_TEI}persName/{_TEI}surname"))
    first = " ".join(_text(name) for name in author.findall(f"{_TEI}persName/{_TEI}forename"))
    return f"{last}, {first}" if first else last


def _year(date: ET.Element) -> int:
    found = _YEAR.search(date.get("when", "") or _text(date))
    return int(found[0]) if found else 0


def _text(element: ET.Element | None) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())
