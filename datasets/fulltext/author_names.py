"""Author names in running text, as they stand before a citation marker."""

from __future__ import annotations

import re
from collections.abc import Sequence

from datasets.fulltext.names import surname
from datasets.fulltext.schema import Reference

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
