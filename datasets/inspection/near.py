"""Which texts are nearly the same: all pairs of sets of shingles of a Jaccard similarity or more.

Two sets that are as similar as that share one of the rarest shingles of each (the prefix filter of Chaudhuri,
Ganti and Kaushik 2006, as in AllPairs, Bayardo, Ma and Srikant 2007). Texts that do are compared by all their
shingles, so that nothing but the bound `MOST` keeps a pair from being found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from datasets.inspection.shingles import ROWS, ShingleSets

MOST = 1000
"""Texts that a text is compared with at most, those first that share its rarest shingles: what bounds the
time where thousands of texts have the same few words."""

LARGEST_SKETCH = 28
"""Bits: of the shingles' numbers of texts half a gigabyte is kept at most."""

PAIRS = 1 << 20
"""Pairs that are found before they are handed on."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Pairs:
    """Texts `rows` [n] and earlier ones `others` [n], int32, and how similar they are [n] float32."""

    rows: NDArray[np.int32]
    others: NDArray[np.int32]
    jaccard: NDArray[np.float32]


@dataclass
class NearPairs:
    """Iterates over the pairs of a Jaccard similarity of `least` or more, in the order of `rows`.

    After that `cut` counts the texts that share rare shingles with more than `most` others: not all of their
    pairs were looked at. advance: is told how many texts more are done.
    """

    sets: ShingleSets
    least: float
    advance: Callable[[int], None]
    most: int = MOST
    cut: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Pairs]:
        postings = _postings(self.sets, self.least)
        rows, others = np.empty(PAIRS + self.most, np.int32), np.empty(PAIRS + self.most, np.int32)
        jaccard = np.empty(PAIRS + self.most, np.float32)
        compared = np.full(len(self.sets), -1, np.int32)
        row = 0
        while row < len(self.sets):
            last = min(row + ROWS, len(self.sets))
            reached, found, cut = _join(
                self.sets.values,
                self.sets.offsets,
                *postings,
                self.least,
                self.most,
                row,
                last,
                PAIRS,
                compared,
                rows,
                others,
                jaccard,
            )
            self.cut += cut
            self.advance(reached - row)
            row = reached
            if found:
                yield Pairs(rows[:found].copy(), others[:found].copy(), jaccard[:found].copy())


Postings = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]


def _postings(sets: ShingleSets, least: float) -> Postings:
    """The rare shingles that texts share: (offsets of groups [texts + 1], groups, offsets of texts, texts).

    groups: for each text the rare shingles that others have too, numbered, the rarest first. texts: for each
    of these shingles the texts, in order.
    """
    bits = min(LARGEST_SKETCH, max(10, len(sets.values).bit_length() + 1))
    sketch = np.zeros(1 << bits, np.uint16)
    _note(sets.values, bits, sketch)
    hashes = np.empty(_prefixes(sets.offsets, least), np.uint64)
    offsets = np.zeros(len(sets) + 1, np.int64)
    _select(sets.values, sets.offsets, bits, sketch, least, hashes, offsets)
    hashes = hashes[: offsets[-1]]
    del sketch
    order = np.argsort(hashes, kind="stable")
    texts = np.repeat(np.arange(len(sets), dtype=np.int32), np.diff(offsets))[order]
    starts = np.flatnonzero(np.concatenate([[True], hashes[order][1:] != hashes[order][:-1]]))
    starts = np.append(starts[: len(hashes)], len(hashes))
    groups = np.empty(len(hashes), np.int32)
    groups[order] = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
    return offsets, groups, starts, texts


@njit(nogil=True)
def _prefix(size: int, least: float) -> int:
    """Of the rarest shingles of a text so many that one is shared with any text as similar as `least`."""
    return size - int(np.ceil(least * size - _ROUNDING)) + 1 if size else 0


@njit(nogil=True)
def _prefixes(offsets: NDArray[np.int64], least: float) -> int:
    total = 0
    for row in range(len(offsets) - 1):
        total += _prefix(offsets[row + 1] - offsets[row], least)
    return total


@njit(nogil=True)
def _note(values: NDArray[np.uint64], bits: int, sketch: NDArray[np.uint16]) -> None:
    """Count the texts of each shingle; those that share a place are counted together, so never too few."""
    shift = np.uint64(64 - bits)
    for value in values:
        place = value >> shift
        if sketch[place] < 65535:
            sketch[place] += 1


@njit(nogil=True)
def _select(
    values: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    bits: int,
    sketch: NDArray[np.uint16],
    least: float,
    hashes: NDArray[np.uint64],
    ends: NDArray[np.int64],
) -> None:
    """The rarest shingles of each text without those that no other text has."""
    shift = np.uint64(64 - bits)
    at = 0
    for row in range(len(offsets) - 1):
        own = values[offsets[row] : offsets[row + 1]]
        often = np.empty(len(own), np.int64)
        for i in range(len(own)):
            often[i] = sketch[own[i] >> shift]
        # The values are in order, so that equals come in the order of their hashes: the same in all texts.
        order = np.argsort(often, kind="mergesort")
        for i in order[: _prefix(len(own), least)]:
            if often[i] > 1:
                hashes[at] = own[i]
                at += 1
        ends[row + 1] = at


@njit(nogil=True)
def _shared(
    values: NDArray[np.uint64], start: int, end: int, other: int, other_end: int, needed: float
) -> int:
    """Number of values in both; less than `needed` where it cannot be reached any more."""
    shared = 0
    while start < end and other < other_end:
        if shared + min(end - start, other_end - other) < needed:
            return shared
        if values[start] == values[other]:
            shared += 1
            start += 1
            other += 1
        elif values[start] < values[other]:
            start += 1
        else:
            other += 1
    return shared


@njit(nogil=True)
def _join(
    values: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    ends: NDArray[np.int64],
    groups: NDArray[np.int32],
    starts: NDArray[np.int64],
    texts: NDArray[np.int32],
    least: float,
    most: int,
    start: int,
    last: int,
    room: int,
    compared: NDArray[np.int32],
    rows: NDArray[np.int32],
    others: NDArray[np.int32],
    jaccard: NDArray[np.float32],
) -> tuple[int, int, int]:
    """Compare texts start..last with earlier ones; (text reached, pairs found, texts cut).

    Stops before `last` when there is no room. compared [texts]: the text that each was last compared with.
    """
    found = cut = 0
    for row in range(start, last):
        if found > room:
            return row, found, cut
        size = offsets[row + 1] - offsets[row]
        left = most
        for place in range(ends[row], ends[row + 1]):
            group = groups[place]
            for at in range(starts[group], starts[group + 1]):
                other = texts[at]
                if other >= row or left < 0:
                    break
                if compared[other] == row:
                    continue
                compared[other] = row
                left -= 1
                if left < 0:
                    break
                other_size = offsets[other + 1] - offsets[other]
                needed = least / (1 + least) * (size + other_size) - _ROUNDING
                if min(size, other_size) < needed:
                    continue
                shared = _shared(
                    values, offsets[row], offsets[row + 1], offsets[other], offsets[other + 1], needed
                )
                if shared >= needed:
                    rows[found], others[found] = row, other
                    jaccard[found] = shared / (size + other_size - shared)
                    found += 1
        cut += left < 0
    return last, found, cut
