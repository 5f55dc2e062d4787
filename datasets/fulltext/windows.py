"""Windows around a mask, and what they give away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from datasets.fulltext.names import fold
from datasets.schema import OTHER_MARKER, TARGET_MARKER

_YEAR = r"(?<!\d)(?:19|20)\d\d[a-z]?"
_YEAR_BESIDE = re.compile(rf"{_YEAR}\W{{0,3}}{TARGET_MARKER}|{TARGET_MARKER}\W{{0,3}}{_YEAR}(?!\w)")


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

    An author: one of `surnames` (folded), of three letters or more, is a word of it, as it is written.
    A year: one of 1900 to 2099 is beside the mask, at most three characters between, no letters or digits.
    """
    if _YEAR_BESIDE.search(text):
        return "a year is beside the mask"
    folded = fold(text)
    for name in surnames:
        if len(name) > 2 and name in folded and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded):
            return "an author of the cited paper is named"
    return None
