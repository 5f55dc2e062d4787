"""The evidence about an entry put together: confirmed, contradicted or unknown, and the status of its work.

What an entry's identifiers belong to always counts; of records with its title, those that agree, else the one
that differs least. "unknown" is said of an entry that no record is like: that it is not found tells nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from citerec.base.errors import InputError
from citerec.base.files import file_stamp
from citerec.formats.bibliography.paper import LibraryPaper, is_preprint, is_published
from citerec.formats.identifiers import clean_doi
from citerec.formats.letters import LONG_TITLE, fold, normalise_title
from citerec.formats.names import surname
from citerec.formats.same_work import identity
from citerec.library.papers.library import Library
from citerec.library.references.compare import Comparison, Record, compare
from citerec.library.references.entry import Finding, Reference, are_apart, check_entry
from citerec.library.settings import SERVICES

ANSWERS = CONFIRMED, CONTRADICTED, UNKNOWN = "confirmed", "contradicted", "unknown"
_STAMP = re.compile(r"arXiv:(\d{4}\.\d{4,5})(?:v\d+)?\s+\[")
_PAGE_DOI = re.compile(r"(?:doi\.org/|\bdoi:?\s*)(10\.\d{4,9}/\S+)", re.IGNORECASE)


class Source(Protocol):
    """Records of works: of an index (references.table), a library or services."""

    def records(self, paper: LibraryPaper) -> Iterator[Record]:
        """Yield what may be a paper's work: by its identifiers, title or authors."""


class LibrarySource:
    """The records of a library. They confirm what a service has told; what users wrote is compared only."""

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
        parts = [f"{self.answer}: {self.said}" if self.said else self.answer]
        return "; ".join(parts + [status.said for status in self.status])

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
    """Return what an entry and other records say of it.

    on_note: is told of PDFs that cannot be read.
    """
    reference = Reference(paper)
    findings = check_entry(reference, today or date.today())
    records = (record for source in sources for record in source.records(paper))
    others = (record for record in records if record.confirms or record.paper != paper)
    compared = [(record, compare(reference, record)) for record in others]
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
        if is_published(work := record.paper) and not is_preprint(work):
            details = filter(None, (work.venue, str(work.year or ""), work.doi and f"doi:{work.doi}"))
            yield Status("preprint", f"published since: {', '.join(details)}", record.where)
            return
    dois = {record.paper.doi: record.where for record in sound if record.paper.doi}
    if not paper.doi and len(dois) == 1:
        [(doi, where)] = dois.items()
        yield Status("missing_doi", f"has doi:{doi}", where)


def _compare_pdf(paper: LibraryPaper, file: Path) -> tuple[list[Finding], str]:
    """Compare an entry with the first page of its own PDF; return what differs, and who confirms it or "".

    A title that is not there says nothing: the page may be a cover, or its letters pictures.
    """
    page = _first_page(file, *file_stamp(file))
    title, findings = normalise_title(paper.title), list[Finding]()
    if len(title) < LONG_TITLE or title not in normalise_title(page):
        return [], ""
    where = f"first page of {file.name}"
    stamp, dois = _STAMP.search(page), {clean_doi(doi) for doi in _PAGE_DOI.findall(page)}
    if stamp and paper.arxiv and stamp[1] != paper.arxiv:
        findings.append(Finding("arxiv", paper.arxiv, stamp[1], where))
    if len(dois) == 1 and paper.doi and are_apart(doi := dois.pop(), paper.doi):
        findings.append(Finding("doi", paper.doi, doi, where))
    first = surname(paper.authors[0]).lower() if paper.authors else ""
    return findings, where if not findings and first and first in fold(page).lower() else ""


@lru_cache(1 << 10)
def _first_page(file: Path, *_stamp: int) -> str:
    from citerec.formats.articles.pdf import read_first_page  # PDFium is loaded for those who have PDFs

    return read_first_page(file)
