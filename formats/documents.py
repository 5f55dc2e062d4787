"""Format-independent records of a paper: metadata, running text and bibliography."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Metadata(NamedTuple):
    """Metadata of a paper in one record; fields are empty or 0 if unknown."""

    id: str
    title: str = ""
    abstract: str = ""
    year: int = 0
    authors: tuple[str, ...] = ()
    field: str | tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    """Identifiers of the paper as "kind:value" (formats.identifiers.identifier)."""


class CitationSpan(NamedTuple):
    """A span of a paragraph that cites the bibliography entry `ref`, None if unknown."""

    start: int
    end: int
    ref: str | None


class Paragraph(NamedTuple):
    """Running text; consecutive paragraphs of one section are joined.

    reread: an earlier paragraph has this text without its notes, so only citations that it lacked are new.
    """

    text: str
    citations: list[CitationSpan]
    section: str = ""
    reread: bool = False


class Reference(NamedTuple):
    """A bibliography entry; fields are empty or 0 if unknown. `text` is the entry as printed."""

    paper: str = ""
    title: str = ""
    authors: tuple[str, ...] = ()
    year: int = 0
    text: str = ""
    abstract: str = ""
    arxiv: str = ""
    identifiers: tuple[str, ...] = ()
    """As in Metadata."""


class FullText(NamedTuple):
    """A paper's body and bibliography."""

    paragraphs: list[Paragraph]
    references: dict[str, Reference]


class Document(NamedTuple):
    """A record of a file.

    full_text: reads the full text, if any. entries: reads the bibliography entries that may become papers.
    """

    metadata: Metadata
    full_text: Callable[[], FullText] | None = None
    entries: Callable[[], Sequence[Reference]] = tuple
