"""Works in files on this machine, matched with the papers of a library while they are read.

One kind is Retraction Watch's database as Crossref publishes it (https://doi.org/10.13003/c23rw1d9): CSV.
"""

from __future__ import annotations

import csv
import gzip
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import msgspec
import numpy as np

from citerec.base.errors import InputError, error_text
from citerec.base.files import expand_user, real_path
from citerec.formats.bibliography.paper import RETRACTED, LibraryPaper, make_paper, usable_paper
from citerec.formats.identifiers import clean_doi, find_year
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.same_work import MAX_YEARS_APART, Identity
from citerec.library import MANIFEST
from citerec.library.enrich.matching import Outcome, complete
from citerec.library.enrich.services import retraction, work_of
from citerec.library.papers.library import Library
from citerec.library.papers.merging import Identities, KeyIndex
from citerec.library.sources.readers import find_sources, read_source
from citerec.retrieval.arrays import Rows

CHUNK = 5_000
"""Works compared at a time."""
MAX_WORKS = 20
"""Maximum works kept per paper."""
_TITLE = Identity._fields.index("title")
_COLUMNS = (
    *("Title", "Author", "Journal", "OriginalPaperDate", "OriginalPaperDOI", "OriginalPaperPubMedID"),
    *("RetractionDate", "RetractionDOI", "RetractionNature"),
)
_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
TableRow = dict[str, str]
_WORK = msgspec.msgpack.Decoder(LibraryPaper)


def read_works(name: str, library: Path, on_bad: OnBadRecord) -> Iterator[tuple[str, LibraryPaper]]:
    """Yield the papers of files or of another library, each with the file's name. Raises InputError."""
    path = expand_user(name)
    if (path / MANIFEST).is_file():
        if real_path(path) == real_path(library):
            raise InputError(f"from={name}: is the library itself; name another one, or a file")
        other = Library.open(path)
        yield from ((path.name, paper) for paper in other.papers())
        return
    if is_retraction_watch(path):
        yield from ((path.name, paper) for paper in read_retraction_watch(path, on_bad))
        return
    for file in find_sources([name], "from"):
        yield from ((Path(file).name, paper) for paper in read_source(file, on_bad))


class DumpFinder:
    """The works of files that are papers of a library, by its rows, in a temporary file.

    They are the same as for `citerec add` (formats.same_work), but their years may be
    MAX_YEARS_APART. rows: papers that lack something; for others, only retractions are kept.
    """

    def __init__(self, library: Library, rows: Rows) -> None:
        self._library = library
        self._lacking = rows
        self._wanted = np.zeros(len(library), np.uint8)
        self._wanted[rows] = MAX_WORKS
        self._columns = [KeyIndex(column) for column in library.identities.T[: _TITLE + 1]]
        self._database = sqlite3.connect("", isolation_level=None)  # a file that is removed when closed
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE works (row INTEGER, source TEXT, contradicts INTEGER, work BLOB)"
        )

    def read(self, works: Iterable[tuple[str, LibraryPaper]]) -> int:
        """Keep the works that are papers of the library. Return how many works there are."""
        count, works = 0, iter(works)
        while chunk := list(islice(works, CHUNK)):
            count += len(chunk)
            self._database.executemany("INSERT INTO works VALUES (?, ?, ?, ?)", self._matches(chunk))
        self._database.execute("CREATE INDEX by_row ON works (row)")
        return count

    def _matches(self, chunk: list[tuple[str, LibraryPaper]]) -> Iterator[tuple[int, str, bool, bytes]]:
        identities = Identities()
        for _, paper in chunk:
            identities.add(paper)
        numbers, seen = identities.numbers(), set[tuple[int, int]]()
        for place, index in enumerate(self._columns):
            for number, row in index.matches(numbers[:, place]):
                told = chunk[number][1].retracted
                if not (self._wanted[row] or told) or (number, row) in seen:
                    continue
                seen.add((number, row))
                self._wanted[row] -= self._wanted[row] > 0
                own = Identity(*self._library.identities[row].tolist())
                contradicts = place == _TITLE and not own.agrees(
                    Identity(*numbers[number].tolist()), MAX_YEARS_APART
                )
                source, paper = chunk[number]
                yield row, source, contradicts, msgspec.msgpack.encode(work_of(paper))

    def find(self, row: int, paper: LibraryPaper) -> Outcome:
        outcome, is_taken = Outcome(paper, asked=True), partial(self._columns[1].holds, besides=row)
        query = "SELECT source, contradicts, work FROM works WHERE row = ? ORDER BY rowid"
        for source, contradicts, content in self._database.execute(query, (row,)).fetchall():
            if contradicts:
                outcome = outcome.contradicted(
                    f"{source}: same title, but another author, year or identifier"
                )
            elif outcome.missing or not outcome.paper.retracted:
                outcome = complete(outcome, [_WORK.decode(content)], False, source, is_taken)
        return outcome

    @property
    def rows(self) -> Rows:
        """The rows of papers that lack something, and of others that works were kept for."""
        others = [row for (row,) in self._database.execute("SELECT DISTINCT row FROM works")]
        return np.union1d(self._lacking, np.array(others, np.int64))


# Retraction Watch.


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
    if not path.is_file() or not path.name.lower().endswith((".csv", ".csv.gz")):
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
