"""Pages and quoted words of a citation, compared with the PDF of the paper; never what a sentence claims."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Self

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.letters import normalise_title
from citerec.library.evidence.passages import Passage, TextPlace

if TYPE_CHECKING:
    from citerec.library.evidence.reading import ReadText
    from citerec.library.evidence.store import TextStore

NEAR = 0.6
"""Least share of the words of a quotation in the text that it may mean."""
LEAST_WORDS = 4
"""Least words of what is taken for a quotation."""
_MARKS = re.compile(r"\[\d[\d,;\s–-]*\]|[⁰¹²³⁴⁵⁶⁷⁸⁹]+(?:[,–-][⁰¹²³⁴⁵⁶⁷⁸⁹]+)*")
_WORD = re.compile(r"\S+")
_LEFT_OUT = re.compile(r"\[?(?:\.\s?\.\s?\.|…|\\l?dots\b(?:\{\})?)\]?")
_PRINTED = re.compile(r"\bpages\s*=\s*[{\"]*(\d+)\s*[-–]+\s*(\d+)", re.IGNORECASE)
_NUMBERS = r"(?:pp?\.?|pages?|S\.)?[~\s]*(\d{1,5})(?:\s*[-–]+\s*(\d{1,5}))?"
_LOCATORS = (
    re.compile(rf"\[\s*{_NUMBERS}\s*\]\s*\{{"),  # \cite[7]{key}
    re.compile(rf"[\[,\s~](?=pp?\.|pages?\b|S\.){_NUMBERS}", re.IGNORECASE),  # [@key, p. 7]
)
_QUOTATIONS = re.compile(
    r"“([^“”]+)”|\"([^\"]+)\"|``(.+?)''|\\enquote\*?\{([^{}]+)\}|„([^„“]+)“|«([^«»]+)»|»([^«»]+)«", re.DOTALL
)
_COMMAND = re.compile(r"\\[a-zA-Z]+\*?\s*|[{}~*_]")
_ENDS = re.compile(r"[.!?]\s+\w|\n\n")
"""The end of a sentence before another one, or of a paragraph."""
FAR = 200
"""Most characters between a quotation and its citation."""


def locator(command: str) -> tuple[int, int] | None:
    r"""Return the first and last page that a citation names; None if it names none.

    >>> locator(r"\cite[pp.~7--9]{lee}"), locator("[@lee, p. 7]"), locator("[@lee]")
    ((7, 9), (7, 7), None)
    """
    for pattern in _LOCATORS:
        if pages := pattern.search(command):
            first, last = pages[1], pages[2] or pages[1]
            last = first[: max(len(first) - len(last), 0)] + last  # 127-9
            return int(first), max(int(first), int(last))
    return None


def quotation(before: str, after: str, cites: re.Pattern[str]) -> str:
    """Return what is quoted beside a citation, from the texts on both sides; "" if nothing is.

    cites: matches citations. None may stand between, nor after a quotation that follows, which it would own.
    """
    sides = [(match, before[match.end() :], FAR) for match in _QUOTATIONS.finditer(before)][::-1]
    if (following := _QUOTATIONS.search(after)) and not cites.search(
        _ENDS.split(after[following.end() :])[0]
    ):
        sides.append((following, after[: following.start()], FAR // 2))
    for match, between, far in sides:
        if len(between) <= far and not _ENDS.search(between) and not cites.search(between):
            words = _COMMAND.sub(" ", next(filter(None, match.groups()))).split()
            return " ".join(words) if len(words) >= LEAST_WORDS else ""
    return ""


_PINPOINTS = (
    (re.compile(r"(\\[a-zA-Z]*cite[a-zA-Z]*\*?)(\{[^{},]+\})", re.IGNORECASE), "{0}[p.~{page}]{1}"),
    (re.compile(r"(\[cite(?:/\w+)*:@[^\s\];,]+)\]"), "{0} p. {page}]"),
    (re.compile(r"(\[@[^\s\];,]+)\]"), "{0}, p. {page}]"),
    (re.compile(r"(@[^\s\];,.]+)"), "{0}[p. {page}]"),
    (re.compile(r"(#cite\(.+)\)"), "{0}, supplement: [p. {page}])"),
)


def pinpointed(command: str, place: TextPlace | None, store: TextStore | None) -> str:
    """Return a citation of one key with the page of a passage, as its PDF prints it; unchanged if it cites
    several, or names something else, or the page is not known."""
    if place is None or store is None or not place.page or place.kind:
        return command
    read = store.about(place.file)
    page = printed(read, place.page) if read else str(place.page)
    for form, filled in _PINPOINTS:
        if match := form.fullmatch(command):
            return filled.format(*match.groups(), page=page)
    return command


def printed(read: ReadText, page: int) -> str:
    """Return the number that is printed on a page, if the PDF tells, else its place in the PDF."""
    return (read.labels[page - 1] if page <= len(read.labels) else "") or str(page)


@dataclass(frozen=True)
class PaperText:
    """The text of a PDF, to look for quotations and pages."""

    paper: LibraryPaper
    read: ReadText
    passages: Sequence[Passage]

    @classmethod
    def open(cls, store: TextStore, paper: LibraryPaper) -> Self | None:
        """Read the text of a paper; None if it has none."""
        stored, passages = store.text(paper.id)
        read = store.about(stored.file) if passages else None
        return None if read is None else cls(paper, read, passages)

    @cached_property
    def _words(self) -> list[tuple[str, str, int]]:
        """Words as printed, their letters, and their pages."""
        return [
            (match[0], letters, passage.page(match.start()))
            for passage in (self.passages if self.read.pages else ())
            for match in _WORD.finditer(_MARKS.sub(lambda mark: " " * len(mark[0]), passage.text))
            if not passage.kind and (letters := normalise_title(match[0]))
        ]

    @cached_property
    def _letters(self) -> tuple[str, list[int]]:
        letters = [word[1] for word in self._words]
        return "".join(letters), [0, *accumulate(map(len, letters))]

    def find(self, quoted: str) -> tuple[list[int], str]:
        """Return the pages on which quoted words stand, and ""; or else the page of the most similar words,
        and these; no page if there are none. Words that are left out ("...") may be any."""
        pages = list[int]()
        for part in _LEFT_OUT.split(_MARKS.sub(" ", quoted)):
            words = [letters for word in part.split() if (letters := normalise_title(word))]
            if words and not (there := self._pages("".join(words))):
                return self._nearest(words)
            pages += there if words else ()
        return pages, ""

    def _pages(self, letters: str) -> list[int]:
        """Return the pages on which letters stand, from the first to the last of each place."""
        text, offsets = self._letters
        pages, start = list[int](), text.find(letters)
        while start >= 0 and len(pages) < 100:
            first, last = (bisect_right(offsets, place) - 1 for place in (start, start + len(letters) - 1))
            pages += range(self._words[first][2], self._words[last][2] + 1)
            start = text.find(letters, start + 1)
        return pages

    def _nearest(self, words: Sequence[str]) -> tuple[list[int], str]:
        """Return what stands around the longest part of the words that is there."""
        there = [letters for _, letters, _ in self._words]
        longest = SequenceMatcher(None, words, there, False).find_longest_match()
        part = slice(max(longest.b - longest.a, 0), max(longest.b - longest.a, 0) + len(words))
        if (Counter(words) & Counter(there[part])).total() < NEAR * len(words):
            return [], ""
        window = self._words[part]
        return [window[0][2]], " ".join(word for word, _, _ in window)

    def meant(self, number: int) -> set[int]:
        """Return the pages of the PDF that a number may mean: by their place, their label, or their number in
        the journal."""
        pages = {place for place, label in enumerate(self.read.labels, 1) if label == str(number)}
        if number <= self.read.pages:
            pages.add(number)
        if printed := _PRINTED.search(self.paper.bibtex):
            first, last = int(printed[1]), int(printed[2])
            if first <= number <= max(last, first + self.read.pages - 1):
                pages.add(number - first + 1)
        return pages

    def problems(self, pages: tuple[int, int] | None, quoted: str) -> Iterator[str]:
        """Yield what does not agree with the PDF: pages that it lacks, words that are not there, or not on
        these pages."""
        ends = pages if pages and self.read.pages else ()
        for number in [number for number in ends if not self.meant(number)][:1]:
            yield f"page {number} is cited, but its PDF has {self.read.pages} pages"
        if not quoted or not self._words:
            return
        there, text = self.find(quoted)
        numbers = range(ends[0], min(ends[1], ends[0] + 1000) + 1) if ends else range(0)
        wanted = {page for number in numbers for page in self.meant(number)}
        page = printed(self.read, there[0]) if there else ""
        if text or not there:
            near = f"; on p. {page} is “{text}”" if text else ""
            yield f"its PDF has not the words “{quoted}”{near}"
        elif wanted and wanted.isdisjoint(there):
            yield f"“{quoted}” is on p. {page} of its PDF, not on p. {numbers[0]}"
