"""A paper of a library, what tells papers apart, and how records of one paper become one."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from datasets.fulltext.catalogue import LONG_TITLE, YEARS_APART, letters_of, surname, title_key

_EVERYWHERE = ("doi:", "arxiv:", "openalex:", "s2:")
"""Ids that mean the same paper wherever they stand; another, or a key, means it together with the title."""


class LibraryPaper(NamedTuple):
    """A paper of a library; empty and 0 are unknown.

    id: unique, without white space. key: in the citing documents. bibtex: the source's entry. aliases: ids
    and keys of other records of the same paper. source: its place among the library's sources, -1: no file.
    """

    id: str
    key: str = ""
    title: str = ""
    abstract: str = ""
    authors: tuple[str, ...] = ()
    year: int = 0
    venue: str = ""
    doi: str = ""
    arxiv: str = ""
    url: str = ""
    collections: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    bibtex: str = ""
    aliases: tuple[str, ...] = ()
    source: int = -1
    """0: of a file; -1: came without one."""


class Identity(NamedTuple):
    """What tells papers apart, as numbers; 0 is unknown."""

    id: int
    doi: int
    arxiv: int
    title: int
    author: int
    """Of the first author's surname."""
    short: int
    """1: the title has too few letters to be enough."""
    year: int

    def agrees(self, other: Identity) -> bool:
        """Whether two papers of one title may be the same."""
        for one, two in zip(self[1:5], other[1:5], strict=True):
            if one and two and one != two:
                return False
        if self.year and other.year:
            return abs(self.year - other.year) <= YEARS_APART
        return bool(self.author and other.author) or not self.short


def identity(paper: LibraryPaper) -> Identity:
    letters = letters_of(paper.title)
    title = title_key(letters) if letters else 0
    return Identity(
        _number(paper.id if paper.id.startswith(_EVERYWHERE) else f"{title} {paper.key or paper.id}"),
        _number(paper.doi),
        _number(paper.arxiv),
        title,
        _number(surname(paper.authors[0]).casefold()) if paper.authors else 0,
        int(len(letters) < LONG_TITLE),
        paper.year,
    )


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") if text else 0


def merged(papers: list[LibraryPaper]) -> LibraryPaper:
    """Records of one paper, the leader first, as one."""
    lead = papers[0]
    if len(papers) == 1:
        return lead
    known = {
        name: next((value for paper in papers if (value := getattr(paper, name))), getattr(lead, name))
        for name in ("key", "title", "year", "venue", "doi", "arxiv", "url", "bibtex")
    }
    known |= {
        name: max((getattr(paper, name) for paper in papers), key=len) for name in ("abstract", "authors")
    }
    for name in ("collections", "tags"):
        known[name] = tuple(dict.fromkeys(value for paper in papers for value in getattr(paper, name)))
    names = [name for paper in papers for name in (paper.id, paper.key, *paper.aliases) if name]
    aliases = tuple(name for name in dict.fromkeys(names) if name not in (lead.id, known["key"]))
    return lead._replace(**known, aliases=aliases)
