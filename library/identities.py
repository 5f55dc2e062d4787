"""Which records describe the same paper, by hashed identifiers.

A record matches an earlier one by id, else DOI, else arXiv id, else title (letters and digits only). Titles
do not match if DOIs, arXiv ids or the first authors' surnames differ, or years are more than two apart. If
neither years nor authors can be compared, the title must have at least 20 letters. Memory holds a few numbers
per record, and only records that share one of them are compared.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.fulltext.catalogue import (
    LONG_TITLE,
    MAX_YEARS_APART,
    normalise_title,
    surname,
    title_key,
)
from citerec.datasets.letters import fold
from citerec.library.papers import LibraryPaper

MAX_SAME_KEY = 100
"""Maximum number of different papers per key, such as a title, to compare a record with."""
_WORD = re.compile(r"[^\W_]{3,}")
_GLOBAL_IDS = ("doi:", "arxiv:", "openalex:", "s2:")
"""Prefixes of globally unique ids. Other ids, and keys, identify a paper only together with its title."""


class Identity(NamedTuple):
    """Hashed identifiers of a paper; 0 if unknown."""

    id: int
    doi: int
    arxiv: int
    title: int
    author: int
    """Hash of the first author's surname."""
    short: int
    """1 if the title is too short to identify the paper, else 0."""
    year: int

    def agrees(self, other: Identity) -> bool:
        """True if two papers with the same title may be the same paper."""
        for one, two in zip(self[1:5], other[1:5], strict=True):
            if one and two and one != two:
                return False
        if self.year and other.year:
            return abs(self.year - other.year) <= MAX_YEARS_APART
        return bool(self.author and other.author) or not self.short


def identity(paper: LibraryPaper) -> Identity:
    letters = normalise_title(paper.title)
    title = title_key(letters) if letters else 0
    return Identity(
        _hash(paper.id if paper.id.startswith(_GLOBAL_IDS) else f"{title} {paper.key or paper.id}"),
        _hash(paper.doi),
        _hash(paper.arxiv),
        title,
        _hash(surname(paper.authors[0]).casefold()) if paper.authors else 0,
        int(len(letters) < LONG_TITLE),
        paper.year,
    )


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") if text else 0


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
        return any(place != besides for _, place in self.matches(np.array([_hash(text)], np.uint64)))


class Identities:
    """Identities of many records, in order. existing [B, 7]: identities of papers known to be distinct."""

    def __init__(self, existing: NDArray[np.uint64] | None = None) -> None:
        self._existing = np.empty((0, len(Identity._fields)), np.uint64) if existing is None else existing
        self._numbers = array("Q")

    def add(self, paper: LibraryPaper) -> None:
        numbers = identity(paper)
        self._numbers.extend(numbers if numbers.year >= 0 else numbers._replace(year=0))

    def extend(self, numbers: NDArray[np.uint64]) -> None:
        """Add identities [n, 7]."""
        self._numbers.frombytes(np.ascontiguousarray(numbers).tobytes())

    def numbers(self) -> NDArray[np.uint64]:
        """Return all identities [N, 7]."""
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
                papers[leader] = Identity(*(a or b for a, b in zip(papers[leader], own, strict=True)))
            for index, key in zip(known, own[:4], strict=True):
                if key:
                    listed = index.setdefault(key, [])
                    if leader not in listed and len(listed) < MAX_SAME_KEY:
                        listed.append(leader)
        return leaders


def _find_leader(
    own: Identity, known: tuple[dict[int, list[int]], ...], papers: dict[int, Identity]
) -> int | None:
    for index, key in zip(known[:3], own[:3], strict=True):
        if key in index:
            return min(index[key])
    candidates = known[3].get(own.title, ()) if own.title else ()
    return min((leader for leader in candidates if own.agrees(papers[leader])), default=None)


def similar_titles(one: str, other: str) -> bool:
    """True if at least half of the words of the shorter title are in the other.

    >>> similar_titles("BERT", "BERT: Pre-training of Transformers"), similar_titles("A trees", "B graphs")
    (True, False)
    """
    words, others = ({*_WORD.findall(fold(title).casefold())} for title in (one, other))
    shorter = min(len(words), len(others))
    same_letters = normalise_title(one) == normalise_title(other)
    return same_letters or (shorter > 0 and len(words & others) * 2 >= shorter)
