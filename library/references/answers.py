"""The evidence about an entry put together: confirmed, contradicted or unknown, and the status of its work.

Records with an entry's identifiers always count; of those with its title, the ones that agree, or else the
one that differs least. An entry that no record resembles is "unknown": not being found proves nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple, Protocol

import numpy as np

from citerec.base.errors import InputError
from citerec.base.files import file_stamp
from citerec.formats.bibliography.paper import PREPRINT_VENUE, LibraryPaper, is_preprint, is_published
from citerec.formats.identifiers import clean_doi
from citerec.formats.letters import LONG_TITLE, fold, normalise_title
from citerec.formats.names import INSTITUTION, surname
from citerec.formats.same_work import identity
from citerec.library.papers.library import Library
from citerec.library.references.entry import (
    PLACEHOLDER_ID,
    Finding,
    Reference,
    are_apart,
    check_entry,
    find_series,
    same_venue,
)
from citerec.library.settings import SERVICES

ANSWERS = CONFIRMED, CONTRADICTED, UNKNOWN = "confirmed", "contradicted", "unknown"
_STAMP = re.compile(r"arXiv:(\d{4}\.\d{4,5})(?:v\d+)?\s+\[")
_PAGE_DOI = re.compile(r"(?:doi\.org/|\bdoi:?\s*)(10\.\d{4,9}/\S+)", re.IGNORECASE)
SAME_WORD, SAME_TITLE = 0.75, 0.7
"""Least similarity (difflib) of two spellings of a word or surname, and of the words of two titles."""
MANY, LISTED, TELLING = 10, 200, 5
"""Authors after whom a list may end; characters of a list to show; words of a title that tells much."""
_WORD = re.compile(r"[^\W_]+")
_NUMBERS = re.compile(r"\d+|\b[ivx]+\b|\bpart\b")
"""What differs in the titles of parts of a work."""
_SUBTITLE = re.compile(r"[:.?!–—(]| - ")
_SMALL = frozenset(("", "a", "an", "the", "and", "of", "s"))
_FOREIGN = re.compile(r"(?i)\b(?:d[eiu]|l[ae]s?|el|los|de[lrns]|das|und|et|von|il|och)\b|[^\0-\x7f]")
"""Titles in languages other than English; a translation of one is not another title."""


class Record(NamedTuple):
    """A record beside an entry. where: who says so; by_id: found by DOI or arXiv id, not title or authors;
    confirms: it is somebody else's word, not only another entry of the same person."""

    paper: LibraryPaper
    where: str
    by_id: bool = False
    confirms: bool = True


class Source(Protocol):
    """Records of works: of an index (references.table), a library or services."""

    def records(self, paper: LibraryPaper) -> Iterator[Record]:
        """Yield what may be a paper's work: by its identifiers, title or authors."""


class LibrarySource:
    """The records of a library. Those that services filled in confirm; what users wrote is only compared."""

    def __init__(self, library: Library, papers: Iterable[LibraryPaper]) -> None:
        """papers: those that will be asked about."""
        self._papers, self._name = library.related(papers), library.path.name

    def records(self, paper: LibraryPaper) -> Iterator[Record]:
        own = np.array(identity(paper), np.uint64)[1:4]  # DOI, arXiv id, title
        same = (self._papers.identities[:, 1:4] == own) & (own != 0)
        for row in np.flatnonzero(same.any(axis=1)).tolist():
            work, by_id = self._papers.paper(row), bool(same[row, :2].any())
            told = sorted({mark.partition(":")[2] for mark in work.filled} & {*SERVICES})
            yield Record(work, ", ".join((f"library {self._name}", *told)), by_id, confirms=bool(told))


class Status(NamedTuple):
    """What is to be known of a work. kind: retracted, preprint (that was published), missing_doi (it has one)
    or duplicate (another entry is of the same work, or has its identifier). where: who says so, if others."""

    kind: str
    text: str
    where: str = ""

    @property
    def said(self) -> str:
        return f"{self.text} ({self.where})" if self.where else self.text


@dataclass(frozen=True)
class Answer:
    """What the evidence says of an entry. where: who confirms it."""

    key: str
    findings: Sequence[Finding]
    status: Sequence[Status] = ()
    where: str = ""

    @property
    def answer(self) -> str:
        return CONTRADICTED if self.findings else CONFIRMED if self.where else UNKNOWN

    @property
    def said(self) -> str:
        return "; ".join(finding.text for finding in self.findings) or self.where

    @property
    def text(self) -> str:
        told = ": ".join(filter(None, (self.answer, self.said)))
        return "; ".join((told, *(status.said for status in self.status)))

    def as_json(self) -> dict[str, Any]:
        findings, status = ([part._asdict() for part in parts] for parts in (self.findings, self.status))
        told = {"key": self.key, "answer": self.answer, "findings": findings}
        return told | {"confirmed": self.where, "status": status}


def judge(
    paper: LibraryPaper,
    sources: Iterable[Source] = (),
    today: date | None = None,
    on_note: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Return what an entry and other records say of it. on_note: is told of PDFs that cannot be read."""
    reference = Reference(paper)
    findings = check_entry(reference, today or date.today())
    records = (record for source in sources for record in source.records(paper))
    compared = [(each, compare(reference, each)) for each in records if each.confirms or each.paper != paper]
    same = [(record, comparison) for record, comparison in compared if comparison.same]
    agreeing = [record for record, comparison in same if comparison.agrees]
    differing = [comparison.findings for record, comparison in compared if record.by_id]
    if not any(differing) and not agreeing:
        differing = sorted((comparison.findings for _, comparison in same), key=len)[:1]
    findings += chain.from_iterable(differing)
    where = next((record.where for record in agreeing if record.confirms), "")
    for file in paper.files if not where else ():
        if os.path.isfile(file):  # False for names that cannot be, too
            try:
                more, confirmed = _compare_pdf(paper, Path(file))
                findings, where = findings + more, where or confirmed
            except InputError as error:
                on_note(f"{file}: {error}")
    by_field = {finding.field: finding for finding in reversed(findings)}
    return Answer(paper.key, [*by_field.values()][::-1], [*_status(paper, same)], where)


def judge_by_library(papers: Sequence[LibraryPaper], library: Library | None = None) -> list[Answer]:
    """Return what the entries of papers and the records of a library say of them."""
    sources = [LibrarySource(library, papers)] if library is not None else []
    return [judge(paper, sources) for paper in papers]


def _status(paper: LibraryPaper, same: Sequence[tuple[Record, Comparison]]) -> Iterator[Status]:
    if paper.retracted:
        yield Status("retracted", "retracted", paper.retracted)
    elif told := next((record for record, _ in same if record.paper.retracted), None):
        yield Status("retracted", "retracted", f"{told.paper.retracted}; {told.where}")
    sound = [record for record, comparison in same if not comparison.findings]
    for record in sound if is_preprint(paper) else ():
        if is_published(work := record.paper):
            details = filter(None, (work.venue, str(work.year or ""), work.doi and f"doi:{work.doi}"))
            yield Status("preprint", f"published since: {', '.join(details)}", record.where)
            return
    dois = {record.paper.doi: record.where for record in sound if record.paper.doi}
    if not paper.doi and len(dois) == 1:
        yield from (Status("missing_doi", f"has doi:{doi}", where) for doi, where in dois.items())


def _compare_pdf(paper: LibraryPaper, file: Path) -> tuple[list[Finding], str]:
    """Compare an entry with the first page of its own PDF; return what differs, and who confirms it or "".

    A title that is not there says nothing: the page may be a cover, or its letters pictures.
    """
    page = _first_page(file, *file_stamp(file))
    title, findings = normalise_title(paper.title), list[Finding]()
    if len(title) < LONG_TITLE or title not in normalise_title(page):
        return [], ""
    where = f"first page of {file.name}"
    dois = {clean_doi(doi) for doi in _PAGE_DOI.findall(page) if not PLACEHOLDER_ID.search(doi)}
    told = {"arxiv": {*_STAMP.findall(page)}, "doi": dois}
    for name, ids in told.items():
        own, other = getattr(paper, name), min(ids, default="")
        if own and len(ids) == 1 and are_apart(own, other):
            findings.append(Finding(name, own, other, where))
    first = paper.surname().lower()
    return findings, where if not findings and first and first in fold(page).lower() else ""


@lru_cache(1 << 10)
def _first_page(file: Path, *_stamp: int) -> str:
    from citerec.formats.articles.pdf import read_first_page  # PDFium is loaded for those who have PDFs

    return read_first_page(file)


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
    authors = [*_authors(reference, record)]
    years = abs(own.year - other.year) if own.year and other.year else 0
    venue = same_venue(own.venue, other.venue)
    title = [Finding("title", own.title, other.title, where)]
    if change == "other":
        translated = bool(_FOREIGN.search(own.title)) != bool(_FOREIGN.search(other.title))
        told = record.by_id and reference.is_article and not (versions or translated)
        return none._replace(findings=title if told else [])
    if not record.by_id:
        numbered = _NUMBERS.findall(own.title.lower()) != _NUMBERS.findall(other.title.lower())
        nearly = venue and own.authors and not (authors or years or numbered)
        strange = any(finding.field == "author" for finding in authors)
        unsure = change == "words" or strange
        if (change == "words" and not nearly) or (unsure and (years > 1 or len(_words(own.title)) < TELLING)):
            return none
    if not reference.is_article:
        return Comparison([], not authors, not change and not authors and years <= 1)
    findings = title if change == "words" and not versions else []
    # Other versions may have other authors, and the work of an editor another year.
    findings += [finding for finding in authors if finding.field == "author" or not (versions or years > 1)]
    if years > 1 and not (versions or is_preprint(own)) and (venue or record.by_id):
        findings.append(Finding("year", str(own.year), str(other.year), where))
    # What was submitted to ICLR, which shows all submissions, may have appeared elsewhere.
    sent = find_series(other.venue).name == "ICLR" and {*reference.fields} & {"pages", "volume"}
    if venue is False and not sent:
        findings.append(Finding("venue", own.venue, other.venue, where))
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
    """
    shorter, longer = sorted(map(normalise_title, (first, second)), key=len)
    starts = (title[: mark.start()] for title in (first, second) for mark in _SUBTITLE.finditer(title))
    if shorter == longer or (longer.startswith(shorter) and shorter in map(normalise_title, starts)):
        return ""
    one, two = _words(first), _words(second)
    matcher = SequenceMatcher(None, one, two, autojunk=False)
    changes = [("".join(one[a:b]), "".join(two[c:d])) for _, a, b, c, d in matcher.get_opcodes()]
    if all({before, after} <= _SMALL or _alike(before, after) for before, after in changes):
        return "style"
    return "words" if matcher.ratio() >= SAME_TITLE else "other"


def _alike(one: str, two: str) -> bool:
    return bool(get_close_matches(one, [two], 1, SAME_WORD))


def _words(title: str) -> list[str]:
    return _WORD.findall(fold(title).lower())


def _authors(reference: Reference, record: Record) -> Iterator[Finding]:
    """Yield how lists of authors differ: field author (the first) or authors."""
    own, names = reference.paper.authors, record.paper.authors
    has_people = all(any(" " in name for name in each) for each in (own, names))
    if not has_people or any(map(INSTITUTION.search, (*own, *names))):
        return
    # "And others" stands for more, and the next version of a preprint may have more authors.
    others = re.search(r"(?i)\bet\.? al\b|\bothers?\b|\.\.\.", reference.fields.get("author", ""))
    may_grow = others or is_preprint(reference.paper) or is_preprint(record.paper)
    places = _matched(own, names)
    matched = [place for place in places if place is not None]
    strange = len(own) - len(matched)
    left = any(" " in name and place not in places for place, name in enumerate(names))
    moved = matched != sorted(matched) and record.by_id and not (strange or left)
    missing = left and len(own) < MANY and not (strange or may_grow)
    if places[0] is None and 0 not in places:
        if len(own) == 1 or len(names) > 1:  # else a group, or a list cut short
            yield Finding("author", own[0], names[0], record.where)
    elif moved or missing or (strange and len(names) >= len(own)):
        first, second = (shorten(", ".join(each), LISTED) for each in (own, names))
        yield Finding("authors", first, second, record.where)


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
    if one in others or two in words or len(words & others) > 1:
        return True
    if min(len(one), len(two)) > 3 and (one.startswith(two) or two.startswith(one) or _alike(one, two)):
        return True
    return sorted(word[0] for word in words) == sorted(word[0] for word in others)  # J. Lee and Lee Jo
