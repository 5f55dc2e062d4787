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
from citerec.formats.letters import fold, normalise_title
from citerec.formats.names import INSTITUTION, surname
from citerec.library.references.entry import Finding, Reference
from citerec.library.references.venues import find_series, same_venue

SAME_WORD, SAME_TITLE = 0.75, 0.7
"""Least similarity (difflib) of two spellings of a word or surname, and of the words of two titles."""
MANY = 10
"""Authors after whom a list may end."""
TELLING = 5
"""Words of a title that no two works are likely to share by chance."""
_WORD = re.compile(r"[^\W_]+")
_NUMBERS = re.compile(r"\d+|\b[ivx]+\b|\bpart\b")
"""What differs in the titles of parts of a work."""
_SUBTITLE = re.compile(r"[:.?!–—(]| - ")
_SMALL = frozenset(("", "a", "an", "the", "and", "of", "s"))
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
    authors = [finding._replace(where=where) for finding in _authors(reference, record)]
    years = abs(own.year - other.year) if own.year and other.year else 0
    venue = same_venue(own.venue, other.venue)
    title = [Finding("title", own.title, other.title, where)]
    is_telling = len(_words(own.title)) >= TELLING
    if change == "other":
        translated = bool(_FOREIGN.search(own.title)) != bool(_FOREIGN.search(other.title))
        told = record.by_id and reference.is_article and not (versions or translated)
        return none._replace(findings=title if told else [])
    if not record.by_id:
        numbered = _NUMBERS.findall(own.title.lower()) != _NUMBERS.findall(other.title.lower())
        nearly = venue and own.authors and not (authors or years or numbered)
        strange = any(finding.field == "author" for finding in authors)
        unsure = change == "words" or strange
        if (change == "words" and not nearly) or (unsure and (years > 1 or not is_telling)):
            return none
    if not reference.is_article:
        return Comparison([], not authors, not change and not authors and years <= 1)
    findings = title if change == "words" and not versions else []
    # Other versions may have other authors, and the work of an editor another year.
    findings += [finding for finding in authors if finding.field == "author" or not (versions or years > 1)]
    if years > 1 and not (versions or is_preprint(own)) and (venue or record.by_id):
        findings.append(Finding("year", str(own.year), str(other.year), where))
    # What was sent to ICLR, which shows all of it, may have appeared elsewhere.
    sent = find_series(other.venue).name == "ICLR" and {*reference.fields} & {"pages", "volume"}
    if venue is False and not sent:
        findings.append(Finding("venue", own.venue, other.venue, where))
    sure = own.doi in ("", other.doi) or (own.arxiv and own.arxiv == other.arxiv)
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
    matcher = SequenceMatcher(None, one, two, autojunk=False)
    changed = [(one[a:b], two[c:d]) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal"]
    if all(_same_word("".join(words), "".join(others)) for words, others in changed):
        return "style"
    return "words" if matcher.ratio() >= SAME_TITLE else "other"


def _same_word(one: str, two: str) -> bool:
    small = {one, two} <= _SMALL
    return small or (bool(one and two) and _ratio(one, two) >= SAME_WORD)


def _words(title: str) -> list[str]:
    return _WORD.findall(fold(title).lower())


def _authors(reference: Reference, record: Record) -> Iterator[Finding]:
    """Yield how lists of authors differ: field author (the first) or authors."""
    own, names = reference.paper.authors, record.paper.authors
    has_people = all(any(" " in name for name in each) for each in (own, names))
    if not has_people or any(map(INSTITUTION.search, (*own, *names))):
        return
    # The next version of a preprint may have more authors.
    may_grow = reference.abridged or is_preprint(reference.paper) or is_preprint(record.paper)
    places = _matched(own, names)
    matched = [place for place in places if place is not None]
    strange = len(own) - len(matched)
    left = any(" " in name and place not in places for place, name in enumerate(names))
    moved = matched != sorted(matched) and record.by_id and not (strange or left)
    missing = left and len(own) < MANY and not (strange or may_grow)
    if places[0] is None and 0 not in places:
        if len(own) == 1 or len(names) > 1:  # else a group, or a list cut short
            yield Finding("author", own[0], names[0], "")
    elif moved or missing or (strange and len(names) >= len(own)):
        yield Finding("authors", _listed(own), _listed(names), "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 8 else f"{', '.join(names[:6])} ... ({len(names)})"


def _matched(own: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """Return the place of each name in another list, the nearest that is free; None if it is not there."""
    free, places = {*range(len(names))}, list[int | None]()
    for place, name in enumerate(own):
        near = sorted(free, key=lambda other: abs(other - place))
        places.append(next((other for other in near if _same_person(name, names[other])), None))
        free -= {places[-1]}
    return places


def _same_person(first: str, second: str) -> bool:
    one, two = surname(first).lower(), surname(second).lower()
    words, others = ({*_words(name)} for name in (first, second))
    if not one or not two or one == two or one in others or two in words or len(words & others) > 1:
        return True
    alike = one.startswith(two) or two.startswith(one) or _ratio(one, two) >= SAME_WORD
    if alike and min(len(one), len(two)) > 3:
        return True
    return sorted(word[0] for word in words) == sorted(word[0] for word in others)  # J. Lee and Lee Jo


def _ratio(one: str, two: str) -> float:
    return SequenceMatcher(None, one, two).ratio()
