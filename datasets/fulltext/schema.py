"""What is read from a full text, whatever its format.

JSON lines of our own layout hold one paper a line:

    {"id": "p1", "title": "...", "abstract": "...", "year": 2021, "authors": ["Ann Lee", "Diaz, Bo"],
     "field": "cs.CL", "identifiers": {"arxiv": "2101.00001"},
     "body": [{"section": "Introduction", "text": "As Lee (2019) shows ...",
               "cites": [{"start": 7, "end": 11, "ref": "b1"}]}],
     "bibliography": {"b1": {"paper": "p2", "title": "...", "authors": ["Ann Lee"], "year": 2019}}}

Only `id` must be there. A record without `body` is a paper that may be cited. Records of one id, in whatever
files, are one paper: the first title, abstract, year, authors and field that are not empty count. `start`
and `end` count characters (Unicode code points) of `text`, the end not included. `ref` is a key of
`bibliography`, or null where it is not known what is cited. `paper` is the id of the cited paper; where it is
missing, the paper is looked for by title, authors and year, or in `text`, the entry as it is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Paper(NamedTuple):
    """What one record tells of a paper; empty and 0 are unknown."""

    id: str
    title: str = ""
    abstract: str = ""
    year: int = 0
    authors: tuple[str, ...] = ()
    field: str | tuple[str, ...] = ()
    identifiers: frozenset[str] = frozenset()
    """Kinds of identifier that it has, in lower case, as `arxiv`."""


class Cite(NamedTuple):
    """A span of a paragraph's text that cites; `ref` is None where it is not known what."""

    start: int
    end: int
    ref: str | None


class Paragraph(NamedTuple):
    """Running text. Neighbouring paragraphs of one section are read as one text."""

    text: str
    cites: list[Cite]
    section: str = ""


class Reference(NamedTuple):
    """An entry of a bibliography; empty and 0 are unknown."""

    paper: str = ""
    title: str = ""
    authors: tuple[str, ...] = ()
    year: int = 0
    text: str = ""


class FullText(NamedTuple):
    """A paper's body and bibliography."""

    paragraphs: list[Paragraph]
    references: dict[str, Reference]


class Record(NamedTuple):
    """A record of a file: a paper, and how to read its full text if it has one."""

    where: str
    """The file and the place in it, for messages."""
    paper: Paper
    full_text: Callable[[], FullText] | None = None
