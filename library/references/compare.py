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
from citerec.library.references.entry import Finding, Reference, are_apart
from citerec.library.references.venues import find_series, same_venue

SAME_NAME, SAME_WORD, SAME_WHOLE_NAME = 0.75, 0.75, 0.88
"""Least similarity (difflib) of two spellings."""
MANY = 10
"""Authors after whom a list may end."""
TELLING = 5
"""Words of a title that no two works are likely to share by chance."""
_WORD = re.compile(r"[^\W_]+")
_NUMBERS = re.compile(r"\d+|\b[ivx]+\b|\bpart\b")
"""What differs in the titles of parts of a work."""
_SUBTITLE = re.compile(r"[:.?!–—(]| - ")
_SMALL = frozenset(("", "a", "an", "the", "and", "of", "s"))
_GROUP = re.compile(
    r"collaborat|consorti|group|team|committee|network|project|institut|universit|organi[sz]at"
    r"|associat|societ|agency|ministr|council|foundation|office|international|national|world|inc\b",
    re.IGNORECASE,
)
_FOREIGN = re.compile(
    r"\b(?:de|la|le|les|el|los|del|der|das|den|und|et|des|von|di|il|och)\b|[^\0-\x7f]", re.I
)
"""Titles in other languages than English, whose translation is no other title."""


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


def compare(reference: Reference, record: Record) -> Comparison:
    """Compare an entry with a record."""
    own, other, where = reference.paper, record.paper, record.where
    none = Comparison([], False, False)
    if not own.title or not other.title:
        return none
    change = title_change(own.title, other.title)
    kinds = {reference.series.kind, find_series(other.venue).kind}
    versions = is_preprint(own) != is_preprint(other) or kinds == {"journal", "conference"}
    authors = [finding._replace(where=where) for finding in _authors(reference, other)]
    years = abs(own.year - other.year) if own.year and other.year else 0
    venue = same_venue(own.venue, other.venue)
    title = [Finding("title", own.title, other.title, where)]
    is_telling = len(_words(own.title)) >= TELLING
    if record.by_id:
        translated = bool(_FOREIGN.search(own.title)) != bool(_FOREIGN.search(other.title))
        if change == "other":
            return (
                none if translated or versions or not reference.is_article else none._replace(findings=title)
            )
    elif change == "other":
        return none
    elif change == "words":
        nearly = not authors and years == 0 and venue and own.authors and is_telling
        numbered = _NUMBERS.findall(own.title.lower()) != _NUMBERS.findall(other.title.lower())
        return Comparison(title, True, False) if nearly and not numbered else none
    elif any(finding.field == "author" for finding in authors):
        is_long = is_telling and len(normalise_title(own.title)) >= 1.5 * LONG_TITLE
        if not (is_long and (years <= 1 or venue)):
            return none
    if not reference.is_article:
        return Comparison([], not authors, change == "" and not authors and years <= 1)
    findings = title if change == "words" and not versions else []
    # Other versions may have other authors, and the work of an editor another year.
    certain = {"author"} if versions or years > 1 else {"author", "authors", "order" if record.by_id else ""}
    findings += [finding for finding in authors if finding.field in certain]
    revised = is_preprint(own) and is_preprint(other) and own.year > other.year
    if years > 1 and not versions and not revised and (venue or record.by_id):
        findings.append(Finding("year", str(own.year), str(other.year), where))
    # What was sent to ICLR, which shows all of it, may have appeared elsewhere, with pages.
    sent = find_series(other.venue).name == "ICLR" and "pages" in reference.fields
    if venue is False and not sent:
        findings.append(Finding("venue", own.venue, other.venue, where))
    if are_apart(own.doi, other.doi) and not versions and not findings and venue:
        findings.append(Finding("doi", own.doi, other.doi, where))
    sure = own.doi in ("", other.doi) or (own.arxiv and own.arxiv == other.arxiv)
    sure = sure or any(facts.series.name and facts.series == reference.series for facts in reference.facts)
    complete = own.authors and len(own.authors) <= len(other.authors)
    placed = not own.venue or (not versions and (venue or PREPRINT_VENUE.search(own.venue)))
    differs = change or findings or authors or years > 1
    return Comparison(findings, True, bool(sure and complete and placed and not differs))


def title_change(first: str, second: str) -> str:
    """Return how two titles differ: "" (not at all, or one is the other's beginning), "style" (spelling),
    "words" (a few words), "other".

    >>> title_change("BERT: Pre-training of nets", "Bert"), title_change("In colours", "In colors")
    ('', 'style')
    >>> title_change("Learning to plan with human feedback", "Learning to plan from human feedback")
    'words'
    """
    shorter, longer = sorted(map(normalise_title, (first, second)), key=len)
    beginnings = (
        normalise_title(title[: mark.start()])
        for title in (first, second)
        for mark in _SUBTITLE.finditer(title)
    )
    if shorter == longer or (longer.startswith(shorter) and shorter in beginnings):
        return ""
    one, two = _words(first), _words(second)
    codes = SequenceMatcher(None, one, two, autojunk=False).get_opcodes()
    changed = [(one[a:b], two[c:d]) for kind, a, b, c, d in codes if kind != "equal"]
    if all(_same_word("".join(words), "".join(others)) for words, others in changed):
        return "style"
    replaced = sum(max(map(len, pair)) for pair in changed)
    return "words" if replaced <= max(1, 0.34 * min(len(one), len(two))) else "other"


def _same_word(one: str, two: str) -> bool:
    small = {one, two} <= _SMALL
    return small or (bool(one and two) and _ratio(one, two) >= SAME_WORD)


def _words(title: str) -> list[str]:
    return _WORD.findall(fold(title).lower())


def _authors(reference: Reference, other: LibraryPaper) -> Iterator[Finding]:
    """Yield how lists of authors differ: field author (the first), authors or order."""
    own, names = list(reference.paper.authors), list(other.authors)
    if any(map(_GROUP.search, (*own, *names))):
        return
    if not all(any(len(name.replace(",", " ").split()) > 1 for name in each) for each in (own, names)):
        return  # no names of people
    # The next version of a preprint may have more authors.
    may_grow = reference.abridged or is_preprint(reference.paper) or is_preprint(other)
    places = _matched(own, names)
    if places[0] is None and 0 not in places:
        if len(names) == 1 < len(own):  # a group, or a list cut short
            return
        yield Finding("author", own[0], names[0], "")
        return
    matched = [place for place in places if place is not None]
    strange = len(own) - len(matched)
    left = any(" " in name and place not in places for place, name in enumerate(names))
    distinct = len({surname(name) for name in names}) == len(names)
    if matched != sorted(matched) and not strange and not left and distinct:
        yield Finding("order", _listed(own), _listed(names), "")
    elif (strange and len(names) >= len(own)) or (left and len(own) < MANY and not (strange or may_grow)):
        yield Finding("authors", _listed(own), _listed(names), "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 8 else f"{', '.join(names[:6])} ... ({len(names)})"


def _matched(own: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """Return the place of each name in another list, the nearest that is free; None if it is not there."""
    free, places = [*range(len(names))], list[int | None]()
    for place, name in enumerate(own):
        order = sorted(free, key=lambda other: abs(other - place))
        match = next((other for other in order if _same_person(name, names[other])), None)
        places.append(match)
        free = [other for other in free if other != match]
    return places


def _same_person(first: str, second: str) -> bool:
    one, two = surname(first).lower(), surname(second).lower()
    words, others = ({*_words(name)} for name in (first, second))
    if not one or not two or one == two or one in others or two in words or len(words & others) > 1:
        return True
    alike = one.startswith(two) or two.startswith(one) or _ratio(one, two) >= SAME_NAME
    if alike and min(len(one), len(two)) > 3:
        return True
    return _ratio(normalise_title(first), normalise_title(second)) >= SAME_WHOLE_NAME


def _ratio(one: str, two: str) -> float:
    return SequenceMatcher(None, one, two).ratio()
