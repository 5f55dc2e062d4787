"""Works in files on this machine, matched with the papers of a library while they are read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from citerec.base.errors import InputError
from citerec.base.files import expand_user, real_path
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.retraction_watch import is_retraction_watch, read_retraction_watch
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.same_work import MAX_YEARS_APART, Identity
from citerec.library import MANIFEST
from citerec.library.enrich.matching import Outcome, complete
from citerec.library.enrich.services import work_of
from citerec.library.papers.library import Library
from citerec.library.papers.merging import Identities, KeyIndex
from citerec.library.sources.finding import find_sources
from citerec.library.sources.readers import read_source
from citerec.retrieval.arrays import Rows

CHUNK = 5_000
"""Works compared at a time."""
MAX_WORKS = 20
"""Maximum works kept per paper."""
_TITLE = Identity._fields.index("title")
_WORK = msgspec.msgpack.Decoder(LibraryPaper)


def read_works(name: str, library: Path, on_bad: OnBadRecord) -> Iterator[tuple[str, LibraryPaper]]:
    """Yield the papers of files or of another library, each with the file's name. Raises InputError."""
    path = expand_user(name)
    if os.path.isfile(path / MANIFEST):
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
