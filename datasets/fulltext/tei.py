"""TEI XML as GROBID writes it, one paper a file.

Title, abstract, authors and date come from the header; running text from the paragraphs of body and annexes,
each `div` being a section, without figures, tables, displayed formulas and notes. A citation is a `ref` of
type bibr whose `target` names an entry (`biblStruct`) of the bibliography.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

from datasets.errors import InputError
from datasets.files import read_limited
from datasets.fulltext.catalogue import arxiv_year, year_in
from datasets.fulltext.documents import CitationSpan, Document, FullText, Metadata, Paragraph, Reference

_TEI = {"": "http://www.tei-c.org/ns/1.0"}
_PREFIX = f"{{{_TEI['']}}}"
_ID = "{http://www.w3.org/XML/1998/namespace}id"
_SPACE = re.compile(r"\s+")
_LEFT_OUT = frozenset(f"{_PREFIX}{tag}" for tag in ("note", "figure", "table"))
LARGEST = 1 << 25
"""Bytes of the largest document that is read."""
DEEPEST = 200
"""Levels of nested elements that are read."""


def read_tei(path: Path, paper: str) -> Document:
    """The paper of a file, plain or gzipped. Raises InputError for anything but a TEI document."""
    content = read_limited(path, LARGEST)
    try:
        root = ET.fromstring(content)
    except (ET.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{path}: malformed XML: {error}") from None
    level, depth = [root], 0
    while level:
        level, depth = [child for element in level for child in element], depth + 1
        if depth > DEEPEST:
            raise InputError(f"{path}: more than {DEEPEST} elements are nested; a file is one paper")
    if root.tag != f"{_PREFIX}TEI":
        raise InputError(f"{path}: must be a TEI document, not {root.tag.rpartition('}')[2]!r}")
    header = root.find("teiHeader", _TEI)
    if header is None:
        raise InputError(f"{path}: the TEI document has no teiHeader")
    source = header.find("fileDesc/sourceDesc/biblStruct", _TEI)
    described = Reference() if source is None else _reference(source)
    of_arxiv = arxiv_year(paper)
    metadata = Metadata(
        id=paper,
        title=_text(header.find("fileDesc/titleStmt/title", _TEI)) or described.title,
        abstract=_text(header.find("profileDesc/abstract", _TEI)),
        year=of_arxiv or described.year or _year(header),
        authors=described.authors,
        identifiers=frozenset(("arxiv",)) if of_arxiv else frozenset(),
    )
    return Document(metadata, partial(_full_text, root))


def _full_text(root: ET.Element) -> FullText:
    paragraphs = []
    parts = [*root.findall("text/body", _TEI), *root.findall("text/back/div[@type='annex']", _TEI)]
    divisions = [division for part in parts for division in part.iter(f"{_PREFIX}div")]
    for number, division in enumerate(divisions):
        section = f"{number} {_text(division.find('head', _TEI))}"
        paragraphs += [_paragraph(element, section) for element in division.findall("p", _TEI)]
    entries = [entry for entry in root.iter(f"{_PREFIX}biblStruct") if entry.get(_ID)]
    return FullText(paragraphs, {entry.attrib[_ID]: _reference(entry) for entry in entries})


def _paragraph(element: ET.Element, section: str) -> Paragraph:
    """Its text with single spaces, and its citations; a `ref` to two entries becomes two spans."""
    pieces: list[str] = []
    citations: list[CitationSpan] = []
    length = 0

    def add(text: str | None) -> None:
        nonlocal length
        piece = _SPACE.sub(" ", text or "")
        if not pieces or pieces[-1].endswith(" "):
            piece = piece.removeprefix(" ")
        if piece:
            pieces.append(piece)
            length += len(piece)

    def walk(node: ET.Element) -> None:
        start = length
        if node.tag not in _LEFT_OUT:
            add(node.text)
            for child in node:
                walk(child)
            if node.tag == f"{_PREFIX}ref" and node.get("type") == "bibr" and length > start:
                targets = [target.removeprefix("#") for target in node.get("target", "").split()]
                citations.extend(CitationSpan(start, length, target or None) for target in targets or [""])
        if node is not element:
            add(node.tail)

    walk(element)
    return Paragraph("".join(pieces), citations, section)


def _reference(entry: ET.Element) -> Reference:
    """From a biblStruct: the title of the article, or else of the book."""
    titles = [_text(entry.find(f"{part}/title", _TEI)) for part in ("analytic", "monogr")]
    authors = entry.findall("analytic/author/persName", _TEI) or entry.findall("monogr/author/persName", _TEI)
    names = []
    for author in authors:
        last = _text(author.find("surname", _TEI))
        first = " ".join(_text(name) for name in author.findall("forename", _TEI))
        names.append(f"{last}, {first}" if first else last)
    return Reference(
        title=titles[0] or titles[1],
        authors=tuple(name for name in names if name),
        year=_year(entry),
        text=_text(entry.find("note[@type='raw_reference']", _TEI)),
    )


def _year(element: ET.Element) -> int:
    """That of the first `date` in an element that has one; 0 without."""
    dates = (date.get("when", "") or _text(date) for date in element.iter(f"{_PREFIX}date"))
    return next(filter(None, map(year_in, dates)), 0)


def _text(element: ET.Element | None) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())
