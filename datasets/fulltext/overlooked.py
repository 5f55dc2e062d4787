"""Markers that a reader gave no span for. They count as such, of papers that are not known:

- names with "et al.", also without a year: "Lee et al.", "Lee et al. (2010)"
- two names and a year that is in brackets or after a comma: "Lee and Diaz (2010)", "Lee & Diaz, 2010"
- a name and a year in brackets: "Lee (2010)", "(Lee, 2010)", "(see Lee, 2010; ...)"
- a name of the bibliography and a year: "Lee 2010"
- "Lee and Diaz" where these are the first two authors of an entry of the bibliography
- numbers in square brackets, if that is how the paper cites, but for [0, 1] and the like
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from datasets.fulltext.author_names import ET_AL, NAME, YEAR, Bibliography, family, names_before

_YEAR = re.compile(YEAR)
_ET_AL = re.compile(rf"\b(?:{ET_AL})")
_AND = re.compile(r"\s(?:and|&)\s+(?=[^\W\d_a-z]|v[ao]n\s|de)")
_NAME = re.compile(NAME)
_NAME_ENDS = re.compile(rf"({NAME}),?\s*$")
# No entry has the number 0: [0, 1] is an interval.
_NUMBERS = re.compile(r"\[\s*[1-9]\d{0,2}(?:\s*[,;–-]\s*[1-9]\d{0,2})*\s*\]")
_NUMBER = re.compile(r"\d+")
_PAIR_DATED = re.compile(rf"{NAME},?\s+(?:and|&)\s+{NAME}(?:,\s*|\s*[(\[])$")
_NAME_DATED = re.compile(r"(?<!\w)[A-Z][a-z]+(?:-[A-Z][a-z]+)?\s*\($")
_NAME_IN_BRACKETS = re.compile(rf"[(;]\s*(?:[a-z][a-z.,]*\s+){{0,2}}{NAME},\s*$")
_YEARS_AFTER = re.compile(rf"\s*+,?\s*+(?:\({YEAR}\)|\[{YEAR}\]|{YEAR})(?:\s*,\s*{YEAR})*")
_MORE_YEARS = re.compile(rf"(?:\s*,\s*{YEAR})*")
_NEAR = 60
"""Characters before a year that are looked at."""

Found = tuple[int, int, str]
"""Start and end of a marker, and the bracket that is in it."""


def overlooked(
    text: str, floor: int, ceiling: int, bibliography: Bibliography, numbers: bool
) -> Iterator[Found]:
    """Markers in text[floor:ceiling], where no span is, in the order of the text."""
    spots = [(match.start(), match.end(), _dated) for match in _YEAR.finditer(text, floor, ceiling)]
    spots += [(match.start(), match.end(), _et_al) for match in _ET_AL.finditer(text, floor, ceiling)]
    if bibliography.pairs:
        spots += [(match.start(), match.end(), _pair) for match in _AND.finditer(text, floor, ceiling)]
    if numbers:
        spots += [(start, end, _number) for start, end in _numbers(text, floor, ceiling)]
    for start, end, look in sorted(spots, key=lambda spot: spot[:2]):
        if start >= floor and (found := look(text, floor, start, end, ceiling, bibliography)):
            yield found
            floor = found[1]


def _numbers(text: str, floor: int, ceiling: int) -> Iterator[tuple[int, int]]:
    """The numbers of a bracket of which none, some or all but these have spans."""
    # A bracket may begin before `floor`, at the last span, or end after `ceiling`, at the next.
    for bracket in _NUMBERS.finditer(text, max(0, floor - _NEAR), min(len(text), ceiling + _NEAR)):
        for number in _NUMBER.finditer(text, bracket.start(), bracket.end()):
            if floor <= number.start() and number.end() <= ceiling:
                yield number.span()


def _number(text: str, floor: int, start: int, end: int, ceiling: int, bibliography: Bibliography) -> Found:
    names = names_before(text, floor, start, frozenset())
    return (names[0], end, names[1]) if names else (start, end, "")


def _dated(
    text: str, floor: int, start: int, end: int, ceiling: int, bibliography: Bibliography
) -> Found | None:
    before = text[max(floor, start - _NEAR) : start]
    certain = _PAIR_DATED.search(before) is not None
    if text[end : end + 1] in (")", ";", ","):
        certain = certain or _NAME_IN_BRACKETS.search(before) is not None
    if text[end : end + 1] == ")":
        certain = certain or _NAME_DATED.search(before) is not None
    names = names_before(text, floor, start, bibliography.everyone, certain)
    if names is None:
        return None
    more = _MORE_YEARS.match(text, end, ceiling)
    return names[0], more.end() if more else end, names[1]


def _et_al(
    text: str, floor: int, start: int, end: int, ceiling: int, bibliography: Bibliography
) -> Found | None:
    names = names_before(text, floor, end, frozenset())
    return _with_years(text, names[0], end, ceiling) if names else None


def _pair(
    text: str, floor: int, start: int, end: int, ceiling: int, bibliography: Bibliography
) -> Found | None:
    first = _NAME_ENDS.search(text[max(floor, start - _NEAR) : start])
    second = _NAME.match(text, end, ceiling)
    if not first or not second or (family(first[1]), family(second[0])) not in bibliography.pairs:
        return None
    return _with_years(text, max(floor, start - _NEAR) + first.start(), second.end(), ceiling)


def _with_years(text: str, start: int, end: int, ceiling: int) -> Found:
    years = _YEARS_AFTER.match(text, end, ceiling)
    return start, years.end() if years else end, ""
