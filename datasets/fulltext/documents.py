"""What is read of a paper, whatever the format of its file: metadata, running text and bibliography."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Metadata(NamedTuple):
    """What one record says of a paper; empty and 0 are unknown."""

    id: str
    title: str = ""
    abstract: str = ""
    year: int = 0
    authors: tuple[str, ...] = ()
    field: str | tuple[str, ...] = ()
    identifiers: frozenset[str] = frozenset()
    """Kinds of identifier that the paper has, in lower case, such as `arxiv`."""


class CitationSpan(NamedTuple):
    """A span of a paragraph's text that cites the entry `ref` of the bibliography, None where unknown."""

    start: int
    end: int
    ref: str | None


class Paragraph(NamedTuple):
    """Running text. Consecutive paragraphs of one section are read as one text."""

    text: str
    citations: list[CitationSpan]
    section: str = ""


class Reference(NamedTuple):
    """An entry of a bibliography; empty and 0 are unknown. `text` is the entry as printed."""

    paper: str = ""
    title: str = ""
    authors: tuple[str, ...] = ()
    year: int = 0
    text: str = ""
    abstract: str = ""
    arxiv: str = ""


class FullText(NamedTuple):
    """A paper's body and bibliography."""

    paragraphs: list[Paragraph]
    references: dict[str, Reference]


class Document(NamedTuple):
    """A record of a file.

    full_text: reads the full text, if the record has one. described: reads those entries of its bibliography
    that have a title and an abstract.
    """

    metadata: Metadata
    full_text: Callable[[], FullText] | None = None
    described: Callable[[], Sequence[Reference]] = tuple
