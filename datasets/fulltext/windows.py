"""Windows around a mask, and what they give away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from datasets.fulltext.names import fold
from datasets.schema import OTHER_MARKER, TARGET_MARKER

_YEAR = r"(?<!\d)((?:19|20)\d\d)[a-z]?"
_YEARS_BESIDE = (
    re.compile(rf"{_YEAR}\W{{0,3}}{TARGET_MARKER}"),
    re.compile(rf"{TARGET_MARKER}\W{{0,3}}{_YEAR}(?!\w)"),
)


def cut(left: str, right: str, window: int, words: str) -> str:
    """A mask with at most `window` characters of the text on each side of it, and no part of a marker.

    words: at the ends they are `cut`, as in ACL-200, RefSeer and Gu et al. 2022, or only `whole` ones stand.

    >>> cut("we use parsers (", ") here", 11, "cut")
    'e parsers (TARGETCIT) here'
    """
    start, end = max(0, len(left) - window), min(len(right), window)
    if words == "whole":
        while 0 < start < len(left) and not (left[start - 1].isspace() or left[start].isspace()):
            start += 1
        while 0 < end < len(right) and not (right[end - 1].isspace() or right[end].isspace()):
            end -= 1
    for other in re.finditer(OTHER_MARKER, left):
        if other.start() < start < other.end():
            start = other.end()
    for other in re.finditer(OTHER_MARKER, right):
        if other.start() < end < other.end():
            end = other.start()
    return f"{left[start:].lstrip()}{TARGET_MARKER}{right[:end].rstrip()}"


def leak(text: str, surnames: Sequence[str]) -> str | None:
    """What a context gives away of the cited paper, or None.

    An author: one of `surnames` is named in it (any_named). A year: see years_beside.
    """
    if years_beside(text):
        return "a year is beside the mask"
    if any_named(fold(text), surnames):
        return "an author of the cited paper is named"
    return None


def years_beside(text: str) -> list[int]:
    """The years of 1900 to 2099 beside the mask, at most three characters between, no letters or digits.

    >>> years_beside("was shown (Lee, 2010; TARGETCIT)")
    [2010]
    """
    return [int(match[1]) for side in _YEARS_BESIDE for match in side.finditer(text)]


def any_named(folded: str, surnames: Iterable[str]) -> bool:
    """Whether one of the surnames, folded as the text is and of three letters or more, is a word of it."""
    return any(
        len(name) > 2 and name in folded and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded)
        for name in surnames
    )
