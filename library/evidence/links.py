"""Which papers of a library the entries of a list of references are.

The papers are known, so entries are not parsed: each is looked for by DOI or arXiv id, and by its title,
which must stand whole in the entry, not as part of a longer one; first author and year must agree. A wrong
link is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from citerec.formats.articles.citing import TWO_WORKS
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.identifiers import clean_doi, find_arxiv_id
from citerec.formats.letters import normalise_title

LEAST_LETTERS, UNSIGNED = 12, 20
"""Least letters of a title that is looked for, and of one without an author."""
_WORD = re.compile(r"[^\W_]+")
_YEAR = re.compile(r"(?<!\d)(?:1[89]|20)\d\d(?!\d)")
_BEGINS = re.compile(
    r"(?:comment|repl|respon|errat|correct|corrigend|review|retract|discussion|update)\w*\W+"
    r"(?:(?:on|to|of|for|from)\W+)*$|\w\s$",
    re.IGNORECASE,
)
"""What stands before the title of another work, or within a longer title."""
_GOES_ON = re.compile(
    r"\s*(?:[:—–-]|,\s*\d{4}\s*[.:]|(?!in\b)[a-z]|[,.]?\s*(?:[Pp]art\s+)?(?:[IVX]+|\d)\b(?!\d|\())"
)


class _Title(NamedTuple):
    """The title and the first author of a paper, as they are looked for."""

    letters: str
    author: str
    paper: LibraryPaper


class Linker:
    """Looks for the papers of a library in lists of references."""

    def __init__(self, papers: Iterable[LibraryPaper]) -> None:
        self._by_start: dict[str, list[_Title]] = {}
        self._by_id: dict[str, _Title] = {}
        for paper in papers:
            author = normalise_title(paper.surname())
            title = _Title(normalise_title(paper.title), author, paper)
            if len(title.letters) >= (LEAST_LETTERS if author else UNSIGNED):
                self._by_start.setdefault(title.letters[:LEAST_LETTERS], []).append(title)
            for name in filter(None, (paper.doi.lower(), paper.arxiv.lower())):
                self._by_id.setdefault(name, title)

    def find(self, text: str) -> LibraryPaper | None:
        """Return the paper that an entry is; None if there is none, or none that is sure."""
        if TWO_WORKS.search(text):
            return None
        letters, years = normalise_title(text), {int(year) for year in _YEAR.findall(text)}
        for name in (clean_doi(text), find_arxiv_id(text)):
            title = self._by_id.get(name)
            if title and (title.letters in letters if title.letters else title.author in letters):
                return title.paper
        starts, ends, place = dict[int, int](), dict[int, int](), 0
        for word in _WORD.finditer(text):
            starts[place] = word.start()
            place += len(normalise_title(word[0]))
            ends[place] = word.end()
        fits = list[tuple[int, bool, LibraryPaper]]()
        for place, start in starts.items():
            for own, author, paper in self._by_start.get(letters[place : place + LEAST_LETTERS], ()):
                end = ends.get(place + len(own))
                is_whole = end and letters.startswith(own, place) and not _GOES_ON.match(text, end)
                near = not (years and paper.year) or any(abs(paper.year - year) < 2 for year in years)
                if is_whole and author in letters and near and not _BEGINS.search(text[:start]):
                    fits.append((len(own), paper.year in years, paper))
        return max(fits, key=lambda fit: fit[:2])[2] if fits else None
