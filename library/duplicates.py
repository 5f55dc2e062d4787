"""Records of one paper are found.

A record is the same paper as an earlier one of its id, or else of its DOI, or else of its arXiv id, or else
of its title (letters and digits alone) where nothing speaks against it: two different DOIs or arXiv ids,
years more than two apart, or first authors of different surnames. If neither years nor authors can be
compared, the title needs 20 letters. The first record leads: its fields count, and others fill in what it
lacks; of abstracts and lists of authors the longer counts, collections and tags are joined.

Records wait in a file. Memory holds a few numbers for each; only records that share one with another are
looked at one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from library.papers import Identity, LibraryPaper, identity, merge_records

if TYPE_CHECKING:
    from library.library import Library

_DECODER = msgspec.msgpack.Decoder(LibraryPaper)
MOST = 100
"""Different papers of one title that a further one is compared with."""


class Identities:
    """Those of many papers, in their order. before [B, 7]: of papers that are different ones."""

    def __init__(self, before: NDArray[np.uint64] | None = None) -> None:
        self._numbers = array("Q")
        self._distinct = 0 if before is None else len(before)
        if before is not None:
            self._numbers.frombytes(before.tobytes())

    def add(self, paper: LibraryPaper) -> None:
        found = identity(paper)
        self._numbers.extend(found if found.year >= 0 else found._replace(year=0))

    def numbers(self) -> NDArray[np.uint64]:
        """[N, 7]"""
        return np.frombuffer(self._numbers, np.uint64).reshape(-1, len(Identity._fields))

    def leaders(self) -> NDArray[np.int64]:
        """The first record of each record's paper [N]."""
        numbers = self.numbers()
        leaders = np.arange(len(numbers))
        shared = np.zeros(len(numbers), np.bool_)
        for column in numbers.T[:4]:
            _, place, often = np.unique(column, return_inverse=True, return_counts=True)
            shared |= (often[place] > 1) & (column != 0)
        known: tuple[dict[int, list[int]], ...] = ({}, {}, {}, {})  # leaders by id, DOI, arXiv id, title
        papers: dict[int, Identity] = {}  # of each leader what is known by its records
        for row in np.flatnonzero(shared).tolist():
            own = Identity(*numbers[row].tolist())
            found = _leader(own, known, papers) if row >= self._distinct else None
            if found is None:
                found, papers[row] = row, own
            else:
                leaders[row] = found
                papers[found] = Identity(*(a or b for a, b in zip(papers[found], own, strict=True)))
            for column, key in zip(known, own[:4], strict=True):
                if key and found not in (listed := column.setdefault(key, [])) and len(listed) < MOST:
                    listed.append(found)
        return leaders


def _leader(
    own: Identity, known: tuple[dict[int, list[int]], ...], papers: dict[int, Identity]
) -> int | None:
    for column, key in zip(known[:3], own[:3], strict=True):
        if key in column:
            return min(column[key])
    found = known[3].get(own.title, ()) if own.title else ()
    return min((leader for leader in found if own.agrees(papers[leader])), default=None)


class Deduplicator:
    """Papers of all sources, which wait in a file until all have come; a paper of many records is one.

    folder: for the file. library: to which the papers come. Call `add` for each record, then `finish`.
    """

    def __init__(self, folder: Path, library: Library | None = None) -> None:
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 (closed by __exit__)
        self._ends, self._identities = array("q", [0]), Identities(library.identities if library else None)
        self._library, self._before = library, len(library) if library else 0

    def __enter__(self) -> Deduplicator:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, paper: LibraryPaper) -> None:
        self._identities.add(paper)
        line = msgspec.msgpack.encode(paper)
        self._file.write(line)
        self._ends.append(self._ends[-1] + len(line))

    def __len__(self) -> int:
        """Records that have come."""
        return len(self._ends) - 1

    def finish(self) -> None:
        """All have come."""
        leaders = self._identities.leaders()
        others = np.flatnonzero(leaders != np.arange(len(leaders)))
        self.duplicates = len(others)
        """Records that are the same paper as an earlier one."""
        self._members: dict[int, list[int]] = {}
        for row in others.tolist():
            self._members.setdefault(int(leaders[row]), []).append(row)
        self._leads = leaders[self._before :] == np.arange(self._before, len(leaders))
        self.replaced = np.array([row for row, _ in self._replacing()], np.int64)
        """Rows of the library's papers that have become fuller; `papers` has them."""
        self.count = len(self.replaced) + int(self._leads.sum())
        """Of `papers`."""

    def _replacing(self) -> Iterator[tuple[int, LibraryPaper]]:
        for row in sorted(row for row in self._members if row < self._before):
            assert self._library is not None
            paper = self._library.paper(row)
            whole = merge_records([paper, *map(self._record, self._members[row])])
            if whole != paper:
                yield row, whole

    def papers(self) -> Iterator[LibraryPaper]:
        """The new papers and those that have become fuller; of an id that is there, the second is ID-2."""
        taken: Callable[[str], bool] = self._library.corpus.has_paper if self._library else lambda _: False
        seen: set[str] = set()
        for _, paper in self._replacing():
            yield paper
        for number in np.flatnonzero(self._leads).tolist():
            row = self._before + number
            paper = merge_records([self._record(row), *map(self._record, self._members.get(row, ()))])
            id, again = paper.id, 2
            while id in seen or taken(id):
                id, again = f"{paper.id}-{again}", again + 1
            seen.add(id)
            yield paper if id == paper.id else paper._replace(id=id)

    def _record(self, row: int) -> LibraryPaper:
        start, end = self._ends[row - self._before], self._ends[row - self._before + 1]
        self._file.seek(start)
        return _DECODER.decode(self._file.read(end - start))
