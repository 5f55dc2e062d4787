"""Masking: the citations of a full text, with the text around them in which all other markers are OTHERCIT.

The text is that of one section. Markers with nothing but separators between them form a group, in which those
that do not cite the target become one OTHERCIT: "[3, 4, 5, 6]" is "[OTHERCIT, TARGETCIT, OTHERCIT]" for the
second of the papers, and "[OTHERCIT]" near the mask of another citation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from datasets.fulltext.author_names import Bibliography
from datasets.fulltext.markers import Marker, find_markers, has_numbers
from datasets.fulltext.schema import Cite, FullText, Paragraph
from datasets.schema import MARKER_WORDS, OTHER_MARKER

# What may be between two markers of a group: separators, also a bracket closed and the next one opened.
_SEPARATORS = r"[\s,;&/–—−‐-]*"
_BETWEEN = re.compile(rf"{_SEPARATORS}|\]{_SEPARATORS}\[|\){_SEPARATORS}\(")
_MARKER_WORD = re.compile("(target|other)(cit)", re.IGNORECASE)
_SPACE = re.compile(r"\s\s+|[^\S ]")


class Citation(NamedTuple):
    """What is cited, and the text before and after the marker."""

    ref: str
    left: str
    right: str


def citations(full_text: FullText, reach: int, spans: Counter[str]) -> Iterator[Citation]:
    """The citations of entries of the bibliography, in the order of the text.

    reach: characters of text on each side at least, if the section has them; the outermost may be part of a
    marker. spans: counts the spans that are dropped, as they lie outside of their paragraph, or only masked.
    """
    bibliography = Bibliography(full_text.references)
    numbers = has_numbers(full_text.paragraphs)
    for _, paragraphs in groupby(full_text.paragraphs, key=lambda paragraph: paragraph.section):
        text, cites = _joined(paragraphs, full_text, spans)
        if cites:
            yield from _of_section(text, find_markers(text, cites, bibliography, numbers), reach)


def _joined(
    paragraphs: Iterator[Paragraph], full_text: FullText, spans: Counter[str]
) -> tuple[str, list[Cite]]:
    """The text of a section, and its spans. Offsets are those of the text."""
    texts: list[str] = []
    cites: list[Cite] = []
    length = 0
    for text, own, _ in paragraphs:
        for start, end, ref in own:
            if not 0 <= start < end <= len(text):
                spans["outside of the paragraph, dropped"] += 1
                continue
            if ref is None:
                spans["of no reference, masked"] += 1
            elif ref not in full_text.references:
                spans["of a reference that the bibliography lacks, masked"] += 1
                ref = None
            cites.append(Cite(length + start, length + end, ref))
        texts.append(text)
        length += len(text) + 1
    return "\n".join(texts), cites


def _of_section(text: str, markers: list[Marker], reach: int) -> Iterator[Citation]:
    # `masked` is the section with all groups as OTHERCIT; `places` are those of the groups in it.
    pieces: list[str] = []
    places: list[int] = []
    groups = _groups(text, markers)
    length = done = 0
    for group in groups:
        piece = _plain(text[done : group[0].start]) + group[0].opening
        places.append(length + len(piece))
        pieces += (piece, OTHER_MARKER)
        length = places[-1] + len(OTHER_MARKER)
        done = group[-1].end
    pieces.append(_plain(text[done:]))
    masked = "".join(pieces)
    for group, place in zip(groups, places, strict=True):
        end = place + len(OTHER_MARKER)
        for number, marker in enumerate(group):
            left, right = masked[max(0, place - reach) : place], masked[end : end + reach]
            if number > 0:
                left += OTHER_MARKER + _between(text, group[number - 1], marker)
            if number + 1 < len(group):
                right = _between(text, marker, group[number + 1]) + OTHER_MARKER + right
            for ref in marker.refs:
                yield Citation(ref, left, right)


def _between(text: str, marker: Marker, following: Marker) -> str:
    text = _plain(text[marker.end : following.start] + following.opening)
    return text if text and text[-1] not in ",;" else f"{text} "


def _groups(text: str, markers: list[Marker]) -> list[list[Marker]]:
    groups: list[list[Marker]] = []
    for marker in markers:
        if groups and _BETWEEN.fullmatch(text[groups[-1][-1].end : marker.start] + marker.opening):
            groups[-1].append(marker)
        else:
            groups.append([marker])
    return groups


def _plain(text: str) -> str:
    """Text between markers: single spaces, parted from the markers, no words that look like them."""
    if any(word in text.lower() for word in MARKER_WORDS):
        text = _MARKER_WORD.sub(r"\1 \2", text)
    text = _SPACE.sub(" ", text)
    # A letter or digit beside a marker ("word5") would be read as one word with it.
    return " " * text[:1].isalnum() + text + " " * text[-1:].isalnum()
