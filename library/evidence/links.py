"""Which papers of a library the entries of a list of references are.

The papers are known, so entries are not parsed: each is looked for by DOI or arXiv id, and by the words of
its title. A title must stand whole in the entry, as no part of a longer one, or nearly so; first author and
year must agree. A wrong link is worse than none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from citerec.formats.bibliography.paper import LibraryPaper, is_preprint
from citerec.formats.identifiers import clean_doi, find_arxiv_id
from citerec.formats.letters import fold, normalise_title
from citerec.formats.names import surname

SIGNATURE, LEAST_SHARED = 4, 2
"""Rare words of a title by which it is looked for, and how many an entry must have."""
LEAST_LETTERS, UNSIGNED, LONG = 12, 20, 40
"""Letters of a title that is looked for, of one without an author, and of one that needs none."""
NEARLY, LEAST_WORDS = 0.9, 6
"""Share of the letters of a title, and its least words, if it is not there letter by letter."""
MOST_CANDIDATES = 50
_WORD = re.compile(r"[^\W_]+")
_YEAR = re.compile(r"(?<!\d)(?:1[89]|20)\d\d(?!\d)")
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


class _Title:
    """The title of a paper, as it is looked for."""

    def __init__(self, paper: LibraryPaper) -> None:
        self.paper, self.letters = paper, normalise_title(paper.title)
        self.words = [fold(word).casefold() for word in _WORD.findall(paper.title) if len(word) > 2]
        self.author = normalise_title(surname(paper.authors[0])) if paper.authors else ""


class Linker:
    """Looks for the papers of a library in lists of references."""

    def __init__(self, papers: Iterable[LibraryPaper]) -> None:
        self._titles = [_Title(paper) for paper in papers]
        counts = Counter(word for title in self._titles for word in {*title.words})
        self._by_word: dict[str, list[int]] = {}
        self._by_id: dict[str, int] = {}
        for row, title in enumerate(self._titles):
            rare = sorted({*title.words}, key=lambda word: (counts[word], -len(word), word))[:SIGNATURE]
            for word in rare if len(title.letters) >= LEAST_LETTERS else ():
                self._by_word.setdefault(word, []).append(row)
            for name in filter(None, (title.paper.doi.lower(), title.paper.arxiv.lower())):
                self._by_id.setdefault(name, row)

    def find(self, text: str) -> LibraryPaper | None:
        """Return the paper that an entry is; None if there is none, or none that is sure."""
        entry = _Printed(text)
        shared = Counter(row for word in entry.words for row in self._by_word.get(word, ()))
        rows = {
            row
            for row, count in shared.most_common(MOST_CANDIDATES)
            if count >= min(LEAST_SHARED, len({*self._titles[row].words}))
        }
        named = {self._by_id[name] for name in entry.identifiers if name in self._by_id}
        fits = ((*entry.fits(self._titles[row], row in named), -row) for row in rows | named)
        quality, *_, row = max(fits, default=(0, 0, 0, 0))
        return self._titles[-row].paper if quality else None


class _Printed:
    """An entry, to be compared with papers."""

    def __init__(self, text: str) -> None:
        self.text, self.letters = text, normalise_title(text)
        self.words = {fold(word).casefold() for word in _WORD.findall(text)}
        self.years = {int(year) for year in _YEAR.findall(text)}
        self.identifiers = {clean_doi(text), clean_doi(_SPACE_IN_DOI.sub("", text)), find_arxiv_id(text)}

    @cached_property
    def _places(self) -> list[int]:
        """Where each of `letters` stands in the text."""
        return [place for place, sign in enumerate(self.text) for _ in normalise_title(sign)]

    def fits(self, title: _Title, same_id: bool) -> tuple[int, int, bool]:
        """Return how well the entry fits a paper: 0, or more for an identifier and a title as printed; the
        length of its title; and whether it has its year."""
        whole = title.letters in self.letters and self._has_title(title.letters)
        share = 1.0 if whole else self._share(title)
        year = title.paper.year
        same_year = not year or year in self.years
        near_year = same_year or not self.years or not self.years.isdisjoint((year - 1, year + 1))
        has_author = bool(title.author) and title.author in self.letters
        quality = 0
        if same_id:
            quality = 3 if share >= 0.5 or (has_author and not title.letters) else 0
        elif whole and has_author:
            near_year = (near_year or is_preprint(title.paper)) and len(title.words) > 2
            quality = 2 if same_year or near_year else 0
        elif whole:
            length = len(title.letters)
            quality = 2 if same_year and length >= (LONG if title.author else UNSIGNED) else 0
        elif share >= NEARLY and len(title.words) >= LEAST_WORDS and same_year and has_author:
            quality = 1
        return quality, len(title.letters), same_year

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

    def _share(self, title: _Title) -> float:
        shared = sum(len(word) for word in title.words if word in self.words)
        return shared / max(sum(map(len, title.words)), 1)
