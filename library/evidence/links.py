"""Which papers of a library the entries of a list of references are.

The papers are known, so entries are not parsed: each is looked for by DOI or arXiv id, and by its title,
which must stand whole in the entry, as no part of a longer one; first author and year must agree. A wrong
link is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from citerec.formats.bibliography.paper import LibraryPaper, is_preprint
from citerec.formats.identifiers import clean_doi, find_arxiv_id
from citerec.formats.letters import normalise_title
from citerec.formats.names import surname

LEAST_LETTERS, UNSIGNED, LONG = 12, 20, 40
"""Letters of a title that is looked for, of one without an author, and of one that needs none."""
_WORD = re.compile(r"[^\W_]+")
_YEAR = re.compile(r"(?<!\d)(?:1[89]|20)\d\d(?!\d)")
_SPACE_IN_DOI = re.compile(r"(?<=[/._-])\s+(?=[\w(])|(?<=\w)\s+(?=[._/-]\w)")
_ABOUT = re.compile(
    r"(?:(?:comments?|commentary|repl(?:y|ies)|respon[sd]e?s?|re|errat(?:um|a)|corrections?|corrigend(?:um|a)|"
    r"review|retraction|rejoinder|discussion|addendum|supplement|update)\W+"
    r"(?:(?:on|to|of|for|from|the authors?)\W+)*|[^\W\d_]\s)$",
    re.IGNORECASE,
)
"""What stands before the title of another work, or within a title."""
_ENDS = re.compile(r"\s*(?:$|[.?!,;”\"'’)\]/*|]|\(?\d{4}|in\b|[A-Z])")
_GOES_ON = re.compile(
    r"\s*(?:[:—–-]|,\s*\d{4}\s*[.:]|[,.]?\s*(?:part\s+)?(?:[IVX]+|\d)\b(?!\d|\())", re.IGNORECASE
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
            author = normalise_title(surname(paper.authors[0])) if paper.authors else ""
            title = _Title(normalise_title(paper.title), author, paper)
            if len(title.letters) >= LEAST_LETTERS:
                self._by_start.setdefault(title.letters[:LEAST_LETTERS], []).append(title)
            for name in filter(None, (paper.doi.lower(), paper.arxiv.lower())):
                self._by_id.setdefault(name, title)

    def find(self, text: str) -> LibraryPaper | None:
        """Return the paper that an entry is; None if there is none, or none that is sure."""
        letters, years = normalise_title(text), {int(year) for year in _YEAR.findall(text)}
        for name in (clean_doi(text), clean_doi(_SPACE_IN_DOI.sub("", text)), find_arxiv_id(text)):
            title = self._by_id.get(name)
            if title and (title.letters in letters if title.letters else title.author in letters):
                return title.paper
        starts, ends, place = dict[int, int](), dict[int, int](), 0
        for word in _WORD.finditer(text):
            starts[place] = word.start()
            place += len(normalise_title(word[0]))
            ends[place] = word.end()
        fits = list[tuple[int, bool, _Title]]()
        for place, start in starts.items():
            for title in self._by_start.get(letters[place : place + LEAST_LETTERS], ()):
                end = ends.get(place + len(title.letters))
                if end is None or not letters.startswith(title.letters, place):
                    continue
                same_year = not title.paper.year or title.paper.year in years
                if _is_whole(text, start, end) and _agrees(title, letters, years, same_year):
                    fits.append((len(title.letters), same_year, title))
        return max(fits, key=lambda fit: fit[:2])[2].paper if fits else None


def _is_whole(text: str, start: int, end: int) -> bool:
    """True if a part of an entry is no part of a longer title."""
    return bool(_ENDS.match(text, end)) and not (_GOES_ON.match(text, end) or _ABOUT.search(text[:start]))


def _agrees(title: _Title, letters: str, years: set[int], same_year: bool) -> bool:
    """True if an entry that has a title has its author and year."""
    if not (title.author and title.author in letters):
        return same_year and len(title.letters) >= (LONG if title.author else UNSIGNED)
    near = not years or not years.isdisjoint((title.paper.year - 1, title.paper.year + 1))
    return same_year or ((near or is_preprint(title.paper)) and len(_WORD.findall(title.paper.title)) > 2)
