"""Retraction Watch's database as Crossref publishes it (https://doi.org/10.13003/c23rw1d9): a CSV file."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from citerec.base.errors import InputError, error_text
from citerec.base.files import open_bytes
from citerec.formats.bibliography.paper import RETRACTED, LibraryPaper, make_paper, retraction, usable_paper
from citerec.formats.identifiers import clean_doi, find_year
from citerec.formats.json_lines import OnBadRecord

_COLUMNS = (
    *("Title", "Author", "Journal", "OriginalPaperDate", "OriginalPaperDOI", "OriginalPaperPubMedID"),
    *("RetractionDate", "RetractionDOI", "RetractionNature"),
)
_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
TableRow = dict[str, str]


def read_retraction_watch(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers that were retracted, and not reinstated later, marked as such.

    Expressions of concern and corrections are left out. Raises InputError for another file.
    """
    rows = [(f"{path}, record {number}", row) for number, row in enumerate(_rows(path), 1)]
    latest: dict[str, tuple[str, str]] = {}
    for _, row in rows:
        name, nature = _name(row), row["RetractionNature"].lower()
        if name and nature in ("retraction", "reinstatement"):
            latest[name] = max(latest.get(name, ("", "")), (_date(row["RetractionDate"]), nature))
    for where, row in rows:
        nature = row["RetractionNature"].lower()
        if nature == "retraction" and latest.get(_name(row)) == (_date(row["RetractionDate"]), nature):
            yield from usable_paper(partial(_paper, row), where, on_bad)


def is_retraction_watch(path: Path) -> bool:
    """True for a table that lists retractions, plain or gzipped; others are tables of papers."""
    if not os.path.isfile(path) or not path.name.lower().endswith((".csv", ".csv.gz")):
        return False
    try:
        with open_bytes(path) as (file, _):
            return b"RetractionNature" in file.readline(1 << 16)
    except InputError:
        return False  # then reading it as a source says what is wrong


def _rows(path: Path) -> Iterator[TableRow]:
    try:
        with open_bytes(path) as (file, _):
            reader = csv.DictReader(io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline=""))
            for name in _COLUMNS:
                if name not in (reader.fieldnames or ()):
                    reason = "is not Retraction Watch's CSV file, as it has no column"
                    raise InputError(f"from={path}: {reason} {name}")
            yield from ({name: (row[name] or "").strip() for name in _COLUMNS} for row in reader)
    except csv.Error as error:
        raise InputError(f"from={path}: cannot be read ({error_text(error)})") from None


def _name(row: TableRow) -> str:
    """Return what a paper is known by: its DOI, PubMed id or title."""
    return clean_doi(row["OriginalPaperDOI"]) or _pmid(row) or row["Title"].lower()


def _pmid(row: TableRow) -> str:
    pmid = row["OriginalPaperPubMedID"]
    return pmid if pmid.isdecimal() and pmid.strip("0") else ""


def _date(text: str) -> str:
    """Return a date as ISO 8601 writes it; "" if there is none.

    >>> _date("2/6/2010 0:00")
    '2010-02-06'
    """
    match = _DATE.match(text)
    return f"{match[3]}-{int(match[1]):02}-{int(match[2]):02}" if match else ""


def _paper(row: TableRow) -> LibraryPaper:
    pmid = _pmid(row)
    notice = retraction("Retraction Watch", _date(row["RetractionDate"]), row["RetractionDOI"])
    return make_paper(
        title=row["Title"],
        authors=row["Author"].split(";"),
        year=find_year(_date(row["OriginalPaperDate"])),
        venue=row["Journal"],
        doi=row["OriginalPaperDOI"],
        url=f"https://pubmed.ncbi.nlm.nih.gov/{pmid}/" if pmid else "",
        filled=(f"{RETRACTED}:{notice}",),
    )
