"""Which parts of a text are citation markers: the spans that a reader gave, and what it overlooked.

A marker includes the names before it ("Lee et al. [5]", "Lee and Diaz (2010)"), but no brackets around it.
Names belong to it when "et al." follows them, when one of them is an author of the cited paper, or when a
year follows and the authors are not known.

Author names in running text, as they stand before a citation marker.
Markers that a reader gave no span for. They count as such, of papers that are not known:
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from datasets.fulltext.bibliography import surname
from datasets.fulltext.records import Cite, Paragraph, Reference

_UPPER = "".join(chr(code) for code in range(0x530) if chr(code).isupper())
_PARTICLE = r"[Vv]an|[Vv]on|[Dd]er|[Dd]en|[Dd]e|[Dd]i|[Dd]u|da|dos|del|[Ll]a|[Ll]e|el|al|ter|ten|bin"
NAME = (
    rf"(?:(?:{_PARTICLE})\s+){{0,2}}(?:[{_UPPER}]\.[\s-]?){{0,3}}"
    rf"(?:[{_UPPER}]['’])?[{_UPPER}][\w‐-]+(?:['’][\w‐-]+)*"
)
ET_AL = r"et\s*+\.?\s*+al\b\.?|and\s+(?:colleagues|co-?workers)\b"
YEAR = r"(?<![\w.,/-])(?:19|20)\d\d[a-z]?(?![\w%/])"

_END = r"(?:['’]s?)?\s*+,?\s*+$"
_ET_AL_ENDS = re.compile(rf"(?:{NAME}\s*,?\s*(?:and|&)\s*)?{NAME},?\s+(?:{ET_AL}){_END}")
_PAIR_ENDS = re.compile(rf"({NAME}),?\s+(?:and|&)\s+({NAME}){_END}")
_NAME_ENDS = re.compile(rf"({NAME}){_END}")
_LISTED_ENDS = re.compile(rf"({NAME}),\s*$")
_GENITIVE = re.compile(r"['’]s?$")
_OTHERS = re.compile(r"(?:al|colleagues|workers)\b")
_SPACE_OR_COMMA = " ,\t\n\xa0"
_FAR = 120
"""Characters before a marker in which its names are looked for."""


class Bibliography:
    """The entries of a paper, and the surnames in them as markers need them."""

    def __init__(self, references: dict[str, Reference]) -> None:
        names = {ref: [surname(author) for author in entry.authors] for ref, entry in references.items()}
        self._surnames = {ref: frozenset(authors) - {""} for ref, authors in names.items()}
        self.references = references
        self.everyone: frozenset[str] = frozenset().union(*self._surnames.values())
        self.pairs = frozenset((authors[0], authors[1]) for authors in names.values() if len(authors) > 1)
        """First and second authors."""

    def surnames(self, refs: Sequence[str]) -> frozenset[str]:
        """Of the authors of some entries."""
        return frozenset().union(*(self._surnames.get(ref, frozenset()) for ref in refs))


def family(name: str) -> str:
    """The surname in a match of NAME, which may be a genitive."""
    return surname(_GENITIVE.sub("", name))


def names_before(
    text: str, floor: int, start: int, known: frozenset[str], certain: bool = False
) -> tuple[int, str] | None:
    """(where the names begin that end before `start`, the bracket between them and it), None without names.

    known: surnames of which one must be there, unless "et al." follows the names or they are `certain`.

    >>> names_before("However, Lee and Diaz (2010)", 0, 23, frozenset({"Diaz"}))
    (9, '(')
    """
    floor = max(floor, start - _FAR)
    end, opening = start, ""
    while end > floor and text[end - 1].isspace():
        end -= 1
    if end > floor and text[end - 1] in "([":
        end, opening = end - 1, text[end - 1]
    head = text[floor:end]
    # Most often a plain word stands there: that is told without the patterns.
    last = head.rstrip(_SPACE_OR_COMMA).rpartition(" ")[2]
    match = None
    if _OTHERS.search(last):
        match = _ET_AL_ENDS.search(head)
    elif last != last.lower() and (certain or known):
        for names in (_PAIR_ENDS, _NAME_ENDS):
            if match is None and (found := names.search(head)):
                match = found if certain or not known.isdisjoint(map(family, found.groups())) else None
    if match is None:
        return None
    begin = match.start()
    while (match := _LISTED_ENDS.search(head, 0, begin)) and family(match[1]) in known:
        begin = match.start()
    return floor + begin, opening


_YEAR = re.compile(YEAR)
_ET_AL = re.compile(rf"\b(?:{ET_AL})")
_AND = re.compile(r"\s(?:and|&)\s+(?=[^\W\d_a-z]|v[ao]n\s|de)")
_NAME = re.compile(NAME)
_OVERLOOKED_NAME_ENDS = re.compile(rf"({NAME}),?\s*$")
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
    first = _OVERLOOKED_NAME_ENDS.search(text[max(floor, start - _NEAR) : start])
    second = _NAME.match(text, end, ceiling)
    if not first or not second or (family(first[1]), family(second[0])) not in bibliography.pairs:
        return None
    return _with_years(text, max(floor, start - _NEAR) + first.start(), second.end(), ceiling)


def _with_years(text: str, start: int, end: int, ceiling: int) -> Found:
    years = _YEARS_AFTER.match(text, end, ceiling)
    return start, years.end() if years else end, ""


_DIGIT = re.compile(r"\d")
_YEAR_ALONE = re.compile(YEAR)
_YEAR_AFTER = re.compile(rf"\s*+,?\s*+(?:\({YEAR}\)|\[{YEAR}\]|{YEAR})")
_MARKERS_MORE_YEARS = re.compile(rf"(?:\s*,\s*{YEAR})+")
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
        years = _MARKERS_MORE_YEARS if numbered else _YEAR_AFTER
        if after := years.match(text, marker.end, ceiling):
            marker.end = after.end()
        joined.append(marker)
    return joined
