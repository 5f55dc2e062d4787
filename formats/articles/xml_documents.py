"""Parse the XML documents of a file, one tree at a time, and turn elements into text.

A file has one JATS article or TEI document, or many in a wrapper (`pmc-articleset`, OAI-PMH). Names lose
their namespaces. Nothing is fetched: document types are not read, and Expat limits their entities.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterator, Sequence
from html.entities import html5
from typing import IO

from citerec.base.errors import InputError
from citerec.formats.documents import CitationSpan, Paragraph

DOCUMENTS = ("article", "TEI")
"""Root elements of a document: JATS and TEI."""
MAX_BYTES = 1 << 25
"""Maximum size of a document."""
MAX_DEPTH = 200
"""Maximum nesting depth of elements."""
_CHUNK = 1 << 16
_SPACE = re.compile(r"\s+")
_BLOCKS = {"p", "s", "head", "title", "item", "list-item", "label", "lb", "break", "td", "sec", "div"}
"""Elements that are separated from the next by a space."""
_ENTITIES = {name.removesuffix(";"): letter for name, letter in html5.items()}
"""Entities of document types, which are not read."""


class _Trees:
    """A target of ET.XMLParser that builds the tree of each document and drops all other elements."""

    def __init__(self, where: str) -> None:
        self.done: list[ET.Element] = []
        self.root = ""
        self._where = where
        self._depth = self._outside = 0
        self._builder: ET.TreeBuilder | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InputError(f"{self._where}: elements are nested deeper than {MAX_DEPTH} levels")
        tag = tag.rpartition("}")[2]
        self.root = self.root or tag
        if self._builder is None and tag in DOCUMENTS:
            self._builder, self._outside = ET.TreeBuilder(), self._depth - 1
        if self._builder is not None:
            self._builder.start(tag, attributes)

    def data(self, text: str) -> None:
        if self._builder is not None:
            self._builder.data(text)

    def end(self, tag: str) -> None:
        self._depth -= 1
        if self._builder is not None:
            self._builder.end(tag.rpartition("}")[2])
            if self._depth == self._outside:
                self.done.append(self._builder.close())
                self._builder = None


def read_trees(file: IO[bytes], where: str) -> Iterator[ET.Element]:
    """Yield the documents of a file, in order.

    where: named in errors. Raises InputError for malformed XML, a document over MAX_BYTES or nested deeper
    than MAX_DEPTH, and a file without a document.
    """
    trees = _Trees(where)
    parser = ET.XMLParser(target=trees)
    parser.entity.update(_ENTITIES)
    pending = count = 0
    try:
        while chunk := file.read(_CHUNK):
            pending += len(chunk)
            if pending > MAX_BYTES:
                raise InputError(f"{where}: a document is larger than {MAX_BYTES >> 20} MB")
            parser.feed(chunk)
            if trees.done:
                yield from trees.done
                count += len(trees.done)
                trees.done.clear()
                pending = 0
        parser.close()
    except (ET.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{where}: malformed XML: {error}") from None
    if not count:
        raise InputError(f"{where}: must be a JATS or TEI document, not {trees.root!r}")


def parse_xml(content: str | bytes, where: str) -> ET.Element:
    """Parse a whole XML text. One with a document type is refused, so no entity is ever defined.

    Raises InputError for it, and for malformed XML. where: named in errors.
    """
    if (b"<!DOCTYPE" if isinstance(content, bytes) else "<!DOCTYPE") in content:  # type: ignore[operator]
        raise InputError(f"{where}: declares a document type (<!DOCTYPE), which is not read; remove it")
    try:
        return ET.fromstring(content)
    except (ET.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{where}: malformed XML: {error}") from None


def flat_text(element: ET.Element | None, skipped: Collection[str] = ()) -> str:
    """Return the text of an element with single spaces, without `skipped` elements; "" for None."""
    return "" if element is None else read_paragraph(element, "", skipped, lambda node: ()).text.strip()


def read_paragraph(
    element: ET.Element, section: str, skipped: Collection[str], refs: Callable[[ET.Element], Sequence[str]]
) -> Paragraph:
    """Convert a paragraph to text with single spaces and spans.

    refs: the bibliography entries that an element cites, "" if unknown; each becomes a span.
    """
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
        if node.tag not in skipped:
            add(node.text)
            for child in node:
                walk(child)
            if length > start and (cited := refs(node)):
                citations.extend(CitationSpan(start, length, ref or None) for ref in cited)
        if node is not element:
            if node.tag in _BLOCKS:
                add(" ")
            add(node.tail)

    walk(element)
    return Paragraph("".join(pieces), citations, section)
