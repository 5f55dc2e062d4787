"""Find citation markers in a text: the spans found by the reader, and markers that it missed.

A marker includes the names before it ("Lee et al. [5]", "Lee and Diaz (2010)"), but not the brackets around
it. Names belong to a marker if they are followed by "et al.", if one of them is an author of the cited paper,
or if they are followed by a year and the authors are unknown. Missed markers are citations of unknown papers:

- a year after author names of the bibliography, or in an unambiguous form: "Foo and Bar (1999)", "Peters
  (2011)", "(Peters, 2011)"
- names with "et al.", with and without a year
- the first and second author of an entry ("Lee and Diaz"), with and without a year
- numbers in square brackets, if other citations of the paper have this form
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from citerec.formats.documents import CitationSpan, Paragraph, Reference
from citerec.formats.names import surname

UPPER = "".join(chr(code) for code in range(0x530) if chr(code).isupper())
_PARTICLE = r"[Vv]an|[Vv]on|[Dd]er|[Dd]en|[Dd]e|[Dd]i|[Dd]u|da|dos|del|[Ll]a|[Ll]e|el|al|ter|ten|bin"
NAME = (
    rf"(?:(?:{_PARTICLE})\s+){{0,2}}(?:[{UPPER}]\.[\s-]?){{0,3}}"
    rf"(?:[{UPPER}]['’])?[{UPPER}][\w‐-]+(?:['’][\w‐-]+)*"
)
ET_AL = r"et\s*+\.?\s*+al\b\.?|and\s+(?:colleagues|co-?workers)\b"
YEAR = r"(?<![\w.,/-])(?:19|20)\d\d[a-z]?(?![\w%/])"

# Names directly before a marker.
_FAR, _NEAR = 120, 60
"""Number of characters before a marker, and before a year, that are searched for names."""
_END = r"(?:['’]s?)?\s*+,?\s*+$"
_ET_AL_ENDS = re.compile(rf"(?:{NAME}\s*,?\s*(?:and|&)\s*)?{NAME},?\s+(?:{ET_AL}){_END}")
_PAIR_ENDS = re.compile(rf"({NAME}),?\s+(?:and|&)\s+({NAME}){_END}")
_NAME_ENDS = re.compile(rf"({NAME}){_END}")
_LISTED_ENDS = re.compile(rf"({NAME}),\s*$")
_GENITIVE = re.compile(r"['’]s?$")
_OTHERS = re.compile(r"(?:al|colleagues|workers)\b")
_SPACE_OR_COMMA = " ,\t\n\xa0"

# Signs of a missed marker.
_YEAR = re.compile(YEAR)
_ET_AL = re.compile(rf"\b(?:{ET_AL})")
_AND = re.compile(r"\s(?:and|&)\s+(?=[^\W\d_a-z]|v[ao]n\s|de)")
_NAME = re.compile(NAME)
_FIRST_NAME_ENDS = re.compile(rf"({NAME}),?\s*$")
# Entries are numbered from 1: [0, 1] is an interval.
_NUMBERS = re.compile(r"\[\s*[1-9]\d{0,2}(?:\s*[,;–-]\s*[1-9]\d{0,2})*\s*\]")
_NUMBER = re.compile(r"\d+")
_PAIR_DATED = re.compile(rf"{NAME},?\s+(?:and|&)\s+{NAME}(?:,\s*|\s*[(\[])$")
_NAME_DATED = re.compile(r"(?<!\w)[A-Z][a-z]+(?:-[A-Z][a-z]+)?\s*\($")
_NAME_IN_BRACKETS = re.compile(rf"[(;]\s*(?:[a-z][a-z.,]*\s+){{0,2}}{NAME},\s*$")
_YEAR_AFTER = re.compile(rf"\s*+,?\s*+(?:\({YEAR}\)|\[{YEAR}\]|{YEAR})")
MORE_YEARS = re.compile(rf"(?:\s*,\s*{YEAR})*")

_DIGIT = re.compile(r"\d")
_SAME_CITATION = re.compile(r"[)\]]?\s*+,?\s*+([(\[]?)\s*+")
_SEPARATORS = " \t\r\n\xa0,;:"
_OPEN = {")": "(", "]": "[", "}": "{"}
_CLOSE = {opening: close for close, opening in _OPEN.items()}


@dataclass
class Marker:
    """text[start:end] cites `refs`, () if the paper is unknown; `opening` is a bracket within the marker.

    names: the start of the marker if it begins with names, up to and including the bracket.
    """

    start: int
    end: int
    refs: tuple[str, ...] = ()
    opening: str = ""
    names: str = ""


class Bibliography:
    """The author surnames of a paper's bibliography entries.

    everyone: all surnames. pairs: first and second authors.
    """

    def __init__(self, references: Mapping[str, Reference]) -> None:
        names = {ref: [surname(author) for author in entry.authors] for ref, entry in references.items()}
        self._surnames = {ref: frozenset(authors) - {""} for ref, authors in names.items()}
        self._pairs = {ref: frozenset(pairwise(authors[:2])) for ref, authors in names.items()}
        self._entries = Counter(chain.from_iterable([*self._surnames.values(), *self._pairs.values()]))
        self.everyone: frozenset[str] = frozenset().union(*self._surnames.values())
        self.pairs: frozenset[tuple[str, str]] = frozenset().union(*self._pairs.values())

    def without_authors(self, ref: str) -> Bibliography:
        """Return a bibliography in which an entry has no authors, as if read from such references."""
        other = copy.copy(self)
        other._surnames = self._surnames | {ref: frozenset[str]()}
        other.everyone -= {name for name in self._surnames[ref] if self._entries[name] == 1}
        other.pairs -= {pair for pair in self._pairs[ref] if self._entries[pair] == 1}
        return other

    def surnames(self, refs: Sequence[str]) -> frozenset[str]:
        """Return the author surnames of some entries."""
        return frozenset().union(*(self._surnames.get(ref, frozenset()) for ref in refs))


def has_numbers(paragraphs: Iterable[Paragraph]) -> bool:
    """True if citations are numbers in square brackets."""
    return any(
        "[" in text[max(start - 1, 0) : start + 1] and text[start:end].strip("[], ").isdigit()
        for text, citations, *_ in paragraphs
        for start, end, _ in citations
    )


def find_markers(
    text: str, spans: Sequence[CitationSpan], bibliography: Bibliography, numbers: bool
) -> list[Marker]:
    """Find the markers of a text, in order and without overlaps. All spans must be within the text.

    Overlapping spans are merged into one marker. numbers: has_numbers of the paper.
    """
    missed: list[Marker] = []
    floor = 0
    markers = _extend_markers(text, _span_markers(text, spans), bibliography)
    for marker in [*markers, Marker(len(text), len(text))]:
        missed += _find_missed(text, floor, marker.start, bibliography, numbers)
        missed.append(marker)
        floor = marker.end
    return missed[:-1]


def _span_markers(text: str, spans: Sequence[CitationSpan]) -> list[Marker]:
    """Turn spans into markers: merge overlapping spans, strip brackets and separators."""
    joined: list[tuple[int, int, dict[str, None]]] = []
    for start, end, ref in sorted(spans, key=lambda span: span[:2]):
        refs: dict[str, None] = {}
        if joined and start < joined[-1][1]:
            start, last, refs = joined.pop()
            end = max(last, end)
        if ref is not None:
            refs[ref] = None
        joined.append((start, end, refs))
    markers = [Marker(*_trim(text, start, end), tuple(refs)) for start, end, refs in joined]
    return [marker for marker in markers if marker.start < marker.end]


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Strip brackets and separators; "Lee (2010)" keeps its brackets."""
    while start < end and (text[start] in _SEPARATORS or text[start] in _OPEN or text[start] in _CLOSE):
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
    return start, end


def _extend_markers(text: str, markers: list[Marker], bibliography: Bibliography) -> list[Marker]:
    """Extend markers to the names before and the years after them; join the spans of one citation."""
    joined: list[Marker] = []
    for marker, following in zip(markers, [*markers, None][1:], strict=True):
        before = joined[-1] if joined else None
        if (
            before
            and before.refs == marker.refs
            and (between := _SAME_CITATION.fullmatch(text, before.end, marker.start))
        ):
            before.end, before.opening = marker.end, before.opening or between[1]
            continue
        years = MORE_YEARS if _DIGIT.search(text, marker.start, marker.end) else _YEAR_AFTER
        surnames = bibliography.surnames(marker.refs)
        dated = _YEAR.fullmatch(text[marker.start : marker.end]) is not None
        floor = before.end if before else 0
        if names := find_names_before(text, floor, marker.start, surnames, dated and not surnames):
            marker.names = text[names[0] : marker.start]
            marker.start, marker.opening = names
        if after := years.match(text, marker.end, following.start if following else len(text)):
            marker.end = after.end()
        joined.append(marker)
    return joined


def _find_missed(
    text: str, floor: int, ceiling: int, bibliography: Bibliography, numbers: bool
) -> Iterator[Marker]:
    """Yield the markers in text[floor:ceiling], which has no spans, in text order."""
    spots = [(match.span(), _YEAR) for match in _YEAR.finditer(text, floor, ceiling)]
    spots += [(match.span(), _ET_AL) for match in _ET_AL.finditer(text, floor, ceiling)]
    if bibliography.pairs:
        spots += [(match.span(), _AND) for match in _AND.finditer(text, floor, ceiling)]
    # A bracket may start before `floor`, at the previous span, or end after `ceiling`, at the next one.
    around = (max(0, floor - _NEAR), min(len(text), ceiling + _NEAR))
    for bracket in _NUMBERS.finditer(text, *around) if numbers else ():
        for number in _NUMBER.finditer(text, *bracket.span()):
            if floor <= number.start() and number.end() <= ceiling:
                spots.append((number.span(), _NUMBER))
    for (start, end), kind in sorted(spots, key=lambda spot: spot[0]):
        if start < floor:
            continue
        before = text[max(floor, start - _NEAR) : start]
        names: tuple[int, str] | None
        if kind is _NUMBER:
            names = find_names_before(text, floor, start, frozenset()) or (start, "")
        elif kind is _YEAR:
            following = text[end : end + 1]
            certain = (
                _PAIR_DATED.search(before)
                or (following in (")", ";", ",") and _NAME_IN_BRACKETS.search(before))
                or (following == ")" and _NAME_DATED.search(before))
            )
            names = find_names_before(text, floor, start, bibliography.everyone, bool(certain))
        elif kind is _ET_AL:
            names = find_names_before(text, floor, end, frozenset())
        else:
            first, second = _FIRST_NAME_ENDS.search(before), _NAME.match(text, end, ceiling)
            if not first or not second:
                continue
            if (surname_in(first[1]), surname_in(second[0])) not in bibliography.pairs:
                continue
            names, end = (start - len(before) + first.start(), ""), second.end()
        if names is None:
            continue
        if kind is not _NUMBER:
            year = None if kind is _YEAR else _YEAR_AFTER.match(text, end, ceiling)
            end = year.end() if year else end
            if (kind is _YEAR or year) and (more := MORE_YEARS.match(text, end, ceiling)):
                end = more.end()
        yield Marker(names[0], end, opening=names[1])
        floor = end


def find_names_before(
    text: str, floor: int, start: int, surnames: frozenset[str], certain: bool = False
) -> tuple[int, str] | None:
    """Find names that end before `start`: (their start, the bracket after them); None without names.

    surnames: one of which must occur unless "et al." follows the names or they are `certain`.

    >>> find_names_before("However, Lee and Diaz (2010)", 0, 23, frozenset({"Diaz"}))
    (9, '(')
    """
    floor = max(floor, start - _FAR)
    end, opening = start, ""
    while end > floor and text[end - 1].isspace():
        end -= 1
    if end > floor and text[end - 1] in "([":
        end, opening = end - 1, text[end - 1]
    head = text[floor:end]
    # Usually a plain word, which is faster to detect without the patterns.
    last = head.rstrip(_SPACE_OR_COMMA).rpartition(" ")[2]
    match = None
    if _OTHERS.search(last):
        match = _ET_AL_ENDS.search(head)
    elif last != last.lower() and (certain or surnames):
        for names in (_PAIR_ENDS, _NAME_ENDS):
            if match is None and (ending := names.search(head)):
                match = (
                    ending if certain or not surnames.isdisjoint(map(surname_in, ending.groups())) else None
                )
    if match is None:
        return None
    begin = match.start()
    while (match := _LISTED_ENDS.search(head, 0, begin)) and surname_in(match[1]) in surnames:
        begin = match.start()
    return floor + begin, opening


def surname_in(name: str) -> str:
    """Return the surname in a match of NAME, which may be in the genitive."""
    return surname(_GENITIVE.sub("", name))
