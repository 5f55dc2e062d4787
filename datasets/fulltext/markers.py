"""Which parts of a text are citation markers: the spans that a reader found, and those that it overlooked.

A marker includes the names before it ("Lee et al. [5]", "Lee and Diaz (2010)"), but no brackets around it.
Names belong to it when "et al." follows them, when one of them is an author of the cited paper, or when a
year follows and the authors are unknown. Overlooked markers count as citations of unknown papers:

- a year after names of authors of the bibliography, or in a form that only citations have: "Foo and Bar
  (1999)", "Peters (2011)", "(Peters, 2011)"
- names with "et al.", with and without a year
- the first and second author of an entry ("Lee and Diaz"), with and without a year
- numbers in square brackets, if the paper's other citations are such numbers
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from datasets.fulltext.catalogue import surname
from datasets.fulltext.documents import CitationSpan, Paragraph, Reference

_UPPER = "".join(chr(code) for code in range(0x530) if chr(code).isupper())
_PARTICLE = r"[Vv]an|[Vv]on|[Dd]er|[Dd]en|[Dd]e|[Dd]i|[Dd]u|da|dos|del|[Ll]a|[Ll]e|el|al|ter|ten|bin"
NAME = (
    rf"(?:(?:{_PARTICLE})\s+){{0,2}}(?:[{_UPPER}]\.[\s-]?){{0,3}}"
    rf"(?:[{_UPPER}]['’])?[{_UPPER}][\w‐-]+(?:['’][\w‐-]+)*"
)
ET_AL = r"et\s*+\.?\s*+al\b\.?|and\s+(?:colleagues|co-?workers)\b"
YEAR = r"(?<![\w.,/-])(?:19|20)\d\d[a-z]?(?![\w%/])"

# Names at the end of what precedes a marker.
_FAR, _NEAR = 120, 60
"""Characters before a marker, and before a year, in which names are looked for."""
_END = r"(?:['’]s?)?\s*+,?\s*+$"
_ET_AL_ENDS = re.compile(rf"(?:{NAME}\s*,?\s*(?:and|&)\s*)?{NAME},?\s+(?:{ET_AL}){_END}")
_PAIR_ENDS = re.compile(rf"({NAME}),?\s+(?:and|&)\s+({NAME}){_END}")
_NAME_ENDS = re.compile(rf"({NAME}){_END}")
_LISTED_ENDS = re.compile(rf"({NAME}),\s*$")
_GENITIVE = re.compile(r"['’]s?$")
_OTHERS = re.compile(r"(?:al|colleagues|workers)\b")
_SPACE_OR_COMMA = " ,\t\n\xa0"

# What shows an overlooked marker.
_YEAR = re.compile(YEAR)
_ET_AL = re.compile(rf"\b(?:{ET_AL})")
_AND = re.compile(r"\s(?:and|&)\s+(?=[^\W\d_a-z]|v[ao]n\s|de)")
_NAME = re.compile(NAME)
_FIRST_NAME_ENDS = re.compile(rf"({NAME}),?\s*$")
# No entry has the number 0: [0, 1] is an interval.
_NUMBERS = re.compile(r"\[\s*[1-9]\d{0,2}(?:\s*[,;–-]\s*[1-9]\d{0,2})*\s*\]")
_NUMBER = re.compile(r"\d+")
_PAIR_DATED = re.compile(rf"{NAME},?\s+(?:and|&)\s+{NAME}(?:,\s*|\s*[(\[])$")
_NAME_DATED = re.compile(r"(?<!\w)[A-Z][a-z]+(?:-[A-Z][a-z]+)?\s*\($")
_NAME_IN_BRACKETS = re.compile(rf"[(;]\s*(?:[a-z][a-z.,]*\s+){{0,2}}{NAME},\s*$")
_YEAR_AFTER = re.compile(rf"\s*+,?\s*+(?:\({YEAR}\)|\[{YEAR}\]|{YEAR})")
_MORE_YEARS = re.compile(rf"(?:\s*,\s*{YEAR})*")

_DIGIT = re.compile(r"\d")
_SAME_CITATION = re.compile(r"[)\]]?\s*+,?\s*+([(\[]?)\s*+")
_SEPARATORS = " \t\r\n\xa0,;:"
_OPEN = {")": "(", "]": "[", "}": "{"}
_CLOSE = {opening: close for close, opening in _OPEN.items()}


@dataclass
class Marker:
    """text[start:end] cites `refs`, () for an unknown paper; `opening` is a bracket in it."""

    start: int
    end: int
    refs: tuple[str, ...] = ()
    opening: str = ""


class Bibliography:
    """The entries of a paper, and the surnames in them as markers need them."""

    def __init__(self, references: dict[str, Reference]) -> None:
        names = {ref: [surname(author) for author in entry.authors] for ref, entry in references.items()}
        self._surnames = {ref: frozenset(authors) - {""} for ref, authors in names.items()}
        self.everyone: frozenset[str] = frozenset().union(*self._surnames.values())
        self.pairs = frozenset((authors[0], authors[1]) for authors in names.values() if len(authors) > 1)
        """First and second authors."""

    def surnames(self, refs: Sequence[str]) -> frozenset[str]:
        """Of the authors of some entries."""
        return frozenset().union(*(self._surnames.get(ref, frozenset()) for ref in refs))


def has_numbers(paragraphs: Iterable[Paragraph]) -> bool:
    """Whether citations are numbers in square brackets."""
    return any(
        "[" in text[max(start - 1, 0) : start + 1] and text[start:end].strip("[], ").isdigit()
        for text, citations, _ in paragraphs
        for start, end, _ in citations
    )


def find_markers(
    text: str, spans: Sequence[CitationSpan], bibliography: Bibliography, numbers: bool
) -> list[Marker]:
    """The markers of a text in its order; they do not overlap. The spans must lie in the text.

    Spans that overlap become one marker of all that they cite. numbers: has_numbers of the paper.
    """
    found: list[Marker] = []
    floor = 0
    for marker in [*_with_names(text, _from_spans(text, spans), bibliography), Marker(len(text), len(text))]:
        found += _overlooked(text, floor, marker.start, bibliography, numbers)
        found.append(marker)
        floor = marker.end
    return found[:-1]


def _from_spans(text: str, spans: Sequence[CitationSpan]) -> list[Marker]:
    """The spans without brackets and separators at their edges, overlapping ones joined."""
    joined: list[tuple[int, int, dict[str, None]]] = []
    for start, end, ref in sorted(spans, key=lambda span: span[:2]):
        refs: dict[str, None] = {}
        if joined and start < joined[-1][1]:
            start, last, refs = joined.pop()
            end = max(last, end)
        if ref is not None:
            refs[ref] = None
        joined.append((start, end, refs))
    markers = [Marker(*_trimmed(text, start, end), tuple(refs)) for start, end, refs in joined]
    return [marker for marker in markers if marker.start < marker.end]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Without what stands at the edges; "Lee (2010)" keeps its brackets."""
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


def _with_names(text: str, markers: list[Marker], bibliography: Bibliography) -> list[Marker]:
    """Take in the names before a marker and the years after it; join the spans of one citation."""
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
        years = _MORE_YEARS if _DIGIT.search(text, marker.start, marker.end) else _YEAR_AFTER
        known = bibliography.surnames(marker.refs)
        dated = _YEAR.fullmatch(text[marker.start : marker.end]) is not None
        floor = before.end if before else 0
        if names := names_before(text, floor, marker.start, known, dated and not known):
            marker.start, marker.opening = names
        if after := years.match(text, marker.end, following.start if following else len(text)):
            marker.end = after.end()
        joined.append(marker)
    return joined


def _overlooked(
    text: str, floor: int, ceiling: int, bibliography: Bibliography, numbers: bool
) -> Iterator[Marker]:
    """Markers in text[floor:ceiling], where no span is, in the order of the text."""
    spots = [(match.span(), _YEAR) for match in _YEAR.finditer(text, floor, ceiling)]
    spots += [(match.span(), _ET_AL) for match in _ET_AL.finditer(text, floor, ceiling)]
    if bibliography.pairs:
        spots += [(match.span(), _AND) for match in _AND.finditer(text, floor, ceiling)]
    # A bracket may begin before `floor`, at the last span, or end after `ceiling`, at the next.
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
            names = names_before(text, floor, start, frozenset()) or (start, "")
        elif kind is _YEAR:
            following = text[end : end + 1]
            certain = (
                _PAIR_DATED.search(before)
                or (following in (")", ";", ",") and _NAME_IN_BRACKETS.search(before))
                or (following == ")" and _NAME_DATED.search(before))
            )
            names = names_before(text, floor, start, bibliography.everyone, bool(certain))
        elif kind is _ET_AL:
            names = names_before(text, floor, end, frozenset())
        else:
            first, second = _FIRST_NAME_ENDS.search(before), _NAME.match(text, end, ceiling)
            if not first or not second or (_family(first[1]), _family(second[0])) not in bibliography.pairs:
                continue
            names, end = (start - len(before) + first.start(), ""), second.end()
        if names is None:
            continue
        if kind is not _NUMBER:
            year = None if kind is _YEAR else _YEAR_AFTER.match(text, end, ceiling)
            end = year.end() if year else end
            if (kind is _YEAR or year) and (more := _MORE_YEARS.match(text, end, ceiling)):
                end = more.end()
        yield Marker(names[0], end, opening=names[1])
        floor = end


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
    # Most often a plain word stands there, which is quicker to see without the patterns.
    last = head.rstrip(_SPACE_OR_COMMA).rpartition(" ")[2]
    match = None
    if _OTHERS.search(last):
        match = _ET_AL_ENDS.search(head)
    elif last != last.lower() and (certain or known):
        for names in (_PAIR_ENDS, _NAME_ENDS):
            if match is None and (found := names.search(head)):
                match = found if certain or not known.isdisjoint(map(_family, found.groups())) else None
    if match is None:
        return None
    begin = match.start()
    while (match := _LISTED_ENDS.search(head, 0, begin)) and _family(match[1]) in known:
        begin = match.start()
    return floor + begin, opening


def _family(name: str) -> str:
    """The surname in a match of NAME, which may be a genitive."""
    return surname(_GENITIVE.sub("", name))
