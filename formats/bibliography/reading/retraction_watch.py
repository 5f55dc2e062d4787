"""Retraction Watch's database as Crossref publishes it (https://doi.org/10.13003/c23rw1d9): a CSV file."""

from __future__ import annotations

import csv
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from citerec.base.errors import InputError, error_text
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
    latest: dict[str, tuple[str, str]] = {}
    for row in _rows(path):
        if (nature := _nature(row)) and (name := _name(row)):
            latest[name] = max(latest.get(name, ("", "")), (_date(row["RetractionDate"]), nature))
    for number, row in enumerate(_rows(path), 1):
        latest_of_row = _date(row["RetractionDate"]), "retraction"
        if _nature(row) == "retraction" and latest.get(_name(row)) == latest_of_row:
            yield from usable_paper(partial(_paper, row), f"{path}, record {number}", on_bad)


def is_retraction_watch(path: Path) -> bool:
    """True for a table that tells retractions, plain or gzipped; others are tables of papers."""
    if not os.path.isfile(path) or not path.name.lower().endswith((".csv", ".csv.gz")):
        return False
    try:
        with _open(path) as file:
            return "RetractionNature" in next(csv.reader(file), [])
    except (OSError, EOFError, zlib.error, csv.Error):
        return False  # then reading it as a source says what is wrong


def _rows(path: Path) -> Iterator[TableRow]:
    try:
        with _open(path) as file:
            reader = csv.DictReader(file)
            for name in _COLUMNS:
                if name not in (reader.fieldnames or ()):
                    raise InputError(
                        f"from={path}: is not Retraction Watch's CSV file, as it has no column {name}"
                    )
            for row in reader:
                yield {name: row[name] or "" for name in _COLUMNS}
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise InputError(f"from={path}: cannot be read ({error_text(error)})") from None


def _open(path: Path) -> TextIO:
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    file: TextIO = opened(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return file


def _nature(row: TableRow) -> str:
    nature = row["RetractionNature"].strip().lower()
    return nature if nature in ("retraction", "reinstatement") else ""


def _name(row: TableRow) -> str:
    """Return what a paper is known by: its DOI, PubMed id or title."""
    return clean_doi(row["OriginalPaperDOI"]) or _pmid(row) or row["Title"].strip().lower()


def _pmid(row: TableRow) -> str:
    pmid = row["OriginalPaperPubMedID"].strip()
    return pmid if pmid.isdecimal() and pmid.strip("0") else ""


def _date(text: str) -> str:
    """Return a date as ISO 8601 writes it; "" if there is none.

    >>> _date("2/6/2010 0:00")
    '2010-02-06'
    """
    match = _DATE.match(text.strip())
    return f"{match[3]}-{int(match[1]):02}-{int(match[2]):02}" if match else ""


def _paper(row: TableRow) -> LibraryPaper:
    pmid = _pmid(row)
    told = retraction("Retraction Watch", _date(row["RetractionDate"]), row["RetractionDOI"])
    return make_paper(
        title=row["Title"],
        authors=row["Author"].split(";"),
        year=find_year(_date(row["OriginalPaperDate"])),
        venue=row["Journal"],
        doi=row["OriginalPaperDOI"],
        url=f"https://pubmed.ncbi.nlm.nih.gov/{pmid}/" if pmid else "",
        filled=(f"{RETRACTED}:{told}",),
    )
