"""Which papers of a library a paper's PDF cites, and whose PDFs cite it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.display import short_authors
from citerec.library.evidence.citations import Citations, CitingSentence
from citerec.library.evidence.passages import TextPlace
from citerec.library.papers.library import Library

Link = Callable[[str, TextPlace], str]
"""Maps the id of a paper and a place in its full text to an address that opens its PDF there."""
SENTENCES = 3
"""Number of sentences shown for each work."""
NO_LIST = "its PDF has no list of references that can be read"
NO_PDF = "no PDF of it was read, so what it cites is not known"


def name_of(paper: LibraryPaper) -> str:
    """Return authors and year of a paper, or else its key."""
    authors = short_authors(paper.names or paper.authors)
    return f"{authors} {paper.year or ''}".strip() if authors else paper.key or paper.id


@dataclass(frozen=True)
class Relations:
    """What a paper's PDF cites of the library, and how many others; and which papers cite it. note: why it
    is not known what it cites."""

    id: str
    cites: list[dict[str, Any]] = field(default_factory=list)
    others: int = 0
    cited_by: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""

    @classmethod
    def read(cls, library: Library, key: str, link: Link = lambda id, place: place.link) -> Relations:
        """link: maps the id of a paper and a place in its PDF to an address that opens it there. Raises
        InputError for an unknown paper, and for a library without full texts."""
        paper = library.paper(int(library.rows([key], "key")[0]))
        with closing(Citations(library.path)) as citations:
            (cites, others), cited_by = citations.cites(paper.id), citations.cited_by(paper.id)
            note = "" if cites or others else NO_LIST if paper.id in citations.files else NO_PDF
        return cls(paper.id, _related(library, cites, link), others, _related(library, cited_by, link), note)


def _related(
    library: Library, works: Mapping[str, Sequence[CitingSentence]], link: Link
) -> list[dict[str, Any]]:
    """Return papers with the sentences, as all interfaces show them."""
    related = []
    for id, cited in works.items():
        if (row := library.row(id)) is None:  # it was removed since
            continue
        paper = library.paper(row)
        sentences = [
            {"text": text, "page": place.page, "link": link(citing, place)}
            for citing, text, place in cited[:SENTENCES]
        ]
        about = {"id": id, "key": paper.key, "title": paper.title, "year": paper.year or None}
        related.append({**about, "name": name_of(paper), "sentences": sentences})
    return related
