"""An entry beside a record of its work: what they say differently, and whether the record confirms it.

Only what is no matter of style counts: names may be abbreviated, titles without their subtitle, years one
apart, and a preprint and its publication may differ in all but title and authors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from citerec.formats.bibliography.paper import PREPRINT_VENUE, LibraryPaper, is_preprint
from citerec.formats.letters import LONG_TITLE, fold, normalise_title
from citerec.formats.names import surname
from citerec.library.references.entry import (
    OLD_PAPERS,
    SHORT_VENUE,
    Finding,
    Reference,
    are_apart,
    are_versions,
    find_series,
    is_conference,
    is_workshop,
    same_venue,
)

SAME_NAME, SAME_WORD, SAME_WHOLE_NAME = 0.75, 0.75, 0.88
"""Least similarity (difflib) of two spellings."""
MANY = 10
"""Authors after whom a list may end."""
TELLING = 5
"""Words of a title that no two works are likely to share by chance."""
_WORD = re.compile(r"[^\W_]+")
_SUBTITLE = re.compile(r"[:.?!–—(]| - ")
_CONFERENCE = re.compile(r"^(?!.*machine learning research).*\bconference\b", re.I)
_SMALL = frozenset(("a", "an", "the", "and", "of", "s"))
_GROUP = re.compile(
    r"collaborat|consorti|group|team|committee|network|project|institut|universit|organi[sz]at"
    r"|associat|societ|agency|ministr|council|foundation|office|international|national|world|inc\b",
    re.IGNORECASE,
)
_FOREIGN = re.compile(
    r"\b(?:de|la|le|les|el|los|las|del|della|der|das|den|und|et|des|du|une?|für|von|zur|y|en|di|il|os|um|uma|och|av|van|het)\b"
    r"|[^\x00-\x7f]",
    re.IGNORECASE,
)
"""Words of titles in other languages than English, whose translation is no other title."""


class Record(NamedTuple):
    """A record beside an entry. where: who says so; by_id: found by DOI or arXiv id, not title or authors;
    confirms: it is another's word, not only another entry of the same person."""

    paper: LibraryPaper
    where: str
    by_id: bool = False
    confirms: bool = True


class Comparison(NamedTuple):
    """findings: contradictions. same: the record is of the same work. agrees: it has title, authors, year and
    venue of the entry, and no other identifier."""

    findings: list[Finding]
    same: bool
    agrees: bool


def compare(reference: Reference, record: Record, alone: bool = True) -> Comparison:
    """Compare an entry with a record. alone: no other record has its title."""
    own, other, where = reference.paper, record.paper, record.where
    if not own.title or not other.title:
        return Comparison([], False, False)
    change = title_change(own.title, other.title)
    versions = is_preprint(own) != is_preprint(other) or are_versions(own.venue, other.venue)
    findings: list[Finding] = []
    authors = list(_authors(reference, other))
    people = {finding.field for finding in authors}
    years = abs(own.year - other.year) if own.year and other.year else 0
    venue = same_venue(own.venue, other.venue)
    if record.by_id:
        if change == "other":
            foreign = bool(_FOREIGN.search(own.title)) != bool(_FOREIGN.search(other.title))
            if not reference.is_article or foreign or versions:
                return Comparison([], False, False)
            return Comparison([Finding("title", own.title, other.title, where)], False, False)
        if change == "words" and not versions:
            findings.append(Finding("title", own.title, other.title, where))
    elif change == "words":
        nearly = not authors and years == 0 and venue and alone and bool(own.authors) and not versions
        if not nearly or len(_words(own.title)) < TELLING or _numbered(own.title, other.title):
            return Comparison([], False, False)
        return Comparison([Finding("title", own.title, other.title, where)], True, False)
    elif change == "other" or (
        "author" in people and not (alone and _is_telling(own.title) and (years <= 1 or venue))
    ):
        return Comparison([], False, False)
    if not reference.is_article:
        return Comparison([], not authors, change == "" and not authors and years <= 1)
    certain = {"author"} if versions else {"author", "authors", *(("order",) if record.by_id else ())}
    findings += [finding._replace(where=where) for finding in authors if finding.field in certain]
    dated = other.venue or other.doi  # else it may be the preprint's year
    revised = (
        is_preprint(own) and is_preprint(other) and (own.year > other.year or OLD_PAPERS.match(own.arxiv))
    )
    if years > 1 and not versions and dated and not revised:
        findings.append(Finding("year", str(own.year), str(other.year), where))
    if venue is False or (venue is None and _strange_venue(own, other)):
        findings.append(Finding("venue", own.venue, other.venue, where))
    same_registrant = own.doi.split("/")[0] == other.doi.split("/")[0]
    if are_apart(own.doi, other.doi) and not versions and not findings and (venue or not same_registrant):
        findings.append(Finding("doi", own.doi, other.doi, where))
    known = own.doi in ("", other.doi) or bool(own.arxiv and own.arxiv == other.arxiv)
    told = any(facts.series and facts.series == reference.series for facts in reference.facts)
    complete = bool(own.authors and other.authors) and len(own.authors) <= len(other.authors)
    placed = venue or not own.venue or bool(PREPRINT_VENUE.search(own.venue))
    agrees = (
        change == ""
        and not (findings or authors)
        and complete
        and years <= 1
        and placed
        and not (versions and own.venue)
    )
    return Comparison(findings, True, bool(agrees and (known or told)))


def title_change(first: str, second: str) -> str:
    """Return how two titles differ: "" (not at all, or one is the other's beginning), "style" (spelling),
    "words" (a few words), "other".

    >>> title_change("BERT: Pre-training of nets", "Bert"), title_change("In colours", "In colors")
    ('', 'style')
    >>> title_change("Learning to plan with human feedback", "Learning to plan from human feedback")
    'words'
    """
    letters, others = normalise_title(first), normalise_title(second)
    shorter, longer = sorted((letters, others), key=len)
    if letters == others or (longer.startswith(shorter) and _is_subtitle(shorter, first, second)):
        return ""
    one, two = _words(first), _words(second)
    replaced, changed = 0, []
    for kind, start, end, begin, stop in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if kind != "equal":
            a, b = one[start:end], two[begin:stop]
            replaced += max(len(a), len(b))
            changed.append(("".join(a), "".join(b)))
    if all(_same_word(a, b) for a, b in changed):
        return "style"
    if replaced <= max(1, 0.34 * min(len(one), len(two))):
        return "words"
    shared = len({*one} & {*two})
    return "words" if shared >= 0.6 * max(len(one), len(two)) else "other"


def _is_subtitle(shorter: str, *titles: str) -> bool:
    """True if a title has a subtitle after these letters."""
    ends = ((title, mark.start()) for title in titles for mark in _SUBTITLE.finditer(title))
    return any(normalise_title(title[:end]) == shorter for title, end in ends)


def _same_word(one: str, two: str) -> bool:
    if one in _SMALL | {""} and two in _SMALL | {""}:
        return True
    return one == two or (bool(one and two) and _ratio(one, two) >= SAME_WORD)


def _words(title: str) -> list[str]:
    return _WORD.findall(fold(title).lower())


def _numbered(first: str, second: str) -> bool:
    """True if titles differ in numbers, as parts of a work do."""
    numbers = re.compile(r"\d+|\b[ivx]+\b|\bpart\b")
    return numbers.findall(first.lower()) != numbers.findall(second.lower())


def _is_telling(title: str) -> bool:
    return len(_words(title)) >= TELLING and len(normalise_title(title)) >= 1.5 * LONG_TITLE


def _authors(reference: Reference, other: LibraryPaper) -> Iterator[Finding]:
    """Yield how lists of authors differ: field author (the first), authors or order."""
    own, names = list(reference.paper.authors), list(other.authors)
    if not own or not names or any(map(_GROUP.search, (*own, *names))):
        return
    if not any(map(_is_person, own)) or not any(map(_is_person, names)):
        return
    # The next version of a preprint may have more authors.
    may_grow = reference.abridged or is_preprint(reference.paper) or is_preprint(other)
    places = _matched(own, names)
    if places[0] is None and 0 not in places:
        yield Finding("author", own[0], names[0], "")
        return
    found = [place for place in places if place is not None]
    whole = len(found) == len(own) == len(names)
    strange = [name for name, place in zip(own, places, strict=True) if place is None]
    left = [name for place, name in enumerate(names) if place not in found]
    if found != sorted(found) and whole and len({surname(name) for name in names}) == len(names):
        yield Finding("order", _listed(own), _listed(names), "")
    elif (strange and len(names) >= len(own)) or (left and len(own) < MANY and not (strange or may_grow)):
        yield Finding("authors", _listed(own), _listed(names), "")


def _is_person(name: str) -> bool:
    return len(name.replace(",", " ").split()) > 1


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 8 else f"{', '.join(names[:6])} ... ({len(names)})"


def _matched(own: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """Return the place of each name in another list; None if it is not there."""
    free = dict(enumerate(names))
    places: list[int | None] = []
    for place, name in enumerate(own):
        order = sorted(free, key=lambda other: abs(other - place))
        match = next((other for other in order if _same_person(name, free[other])), None)
        places.append(match)
        free.pop(match, None)  # type: ignore[arg-type]
    return places


def _same_person(first: str, second: str) -> bool:
    one, two = surname(first).lower(), surname(second).lower()
    if not one or not two:
        return True
    words, others = ({*_WORD.findall(fold(name).lower())} for name in (first, second))
    if one == two or one in others or two in words or len(words & others) > 1:
        return True
    one, two = one.replace("-", ""), two.replace("-", "")
    if min(len(one), len(two)) > 3 and (
        one.startswith(two) or two.startswith(one) or _ratio(one, two) >= SAME_NAME
    ):
        return True
    return _ratio(normalise_title(first), normalise_title(second)) >= SAME_WHOLE_NAME


def _ratio(one: str, two: str) -> float:
    return SequenceMatcher(None, one, two).ratio()


def _strange_venue(own: LibraryPaper, other: LibraryPaper) -> bool:
    """True if a venue is none that is known, and its words are not those of the record's conference."""
    if not is_conference(other.venue) or find_series(own.venue) or len(own.venue) < SHORT_VENUE:
        return False
    return bool(_CONFERENCE.search(own.venue)) and not (
        is_workshop(own.venue) or is_preprint(own) or is_preprint(other)
    )
