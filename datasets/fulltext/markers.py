"""Which parts of a text are citation markers: the spans that a reader gave, and what it overlooked.

A marker includes the names before it ("Lee et al. [5]", "Lee and Diaz (2010)"), but no brackets around it.
Names belong to it when "et al." follows them, when one of them is an author of the cited paper, or when a
year follows and the authors are not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from datasets.fulltext.author_names import YEAR, Bibliography, names_before
from datasets.fulltext.overlooked import overlooked
from datasets.fulltext.schema import Cite, Paragraph

_DIGIT = re.compile(r"\d")
_YEAR_ALONE = re.compile(YEAR)
_YEAR_AFTER = re.compile(rf"\s*+,?\s*+(?:\({YEAR}\)|\[{YEAR}\]|{YEAR})")
_MORE_YEARS = re.compile(rf"(?:\s*,\s*{YEAR})+")
_SAME_CITATION = re.compile(r"[)\]]?\s*+,?\s*+([(\[]?)\s*+")
_SEPARATORS = " \t\r\n\xa0,;:"
_OPEN = {")": "(", "]": "[", "}": "{"}
_CLOSE = {opening: close for close, opening in _OPEN.items()}
_BRACKETS = frozenset((*_OPEN, *_CLOSE))


@dataclass
class Marker:
    """text[start:end] cites `refs`, () for a paper that is not known; `opening` is a bracket in it."""

    start: int
    end: int
    refs: tuple[str, ...]
    opening: str = ""


def has_numbers(paragraphs: Iterable[Paragraph]) -> bool:
    """Whether citations are numbers in square brackets."""
    return any(
        "[" in text[max(start - 1, 0) : start + 1] and text[start:end].strip("[], ").isdigit()
        for text, cites, _ in paragraphs
        for start, end, _ in cites
    )


def find_markers(text: str, cites: Sequence[Cite], bibliography: Bibliography, numbers: bool) -> list[Marker]:
    """The markers of a text in its order; they do not overlap. The cites must lie in the text.

    Cites that overlap become one marker of all that they cite. numbers: has_numbers of the paper.
    """
    found: list[Marker] = []
    floor = 0
    for marker in [*_with_names(text, _given(text, cites), bibliography), Marker(len(text), len(text), ())]:
        for start, end, opening in overlooked(text, floor, marker.start, bibliography, numbers):
            found.append(Marker(start, end, (), opening))
        found.append(marker)
        floor = marker.end
    return found[:-1]


def _given(text: str, cites: Sequence[Cite]) -> list[Marker]:
    """The spans without brackets and separators at their edges, overlapping ones joined."""
    joined: list[tuple[int, int, dict[str, None]]] = []
    for start, end, ref in sorted(cites, key=lambda cite: cite[:2]):
        if joined and start < joined[-1][1]:
            start, last, refs = joined.pop()
            end = max(last, end)
        else:
            refs = {}
        if ref is not None:
            refs[ref] = None
        joined.append((start, end, refs))
    markers = [_trimmed(text, Marker(start, end, tuple(refs))) for start, end, refs in joined]
    return [marker for marker in markers if marker.start < marker.end]


def _trimmed(text: str, marker: Marker) -> Marker:
    """Without what is at the edges; "Lee (2010)" keeps its brackets."""
    start, end = marker.start, marker.end
    while start < end and (text[start] in _SEPARATORS or text[start] in _BRACKETS):
        start += 1
    inside = text[start:end]
    unopened = {close: inside.count(close) - inside.count(opening) for close, opening in _OPEN.items()}
    while start < end:
        last = text[end - 1]
        if unopened.get(last, 0) > 0:
            unopened[last] -= 1
        elif last in _CLOSE:
            unopened[_CLOSE[last]] += 1
        elif last not in _SEPARATORS:
            break
        end -= 1
    marker.start, marker.end = start, end
    return marker


def _with_names(text: str, markers: list[Marker], bibliography: Bibliography) -> list[Marker]:
    """Take in the names before a marker and the years after it; join the spans of one citation."""
    joined: list[Marker] = []
    for place, marker in enumerate(markers):
        before = joined[-1] if joined else None
        if (
            before
            and before.refs == marker.refs
            and (between := _SAME_CITATION.fullmatch(text, before.end, marker.start))
        ):
            before.end, before.opening = marker.end, before.opening or between[1]
            continue
        numbered = _DIGIT.search(text, marker.start, marker.end)
        known = bibliography.surnames(marker.refs)
        dated = _YEAR_ALONE.fullmatch(text[marker.start : marker.end]) is not None
        names = names_before(text, before.end if before else 0, marker.start, known, dated and not known)
        if names:
            marker.start, marker.opening = names
        ceiling = markers[place + 1].start if place + 1 < len(markers) else len(text)
        years = _MORE_YEARS if numbered else _YEAR_AFTER
        if after := years.match(text, marker.end, ceiling):
            marker.end = after.end()
        joined.append(marker)
    return joined
