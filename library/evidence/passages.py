"""Passages: the parts of a text that are searched and shown, LEAST to MOST words, cut between sentences."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from citerec.datasets.tokenize import sentence_starts

if TYPE_CHECKING:
    from citerec.formats.articles.pdf_layout import PdfParagraph

LEAST, MOST = 100, 200
"""Words of a passage. One before a heading, or the last of a text, may be shorter."""

Starts = list[tuple[int, int]]
"""Offsets in a text at which a page begins, and its number from 1; 0 if unknown."""


class Passage(msgspec.Struct, frozen=True, array_like=True):
    """A passage; its lines are paragraphs. kind: empty, or what the user made: `highlight` or `note`."""

    text: str
    starts: Starts
    section: str = ""
    kind: str = ""

    def page(self, offset: int = 0) -> int:
        """Return the page of the character at an offset; 0 if unknown."""
        place = bisect_right(self.starts, offset, key=lambda start: start[0]) - 1
        return self.starts[place][1] if place >= 0 else 0


class _Sentence(msgspec.Struct, frozen=True):
    text: str
    words: int
    starts: Starts
    section: str
    is_last: bool
    """whether its paragraph ends with it"""


def cut(parts: Sequence[PdfParagraph]) -> list[Passage]:
    """Cut the paragraphs of a text into passages. A longer sentence is cut between words."""
    groups: list[list[_Sentence]] = []
    words = 0
    for sentence in _sentences(parts):
        group = groups[-1] if groups else None
        is_new = group is None or words + sentence.words > MOST
        if group is not None and not is_new:
            is_new = words >= LEAST and group[-1].is_last
            is_new |= words >= LEAST // 2 and group[-1].section != sentence.section
        if is_new:
            groups.append([])
            words = 0
        groups[-1].append(sentence)
        words += sentence.words
    is_short = len(groups) > 1 and words < LEAST // 2
    if is_short and sum(sentence.words for sentence in groups[-2]) + words <= MOST:
        last = groups.pop()
        groups[-1] += last
    return [_join(group) for group in groups]


def _sentences(parts: Sequence[PdfParagraph]) -> Iterator[_Sentence]:
    for part in parts:
        text = part.text
        bounds = [0, *sentence_starts(text), len(text)]
        pieces = [piece for start, end in pairwise(bounds) for piece in _pieces(text, start, end)]
        for number, (start, end) in enumerate(pieces):
            words = len(text[start:end].split())
            starts = _starts_between(part.starts, start, end)
            is_last = number == len(pieces) - 1
            yield _Sentence(text[start:end].rstrip(), words, starts, part.section, is_last)


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a sentence, or its parts of MOST words."""
    words = [start + word.start() for word in re.finditer(r"\S+", text[start:end])]
    yield from pairwise([*words[::MOST], end])


def _starts_between(starts: Sequence[tuple[int, int]], start: int, end: int) -> Starts:
    """Return the pages of a part of a text, by offsets in this part."""
    first = max(bisect_right(starts, start, key=lambda start_and_page: start_and_page[0]) - 1, 0)
    inside = [(max(offset - start, 0), page) for offset, page in starts[first:] if offset < end]
    return inside or [(0, 0)]


def _join(group: Sequence[_Sentence]) -> Passage:
    text = between = ""
    starts: Starts = []
    for sentence in group:
        offset = len(text) + bool(text)
        text = f"{text}{between}{sentence.text}" if text else sentence.text
        between = "\n" if sentence.is_last else " "
        for place, page in sentence.starts:
            if not starts or starts[-1][1] != page:
                starts.append((offset + place, page))
    return Passage(text, starts, group[0].section)


_OWN = {"highlight": "your highlight", "note": "your note"}


@dataclass(frozen=True)
class TextPlace:
    """Where a sentence stands in a full text. page: from 1, 0 if unknown. passage: the text around it. kind:
    empty, or `highlight` or `note`, which the user made."""

    file: str
    page: int
    section: str = ""
    passage: str = ""
    kind: str = ""

    @property
    def label(self) -> str:
        """The place for people, as in `p. 7`."""
        parts = [_OWN.get(self.kind, ""), f"p. {self.page}" if self.page else ""]
        return ", ".join(filter(None, parts)) or "full text"

    @property
    def link(self) -> str:
        """An address that opens the PDF at the page: in Zotero if it is there, else in a browser."""
        from citerec.library.sources.zotero_database import attachment_link

        if link := attachment_link(self.file):
            return link + (f"?page={self.page}" if self.page else "")
        return Path(self.file).as_uri() + (f"#page={self.page}" if self.page else "")
