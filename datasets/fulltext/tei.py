"""Read TEI XML as written by GROBID, one paper per file.

Title, abstract, authors and date come from the header; running text from the paragraphs of body and annexes
without figures, tables, displayed formulas and notes; each `div` is a section. A citation is a `ref` of type
bibr whose `target` names a bibliography entry (`biblStruct`).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

from citerec.datasets.errors import InputError
from citerec.datasets.files import read_limited
from citerec.datasets.fulltext.catalogue import arxiv_year, find_year
from citerec.datasets.fulltext.documents import (
    CitationSpan,
    Document,
    FullText,
    Metadata,
    Paragraph,
    Reference,
)

_TEI = {"": "http://www.tei-c.org/ns/1.0"}
_PREFIX = f"{{{_TEI['']}}}"
_ID = "{http://www.w3.org/XML/1998/namespace}id"
_SPACE = re.compile(r"\s+")
_SKIPPED = frozenset(f"{_PREFIX}{tag}" for tag in ("note", "figure", "table"))
MAX_BYTES = 1 << 25
"""Maximum size of a document."""
MAX_DEPTH = 200
"""Maximum nesting depth of elements."""


def read_tei(path: Path, paper: str) -> Document:
    """Read the paper of a plain or gzipped file. Raises InputError if it is not a TEI document."""
    content = read_limited(path, MAX_BYTES)
    try:
        root = ET.fromstring(content)
    except (ET.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{path}: malformed XML: {error}") from None
    level, depth = [root], 0
    while level:
        level, depth = [child for element in level for child in element], depth + 1
        if depth > MAX_DEPTH:
            raise InputError(f"{path}: elements are nested deeper than {MAX_DEPTH} levels")
    if root.tag != f"{_PREFIX}TEI":
        raise InputError(f"{path}: must be a TEI document, not {root.tag.rpartition('}')[2]!r}")
    header = root.find("teiHeader", _TEI)
    if header is None:
        raise InputError(f"{path}: the TEI document has no teiHeader")
    source = header.find("fileDesc/sourceDesc/biblStruct", _TEI)
    paper_reference = Reference() if source is None else _reference(source)
    id_year = arxiv_year(paper)
    metadata = Metadata(
        id=paper,
        title=_text(header.find("fileDesc/titleStmt/title", _TEI)) or paper_reference.title,
        abstract=_text(header.find("profileDesc/abstract", _TEI)),
        year=id_year or paper_reference.year or _year(header),
        authors=paper_reference.authors,
        identifiers=frozenset(("arxiv",)) if id_year else frozenset(),
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
    """Convert a paragraph to text with single spaces and spans; a `ref` to two entries becomes two spans."""
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
        if node.tag not in _SKIPPED:
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
    """Parse a biblStruct; the title is that of the article, or else of the book."""
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
    """The year of the first `date` with a year in an element; 0 if none."""
    dates = (date.get("when", "") or _text(date) for date in element.iter(f"{_PREFIX}date"))
    return next(filter(None, map(find_year, dates)), 0)


def _text(element: ET.Element | None) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())
