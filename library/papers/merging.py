"""Which of many records are the same paper (formats.same_work, over arrays), and merging them.

The first record leads and later ones fill its gaps; the longest abstract and author list win; collections and
tags are united. Records are stored in a temporary file.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import numpy as np
from numpy.typing import NDArray

from citerec.base.progress import count_progress
from citerec.formats.bibliography.paper import LibraryPaper, fill_again, merge_records
from citerec.formats.bibliography.references import merge_entries
from citerec.formats.same_work import (
    MAX_SAME_KEY,
    Identity,
    first_records,
    hash_text,
    identity,
    is_apart,
    similar_titles,
)
from citerec.library.papers.folder import Manifest
from citerec.library.papers.storage import Storage


class KeyIndex:
    """The places [P] of hashed identifiers, one column of identities."""

    def __init__(self, column: NDArray[np.uint64]) -> None:
        self._order = np.argsort(column, kind="stable")
        self._keys = column[self._order]

    def matches(self, keys: NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
        """Yield (index of a key, place in the column) for keys [N] that are in the column."""
        starts, ends = (np.searchsorted(self._keys, keys, side) for side in ("left", "right"))
        for number in np.flatnonzero((ends > starts) & (keys != 0)).tolist():
            for place in self._order[starts[number] : ends[number]][:MAX_SAME_KEY].tolist():
                yield number, place

    def holds(self, text: str, besides: int) -> bool:
        """True if the identifier is in the column, at another place than `besides`."""
        return any(place != besides for _, place in self.matches(np.array([hash_text(text)], np.uint64)))


def identities_of(papers: Iterable[LibraryPaper]) -> NDArray[np.uint64]:
    """Return the identities of papers [N, F]."""
    return _rows_of(array("Q", chain.from_iterable(map(identity, papers))))


def _rows_of(numbers: array[int]) -> NDArray[np.uint64]:
    return np.frombuffer(numbers, np.uint64).reshape(-1, len(Identity._fields))


def find_leaders(existing: NDArray[np.uint64], added: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return, for each record, the first record of the same paper [N]. existing, added: identities of papers
    known to be distinct [B, F], and of others, which follow them."""
    distinct = len(existing)
    leaders = np.arange(distinct + len(added))
    shared = np.zeros(len(leaders), np.bool_)
    for known_keys, new_keys in zip(existing.T[:4], added.T[:4], strict=True):
        values, inverse, counts = np.unique(new_keys, return_inverse=True, return_counts=True)
        if not len(values):
            continue
        place = np.searchsorted(values, known_keys).clip(max=len(values) - 1)
        same = np.flatnonzero((values[place] == known_keys) & (known_keys != 0))
        shared[same] = True
        counts[place[same]] += 1
        shared[distinct:] |= (counts[inverse] > 1) & (new_keys != 0)
    rows = np.flatnonzero(shared)
    distinct = int(np.count_nonzero(rows < len(existing)))
    records = np.concatenate([existing[rows[:distinct]], added[rows[distinct:] - len(existing)]])
    leaders[rows] = rows[first_records((Identity(*record) for record in records.tolist()), distinct)]
    return leaders


_DECODER = msgspec.msgpack.Decoder(LibraryPaper)


class Deduplicator:
    """Collects papers from all sources in a temporary file and merges duplicate records.

    folder: for the file. library: the library that the papers are added to, if any. former: a library that
    they replace; what was filled in there fills the gaps of the same papers. separate: ids and keys of
    records that are not merged with others, or ALL. Call `add` for each record, then `finish`.
    """

    def __init__(
        self,
        folder: Path,
        library: Storage | None = None,
        former: Storage | None = None,
        separate: Collection[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115 (closed by __exit__)
        except OSError as error:
            error.filename = None  # no name that a user knows
            raise
        self._ends, self._separate = array("q", [0]), frozenset(separate)
        self._numbers = array("Q")
        self._library, self._existing = library, len(library) if library else 0
        self.former = former

    def __enter__(self) -> Deduplicator:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _existing_identities(self) -> NDArray[np.uint64]:
        """Return the identities of the papers of the library; records kept apart match only equal ones."""
        if (library := self._library) is None:
            return identities_of(())
        identities, papers = library.identities, library.papers() if self._separate else ()
        changed = {row: identity(paper, True) for row, paper in papers if is_apart(paper, self._separate)}
        if changed:
            identities = np.array(identities)
            identities[list(changed)] = np.array(list(changed.values()), np.uint64)
        return identities

    def add(self, paper: LibraryPaper) -> None:
        if self.former is not None and (row := self.former_row(paper)) is not None:
            paper = fill_again(paper, self.former.paper(row))
        self._numbers.extend(identity(paper, is_apart(paper, self._separate)))
        line = msgspec.msgpack.encode(paper)
        self._file.write(line)
        self._ends.append(self._ends[-1] + len(line))

    def __len__(self) -> int:
        """Return the number of records added."""
        return len(self._ends) - 1

    def finish(self) -> None:
        """Find duplicates. Call it once, after the last `add`."""
        leaders = find_leaders(self._existing_identities(), _rows_of(self._numbers))
        others = np.flatnonzero(leaders != np.arange(len(leaders)))
        self.duplicates = len(others)
        """Number of records that describe the same paper as an earlier one."""
        self._members: dict[int, list[int]] = {}
        for row in others.tolist():
            self._members.setdefault(int(leaders[row]), []).append(row)
        self._is_leader = leaders[self._existing :] == np.arange(self._existing, len(leaders))
        self.replaced = np.array([row for row, _ in self._completed()], np.int64)
        """Library rows whose papers the records complete; `papers` yields the completed papers."""
        self.count = len(self.replaced) + int(self._is_leader.sum())
        """Number of papers that `papers` yields."""

    def _completed(self) -> Iterator[tuple[int, LibraryPaper]]:
        for row in sorted(row for row in self._members if row < self._existing):
            assert self._library is not None
            paper = self._library.paper(row)
            records = [paper, *map(self._read, self._members[row])]
            merged = merge_entries(merge_records(records), records)
            if merged != paper:
                yield row, merged

    def merged(self) -> Iterator[tuple[LibraryPaper, LibraryPaper]]:
        """Yield each record that was merged, with the one it was merged into, in the order of the latter."""
        for row in sorted(self._members):
            paper = self._library.paper(row) if self._library and row < self._existing else self._read(row)
            for other in self._members[row]:
                yield self._read(other), paper

    def papers(self) -> Iterator[LibraryPaper]:
        """Yield completed papers of the library, then new papers. If an id is taken, the new one is ID-2."""
        rows = (np.flatnonzero(self._is_leader) + self._existing).tolist()
        taken: Callable[[str], bool] = lambda _: False  # noqa: E731
        if library := self._library:
            corpus, ids = library.corpus, {self._read(row).id for row in rows}
            if len(ids) < len(rows) or any(id in ids for id in corpus.paper_ids):
                taken = lambda id: corpus.has_paper(id) or (id not in ids and library.has_id(id))  # noqa: E731
        seen: set[str] = set()
        for _, paper in self._completed():
            yield paper
        for row in rows:
            records = [self._read(row), *map(self._read, self._members.get(row, ()))]
            paper = merge_entries(merge_records(records), records)
            id, suffix = paper.id, 2
            while id in seen or taken(id):
                id, suffix = f"{paper.id}-{suffix}", suffix + 1
            seen.add(id)
            yield paper if id == paper.id else paper._replace(id=id)

    def papers_with_progress(self) -> Iterator[LibraryPaper]:
        """Yield what `papers` does, with a progress bar on terminals."""
        with count_progress("papers", self.count) as advance:
            for paper in self.papers():
                yield paper
                advance(1)

    def removed_as(self, manifest: Manifest) -> dict[int, str]:
        """Return the ids under which the user removed some of `papers`, by their places: papers of a removed
        work that the former library lacks, and those with a removed id whose work is not known."""
        works, away, numbers = manifest.removed_works, dict[int, str](), array("Q")
        former = self.former.identities if self.former else identities_of(())
        known = np.concatenate([former, _rows_of(array("Q", chain.from_iterable(works.values())))])
        unknown, ids = {*manifest.removed} - works.keys(), [*works]
        for place, paper in enumerate(self.papers() if manifest.removed else ()):
            numbers.extend(identity(paper, is_apart(paper, self._separate)))
            if paper.id in unknown:
                away[place] = paper.id
        firsts = (find_leaders(known, _rows_of(numbers)) - len(former))[len(known) :].tolist()
        return away | {place: ids[row] for place, row in enumerate(firsts) if 0 <= row < len(ids)}

    def former_row(self, paper: LibraryPaper) -> int | None:
        """Return the row that a paper had in the former library, maybe under another id and key."""
        if (former := self.former) is None:
            return None
        for name in filter(None, (paper.id, paper.key)):
            row = former.row(name)
            if row is not None and similar_titles(paper.title, former.paper(row).title):
                return row
        own, rows = identity(paper), former.titled(paper.title)
        return next((row for row in rows if own.agrees(identity(former.paper(row)))), None)

    def _read(self, row: int) -> LibraryPaper:
        start, end = self._ends[row - self._existing], self._ends[row - self._existing + 1]
        self._file.seek(start)
        return _DECODER.decode(self._file.read(end - start))
