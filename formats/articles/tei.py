"""Read TEI XML as written by GROBID.

Title, abstract, authors and date come from the header; running text from the paragraphs of body and annexes
without figures, tables, displayed formulas and notes; each `div` is a section. A citation is a `ref` of type
bibr whose `target` names a bibliography entry (`biblStruct`).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import partial

from citerec.base.errors import InputError
from citerec.formats.articles.xml_documents import flat_text, read_paragraph
from citerec.formats.documents import Document, FullText, Metadata, Reference
from citerec.formats.identifiers import arxiv_year, find_year, identifier

_ID = "{http://www.w3.org/XML/1998/namespace}id"
_SKIPPED = frozenset(("note", "figure", "table"))


def read_tei(root: ET.Element, paper: str, where: str) -> Document:
    """Read a document. paper: its id. Raises InputError if it has no header."""
    header = root.find("teiHeader")
    if header is None:
        raise InputError(f"{where}: the TEI document has no teiHeader")
    source = header.find("fileDesc/sourceDesc/biblStruct")
    printed = Reference() if source is None else _reference(source)
    id_year = arxiv_year(paper)
    metadata = Metadata(
        id=paper,
        title=flat_text(header.find("fileDesc/titleStmt/title")) or printed.title,
        abstract=flat_text(header.find("profileDesc/abstract")),
        year=id_year or printed.year or _year(header),
        authors=printed.authors,
        identifiers=(identifier("arxiv", paper),) if id_year else printed.identifiers,
    )
    return Document(metadata, partial(_full_text, root), lambda: tuple(_references(root).values()))


def _full_text(root: ET.Element) -> FullText:
    paragraphs = []
    parts = [*root.findall("text/body"), *root.findall("text/back/div[@type='annex']")]
    divisions = [division for part in parts for division in part.iter("div")]
    for number, division in enumerate(divisions):
        section = f"{number} {flat_text(division.find('head'))}"
        inside = division.findall("p")
        paragraphs += [read_paragraph(element, section, _SKIPPED, _cited) for element in inside]
    return FullText(paragraphs, _references(root))


def _cited(node: ET.Element) -> list[str]:
    """Return the entries that a `ref` cites; a `ref` to two entries becomes two spans."""
    if node.tag != "ref" or node.get("type") != "bibr":
        return []
    return [target.removeprefix("#") for target in node.get("target", "").split()] or [""]


def _references(root: ET.Element) -> dict[str, Reference]:
    entries = [entry for entry in root.iter("biblStruct") if entry.get(_ID)]
    return {entry.attrib[_ID]: _reference(entry) for entry in entries}


def _reference(entry: ET.Element) -> Reference:
    """Parse a biblStruct; its title is that of the article, else of the book, not of a journal or series."""
    books = [title for title in entry.findall("monogr/title") if title.get("level") not in ("j", "s")]
    titles = [flat_text(title) for title in (*entry.findall("analytic/title"), *books)]
    authors = entry.findall("analytic/author/persName") or entry.findall("monogr/author/persName")
    names = []
    for author in authors:
        last = flat_text(author.find("surname"))
        first = " ".join(flat_text(name) for name in author.findall("forename"))
        names.append(f"{last}, {first}" if first else last)
    identifiers = (identifier(number.get("type", ""), flat_text(number)) for number in entry.iter("idno"))
    return Reference(
        title=next(filter(None, titles), ""),
        authors=tuple(name for name in names if name),
        year=_year(entry),
        text=flat_text(entry.find("note[@type='raw_reference']")),
        identifiers=tuple(filter(None, identifiers)),
    )


def _year(element: ET.Element) -> int:
    """Return the year of the first `date` with a year in an element; 0 if none."""
    dates = (date.get("when", "") or flat_text(date) for date in element.iter("date"))
    return next(filter(None, map(find_year, dates)), 0)
