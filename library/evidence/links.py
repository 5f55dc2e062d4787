"""Which papers of a library the entries of a list of references are.

The papers are known, so entries are not parsed: each is looked for by DOI or arXiv id, and by the words of
its title. A title must stand whole in the entry, as no part of a longer one, or nearly so; first author and
year must agree. A wrong link is worse than none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from citerec.formats.articles.citing import Entry
from citerec.formats.bibliography.paper import LibraryPaper, is_preprint
from citerec.formats.identifiers import find_arxiv_id
from citerec.formats.letters import fold, normalise_title
from citerec.formats.names import surname

SIGNATURE, LEAST_SHARED = 4, 2
"""Rare words of a title by which it is looked for, and how many an entry must have."""
LEAST_LETTERS, LONG = 12, 40
"""Letters of a title that is looked for, and of one that needs no author."""
NEARLY, LEAST_WORDS = 0.9, 6
"""Share of the letters of a title, and its least words, if it is not there letter by letter."""
MOST_CANDIDATES = 50
_WORD = re.compile(r"[^\W_]+")
_YEAR = re.compile(r"(?<!\d)(?:1[89]|20)\d\d(?!\d)")
_DOI = re.compile(r"10\.\d{4,9}/[^\s\"<>,;\]]+")
_SPACE_IN_DOI = re.compile(r"(?<=[/._-])\s+(?=[\w(])|(?<=\w)\s+(?=[._/-]\w)")
_ABOUT = re.compile(
    r"(?:comments?|commentary|repl(?:y|ies)|respon[sd]e?s?|re|errat(?:um|a)|corrections?|corrigend(?:um|a)|"
    r"review|retraction|rejoinder|discussion|addendum|supplement|update)\W+"
    r"(?:(?:on|to|of|for|from|the authors?)\W+)*$",
    re.IGNORECASE,
)
_ENDS = re.compile(r"\s*(?:$|[.?!,;”\"'’)\]/*|]|\(?\d{4}|in\b|[A-Z])")
_GOES_ON = re.compile(r"\s*(?:[:—–-]|[,.]?\s*(?:part\s+)?(?:[IVX]+|\d)\b(?!\d|\())", re.IGNORECASE)
_DATED = re.compile(r"\s*,\s*\d{4}\s*[.:]")


class _Known(NamedTuple):
    paper: LibraryPaper
    letters: str
    words: tuple[str, ...]
    author: str


class Linker:
    """Looks for the papers of a library in lists of references."""

    def __init__(self, papers: Iterable[LibraryPaper]) -> None:
        self._papers = [_known(paper) for paper in papers]
        counts = Counter(word for known in self._papers for word in set(known.words))
        self._by_word: dict[str, list[int]] = {}
        self._by_id: dict[str, int] = {}
        for row, known in enumerate(self._papers):
            rare = sorted(set(known.words), key=lambda word: (counts[word], -len(word), word))[:SIGNATURE]
            for word in rare if len(known.letters) >= LEAST_LETTERS else ():
                self._by_word.setdefault(word, []).append(row)
            for name in (known.paper.doi.lower(), known.paper.arxiv.lower()):
                if name:
                    self._by_id.setdefault(name, row)
        self._needed = [min(LEAST_SHARED, len(set(known.words))) for known in self._papers]

    def link(self, entries: Sequence[Entry]) -> dict[int, LibraryPaper]:
        """Return the papers that entries are, by their index in the list."""
        linked = {}
        for index, entry in enumerate(entries):
            if (paper := self.find(entry.text)) is not None:
                linked[index] = paper
        return linked

    def find(self, text: str) -> LibraryPaper | None:
        """Return the paper that an entry is; None if there is none, or none that is sure."""
        entry = _Printed(text)
        shared = Counter(row for word in entry.words for row in self._by_word.get(word, ()))
        rows = [row for row, count in shared.most_common(MOST_CANDIDATES) if count >= self._needed[row]]
        named = {self._by_id[name] for name in entry.identifiers if name in self._by_id}
        best = max(
            ((entry.fits(self._papers[row], row in named), -row) for row in {*rows, *named}),
            default=((0, 0, 0), 0),
        )
        return self._papers[-best[1]].paper if best[0][0] else None


def _known(paper: LibraryPaper) -> _Known:
    words = tuple(fold(word).casefold() for word in _WORD.findall(paper.title) if len(word) > 2)
    author = normalise_title(surname(paper.authors[0])) if paper.authors else ""
    return _Known(paper, normalise_title(paper.title), words, author)


class _Printed:
    """An entry, to be compared with papers."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = {fold(word).casefold() for word in _WORD.findall(text)}
        self.years = {int(year) for year in _YEAR.findall(text)}
        joined = _SPACE_IN_DOI.sub("", text)
        self.identifiers = {
            doi.rstrip(".,;:)]}").lower() for found in (text, joined) for doi in _DOI.findall(found)
        }
        if "arxiv" in text.lower():
            self.identifiers.add(find_arxiv_id(text))
        self.letters = normalise_title(text)

    @cached_property
    def _places(self) -> list[int]:
        """Where each of `letters` stands in the text."""
        return [place for place, sign in enumerate(self.text) for _ in normalise_title(sign)]

    def fits(self, known: _Known, same_id: bool) -> tuple[int, int, int]:
        """Return how well the entry fits a paper: 0, or more for an identifier and a longer title; and its
        year."""
        whole = known.letters in self.letters and self._has_title(known.letters)
        share = 1.0 if whole else self._share(known)
        year = known.paper.year
        same_year = not year or year in self.years
        near_year = same_year or not self.years or bool({year - 1, year + 1} & self.years)
        has_author = bool(known.author) and known.author in self.letters
        quality = 0
        if same_id:
            quality = 3 if share >= 0.5 or (has_author and not known.letters) else 0
        elif whole:
            long = len(known.letters) >= LONG
            if has_author:
                near_year |= is_preprint(known.paper)
                quality = 2 if same_year or (near_year and len(known.words) > 2) else 0
            elif (not known.author or long) and same_year:
                quality = 2 if len(known.letters) >= 20 else 0
        elif share >= NEARLY and len(known.words) >= LEAST_WORDS and same_year and has_author:
            quality = 1
        return (quality, len(known.letters), int(same_year)) if quality else (0, 0, 0)

    def _has_title(self, title: str) -> bool:
        """True if the entry has a title, as no part of a longer one."""
        start = self.letters.find(title) if title else -1
        while start >= 0 and len(self._places) == len(self.letters):  # not so with letters that combine
            first, last = self._places[start], self._places[start + len(title) - 1]
            before, after = self.text[:first], self.text[last + 1 :]
            if not (before[-1:].isalnum() or after[:1].isalnum() or _ABOUT.search(before)):
                goes_on = _GOES_ON.match(after) or _DATED.match(after)
                if _ENDS.match(after) and not goes_on and not re.search(r"[^\W\d_]\s$", before):
                    return True
            start = self.letters.find(title, start + 1)
        return False

    def _share(self, known: _Known) -> float:
        total = sum(map(len, known.words))
        return sum(len(word) for word in known.words if word in self.words) / max(total, 1)
