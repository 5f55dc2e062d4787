"""Venues: which series a name means (formats/bibliography/series.csv), and whether two are the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from citerec.formats.bibliography.paper import PREPRINT_VENUE
from citerec.formats.bibliography.tables import read_table
from citerec.formats.letters import fold, normalise_title

SHORT_VENUE = 12
"""Characters of a venue's name that may be any abbreviation."""
_NOT_THE_VENUE = re.compile(  # workshops, other parts of a conference, and what is only named like it
    r"workshop|companion|findings|adjunct|tutorial|demo|CVPRW|ICCVW|late.breaking|symposi|weblogs"
    r"|social media|anthology|machine learning (?:and|for)|ethics|forum",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]+")
_STOP = re.compile(r"the|of|on|and|for|in|an?|to|proc(?:eedings)?|annual|conf(?:erence)?|ieee|acm|cvf")


class Series(NamedTuple):
    """name: "" if it is none of those known. kind: conference or journal. prefixes: of its DOIs."""

    name: str = ""
    kind: str = ""
    names: Sequence[str] = ()
    prefixes: Sequence[str] = ()

    @property
    def whole_names(self) -> list[str]:
        return [name for name in self.names if " " in name]


@lru_cache
def all_series() -> dict[str, Series]:
    """Return the series by their names in lower case, and by their codes in identifiers."""
    series: dict[str, Series] = {}
    for row in read_table("series"):
        names, prefixes = tuple(row["names"].split("; ")), tuple(row["prefixes"].split())
        told = Series(row["series"], row["kind"], names, prefixes)
        series |= dict.fromkeys((row["series"].lower(), *row["codes"].split()), told)
    return series


@lru_cache(1 << 14)
def find_series(venue: str) -> Series:
    """Return the series of a venue's name; without a name if it is none or several, or a workshop.

    >>> find_series("2021 IEEE/CVF Conf. on Computer Vision and Pattern Recognition (CVPR)").name
    'CVPR'
    >>> [find_series(name).name for name in ("ICML Workshop on Graphs", "Nature", "Nature Methods")]
    ['', 'Nature', '']
    """
    words, letters = {*_WORD.findall(venue)}, normalise_title(venue)
    alone = re.sub(r"\d", "", letters)

    def fits(name: str) -> bool:
        whole = normalise_title(name)
        if name.startswith("=") or whole == alone:
            return whole == alone
        return whole in letters if " " in name else not words.isdisjoint((name, name.upper()))

    fitting = [series for series in dict.fromkeys(all_series().values()) if any(map(fits, series.names))]
    return fitting[0] if len(fitting) == 1 and not _NOT_THE_VENUE.search(venue) else Series()


def same_venue(first: str, second: str) -> bool | None:
    """True if two names are of one venue, False if of two; None if that cannot be told.

    A conference and a journal may both have a work, in two versions.

    >>> same_venue("Proc. ICML", "ICLR 2020"), same_venue("J. Vis.", "Journal of Vision"), same_venue("", "X")
    (False, True, None)
    """
    one, two = find_series(first), find_series(second)
    if PREPRINT_VENUE.search(first) or PREPRINT_VENUE.search(second):
        return None
    if one.name and two.name:
        return one == two or (None if one.kind != two.kind else False)
    names, others = one.whole_names or [first], two.whole_names or [second]
    return any(_likeness(name, other) == 1 for name in names for other in others) or None


def may_be(venue: str, series: Series) -> bool:
    """True if a venue's name may mean a series that its identifier names."""
    if own := find_series(venue).name:
        return own == series.name
    is_vague = len(venue) < SHORT_VENUE or not _telling_words(venue)
    return is_vague or any(_likeness(venue, name) for name in (series.name, *series.whole_names))


def _telling_words(venue: str) -> list[str]:
    return [word for word in _WORD.findall(fold(venue).lower()) if not _STOP.fullmatch(word)]


def _likeness(first: str, second: str) -> float:
    """Return the share of the words of both names that begin a word of the other; 1 for initials."""
    one, two = map(_telling_words, (first, second))
    if not one or not two:
        return 0
    for words, others in ((one, two), (two, one)):
        if "".join(words) == "".join(word[0] for word in others):
            return 1
    pairs = [(word[:4], two) for word in one] + [(word[:4], one) for word in two]
    alike = (any(a.startswith(b[:4]) or b.startswith(a) for b in others) for a, others in pairs)
    return sum(alike) / len(pairs)
