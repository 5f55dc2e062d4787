"""Works in files on this machine, matched with the papers of a library while they are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

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
MAX_CONFLICTS = 20
"""Works of a paper's title, but others, that are counted."""
_TITLE = Identity._fields.index("title")


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
    """The works of files that are papers of a library, with what each paper gets of them.

    They are the same as for `citerec add` (formats.same_work), but their years may be MAX_YEARS_APART. rows:
    papers that lack something; to others, only retractions are added.
    """

    def __init__(self, library: Library, rows: Rows) -> None:
        self._library, self._lacking = library, {*rows.tolist()}
        self._columns = [KeyIndex(column) for column in library.mapped.identities.T[: _TITLE + 1]]
        self._outcomes: dict[int, Outcome] = {}

    def read(self, works: Iterable[tuple[str, LibraryPaper]]) -> int:
        """Take over the works that are papers of the library. Return how many works there are."""
        count, works = 0, iter(works)
        while chunk := list(islice(works, CHUNK)):
            count += len(chunk)
            identities = Identities()
            for _, work in chunk:
                identities.add(work)
            numbers, pairs = identities.numbers(), dict[tuple[int, int], int]()
            for place, index in enumerate(self._columns):
                for number, row in index.matches(numbers[:, place]):
                    pairs.setdefault((number, row), place)
            for (number, row), place in sorted(pairs.items()):
                if row in self._lacking or chunk[number][1].retracted:
                    other = Identity(*numbers[number].tolist())
                    self._use(row, *chunk[number], other if place == _TITLE else None)
        return count

    def _use(self, row: int, source: str, work: LibraryPaper, identity: Identity | None) -> None:
        """Take over a work for a paper. identity: of a work that has its title, but none of its ids."""
        outcome, own = self.find(row, None), Identity(*self._library.mapped.identities[row].tolist())
        if identity is not None and not own.agrees(identity, MAX_YEARS_APART):
            if len(outcome.conflicts) < MAX_CONFLICTS:
                reason = f"{source}: same title, but another author, year or identifier"
                outcome = outcome.contradicted(reason)
        elif outcome.missing or not outcome.paper.retracted:
            is_taken = partial(self._columns[1].holds, besides=row)
            outcome = complete(outcome, [work_of(work)], False, source, is_taken)
        self._outcomes[row] = outcome

    def find(self, row: int, paper: LibraryPaper | None) -> Outcome:
        """Return a paper with what was found. paper: of this row, if it was read."""
        return self._outcomes.get(row) or Outcome(paper or self._library.paper(row), asked=True)

    @property
    def rows(self) -> Rows:
        """The rows of papers that lack something, and of others for which works were found."""
        return np.array(sorted(self._lacking | self._outcomes.keys()), np.int64)
