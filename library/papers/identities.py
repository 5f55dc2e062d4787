"""Which of many records are the same work: the rule of formats.same_work over arrays of identities."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.same_work import Identity, hash_text, identity

MAX_SAME_KEY = 100
"""Maximum number of different papers per key, such as a title, to compare a record with."""


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


class Identities:
    """Identities of many records, in order. existing [B, F]: identities of papers known to be distinct."""

    def __init__(self, existing: NDArray[np.uint64] | None = None) -> None:
        self._existing = np.empty((0, len(Identity._fields)), np.uint64) if existing is None else existing
        self._numbers = array("Q")

    def add(self, paper: LibraryPaper, apart: bool = False) -> None:
        """Add a record. apart: as for `identity`."""
        numbers = identity(paper, apart)
        self._numbers.extend(numbers if numbers.year >= 0 else numbers._replace(year=0))

    def numbers(self) -> NDArray[np.uint64]:
        """Return all identities [N, F]."""
        return np.concatenate([self._existing, self._added()])

    def _added(self) -> NDArray[np.uint64]:
        return np.frombuffer(self._numbers, np.uint64).reshape(-1, len(Identity._fields))

    def leaders(self) -> NDArray[np.int64]:
        """Return, for each record, the first record of the same paper [N]."""
        existing, added = self._existing, self._added()
        distinct = len(existing)
        leaders = np.arange(distinct + len(added))
        shared = np.zeros(len(leaders), np.bool_)
        for one, two in zip(existing.T[:4], added.T[:4], strict=True):
            values, inverse, counts = np.unique(two, return_inverse=True, return_counts=True)
            if not len(values):
                continue
            place = np.searchsorted(values, one).clip(max=len(values) - 1)
            found = np.flatnonzero((values[place] == one) & (one != 0))
            shared[found] = True
            counts[place[found]] += 1
            shared[distinct:] |= (counts[inverse] > 1) & (two != 0)
        known: tuple[dict[int, list[int]], ...] = ({}, {}, {}, {})  # leaders by id, DOI, arXiv id, title
        papers: dict[int, Identity] = {}  # merged identity of each leader's records
        for row in np.flatnonzero(shared).tolist():
            own = Identity(*(existing[row] if row < distinct else added[row - distinct]).tolist())
            leader = _find_leader(own, known, papers) if row >= distinct else None
            if leader is None:
                leader, papers[row] = row, own
            else:
                leaders[row] = leader
                papers[leader] = papers[leader].joined(own)
            for index, key in zip(known, own[:4], strict=True):
                if key:
                    listed = index.setdefault(key, [])
                    if leader not in listed and len(listed) < MAX_SAME_KEY:
                        listed.append(leader)
        return leaders


def _find_leader(
    own: Identity, known: tuple[dict[int, list[int]], ...], papers: dict[int, Identity]
) -> int | None:
    if own.id and own.id in known[0]:
        return min(known[0][own.id])
    for index, key in zip(known[1:3], own[1:3], strict=True):
        same = (
            [leader for leader in index.get(key, ()) if own.agrees_besides_id(papers[leader])] if key else []
        )
        if same:
            return min(same)
    candidates = known[3].get(own.title, ()) if own.title else ()
    return min((leader for leader in candidates if own.agrees(papers[leader])), default=None)
