"""When a work is the paper that was asked about, and what it fills in.

Found by an identifier, a work is the paper if their titles are alike; found by title, if the titles have the
same letters and digits, the first authors the same surname, and the years are at most one apart. Nothing that
the paper has is changed. Works in files on this machine are matched while they are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from citerec.base.errors import InputError
from citerec.base.files import expand_user, real_path
from citerec.formats.bibliography.paper import RETRACTED, SHORTEST_ABSTRACT, LibraryPaper
from citerec.formats.bibliography.reading.retraction_watch import is_retraction_watch, read_retraction_watch
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.letters import normalise_title
from citerec.formats.same_work import Identity, similar_titles
from citerec.library import MANIFEST
from citerec.library.enrich.services import TITLE, Lookup, Service, identifiers, work_of
from citerec.library.papers.library import Library
from citerec.library.papers.merging import KeyIndex, identities_of
from citerec.library.sources.finding import find_sources
from citerec.library.sources.readers import read_source
from citerec.retrieval.arrays import Rows

FIELDS = ("abstract", "doi", "year", "venue", "authors")
"""What is filled in."""


@dataclass(frozen=True)
class Outcome:
    """A paper with what was found. filled: source by field. conflicts: works that contradict it, and how."""

    paper: LibraryPaper
    known: bool = False
    """Whether a work is the paper, even one that fills nothing."""
    asked: bool = False
    """Whether there was anything to ask by."""
    unanswered: bool = False
    """Whether a service has not answered yet."""
    checked: tuple[str, ...] = ()
    """Services that tell retractions and have answered."""
    filled: dict[str, str] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        return [name for name in FIELDS if not getattr(self.paper, name)]

    @property
    def status(self) -> str:
        """completed, known (but nothing to fill in), in conflict, unanswered, not found or not asked."""
        if self.filled:
            return "completed"
        if self.known:
            return "known"
        if self.conflicts:
            return "in conflict"
        return "unanswered" if self.unanswered else "not found" if self.asked else "not asked"

    def contradicted(self, *reasons: str) -> Outcome:
        return replace(self, conflicts=(*self.conflicts, *reasons))


def lookups_of(paper: LibraryPaper, service: Service) -> list[Lookup]:
    """Return what to ask a service about a paper: its identifiers, or its title if it has none at all.

    A title needs the first author and the year, since it says nothing without them.
    """
    values, lookups = identifiers(paper), list[Lookup]()
    first = paper.surname()
    if any(values.values()):
        lookups = [Lookup(kind, values[kind]) for kind in service.kinds if values[kind]]
    elif paper.title and first and paper.year:
        lookups = [Lookup(TITLE, paper.title, first, paper.year)]
    return [lookup for lookup in lookups if service.accepts(lookup)]


def contradiction(paper: LibraryPaper, work: LibraryPaper, by_title: bool) -> str:
    """Return why a work that was found is not the paper; empty if it is."""
    if not by_title:
        if paper.title and work.title and not similar_titles(paper.title, work.title):
            return f"another title: {work.title}"
        return ""
    if normalise_title(paper.title) != normalise_title(work.title):
        return f"another title: {work.title}"
    first = work.surname()
    if not first or normalise_title(first) != normalise_title(paper.surname()):
        return f"another first author: {first or 'unknown'}"
    if not work.year or not paper.year or abs(work.year - paper.year) > 1:
        return f"another year: {work.year or 'unknown'}"
    return ""


def complete(
    outcome: Outcome,
    works: Sequence[LibraryPaper],
    by_title: bool,
    source: str,
    is_taken: Callable[[str], bool],
) -> Outcome:
    """Fill gaps with the works that are the paper.

    is_taken: whether another paper of the library has a DOI. Of several works, those of the nearest year
    count; a DOI, year or venue on which they differ stays empty. Any retraction is believed.
    """
    reasons = [contradiction(outcome.paper, work, by_title) for work in works]
    same = [work for work, reason in zip(works, reasons, strict=True) if not reason]
    if not same:
        return outcome.contradicted(*(f"{source}: {reason}" for reason in reasons))
    apart = [abs(work.year - outcome.paper.year) if outcome.paper.year else 0 for work in same]
    same = [work for work, years in zip(same, apart, strict=True) if years == min(apart)]
    values: dict[str, Any] = {name: value for name in outcome.missing if (value := _agreed(name, same))}
    if "doi" in values and is_taken(values["doi"]):
        del values["doi"]
    filled = outcome.filled | dict.fromkeys(values, source)
    marks = tuple(f"{name}:{source}" for name in values)
    retracted = next((work.retracted for work in same if work.retracted), "")
    if retracted and not outcome.paper.retraction_mark:
        marks, filled = (*marks, f"{RETRACTED}:{retracted}"), filled | {RETRACTED: source}
    paper = outcome.paper._replace(**values, filled=(*outcome.paper.filled, *marks))
    return replace(outcome, paper=paper, known=True, filled=filled)


def _agreed(name: str, works: Sequence[LibraryPaper]) -> Any:
    """Return the value of a field that works give; empty if they differ, except in abstract and authors."""
    values = list(dict.fromkeys(value for work in works if (value := getattr(work, name))))
    if name == "abstract":
        values = [value for value in values if len(value) >= SHORTEST_ABSTRACT]
    if not values or (len(values) > 1 and name not in ("abstract", "authors")):
        return None
    return values[0]


# Works in files.

CHUNK = 5_000
"""Works compared at a time."""
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

    A work matches as in `citerec add`, or a year apart if all that otherwise agree are of one year.
    rows: papers that lack something; to others, only retractions are added.
    """

    def __init__(self, library: Library, rows: Rows) -> None:
        self._library, self._lacking = library, {*rows.tolist()}
        self._columns = [KeyIndex(column) for column in library.mapped.identities.T[: _TITLE + 1]]
        self._outcomes: dict[int, Outcome] = {}
        self._titled: dict[int, list[tuple[str, LibraryPaper, Identity]]] = {}  # without any of the ids

    def read(self, works: Iterable[tuple[str, LibraryPaper]]) -> int:
        """Take over the works that are papers of the library. Return how many works there are."""
        count, works = 0, iter(works)
        while chunk := list(islice(works, CHUNK)):
            count += len(chunk)
            numbers, pairs = identities_of(work for _, work in chunk), dict[tuple[int, int], int]()
            for place, index in enumerate(self._columns):
                for number, row in index.matches(numbers[:, place]):
                    pairs.setdefault((number, row), place)
            for (number, row), place in sorted(pairs.items()):
                if row in self._lacking or chunk[number][1].retracted:
                    if place == _TITLE:
                        other = Identity(*numbers[number].tolist())
                        self._titled.setdefault(row, []).append((*chunk[number], other))
                    else:
                        self._use(row, *chunk[number])
        for row, these in self._titled.items():
            own = Identity(*self._library.mapped.identities[row].tolist())
            titled = sorted(these, key=lambda work: abs(work[2].year - own.year))
            years = {other.year for _, _, other in titled if own.agrees(other, 9999)}
            same = [work for work in titled if own.agrees(work[2], int(len(years) == 1))]
            if same:
                self._use(row, same[0][0], *(work for _, work, _ in same))
            else:
                reason = f"{titled[0][0]}: same title, but another author, year or identifier"
                self._outcomes[row] = self.find(row, None).contradicted(reason)
        return count

    def _use(self, row: int, source: str, *works: LibraryPaper) -> None:
        """Take over works for a paper."""
        outcome = self.find(row, None)
        if outcome.missing or not outcome.paper.retracted:
            is_taken = partial(self._columns[1].holds, besides=row)
            outcome = complete(outcome, [*map(work_of, works)], False, source, is_taken)
        self._outcomes[row] = outcome

    def find(self, row: int, paper: LibraryPaper | None) -> Outcome:
        """Return a paper with what was found. paper: of this row, if it was read."""
        return self._outcomes.get(row) or Outcome(paper or self._library.paper(row), asked=True)

    @property
    def rows(self) -> Rows:
        """The rows of papers that lack something, and of others for which works were found."""
        return np.array(sorted(self._lacking | self._outcomes.keys()), np.int64)
