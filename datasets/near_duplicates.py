"""Titles that are nearly those of others: a Jaccard index of their words above a threshold, exactly.

Nogueira et al. 2020, section 4.1: special characters are removed from titles, and papers whose titles have a
Jaccard index of unigrams above 0.7 with one of the test papers are removed from the training set.

Two sets that are so similar share a word among the rarest of each (the prefix filter of Chaudhuri, Ganti and
Kaushik 2006), are of similar sizes, and their first shared word leaves room for enough others (PPJoin, Xiao
et al. 2008). What passes is compared word for word. Only the titles of the index are held in memory: those
that are compared with them pass in batches, and words that no title of the index has are the rarest of all.

Texts as sets of shingles: hashes of so many words in a row, from the word ids of a store.
Which texts are nearly the same: all pairs of sets of shingles of a Jaccard similarity or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from datasets.columns import Ragged, offsets_of, ranges
from datasets.errors import InputError
from datasets.records import MARKER_WORDS

WORDS = 3
"""Words of a shingle; a text of fewer words is a single one."""

ROWS = 50_000
"""Texts between two reports of progress."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class ShingleSets:
    """Row i is values[offsets[i]:offsets[i + 1]]: hashes, each once and in order; none for no words.

    values [total] uint64, offsets [rows + 1] int64; sequences [rows] uint64: the hash of all words in their
    order.
    """

    values: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    sequences: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[rows]"""
        return np.diff(self.offsets)

    def jaccard(self, row: int, other: int) -> float:
        """Shingles that two texts share, of all that they have."""
        own, others = (self.values[self.offsets[i] : self.offsets[i + 1]] for i in (row, other))
        shared = len(np.intersect1d(own, others, assume_unique=True))
        return shared / max(1, len(own) + len(others) - shared)


def counted_words(words: Sequence[str]) -> NDArray[np.bool_]:
    """Whether a word type counts as a word [V]: it has a letter or digit and no mark in it.

    >>> counted_words(["graph", "(targetcit)", ".", "2-d"]).tolist()
    [True, False, False, True]
    """
    found = (
        any(map(str.isalnum, word)) and not any(marker in word for marker in MARKER_WORDS) for word in words
    )
    return np.fromiter(found, np.bool_, len(words))


def word_lengths(tokens: Ragged, counted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Words of each text [rows]; counted [V]: which of the tokens are words."""
    lengths = np.empty(len(tokens), np.int64)
    _count(tokens.values, tokens.offsets, counted, lengths)
    return lengths


def shingle_sets(
    parts: Sequence[Ragged],
    counted: NDArray[np.bool_],
    advance: Callable[[int], None],
    words: int = WORDS,
) -> ShingleSets:
    """Of the texts that the rows of `parts` make, one or two, as title and abstract, one after the other.

    counted [V]: which tokens are words. advance: is told how many texts more are done. Memory: eight bytes
    for each word of the texts.
    """
    first = parts[0]
    second = parts[1] if len(parts) > 1 else Ragged(first.values[:0], np.zeros(len(first) + 1, np.int64))
    # No more shingles than words. Pages that nothing is written to take no memory.
    values = np.empty(len(first.values) + len(second.values), np.uint64)
    offsets = np.zeros(len(first) + 1, np.int64)
    sequences = np.empty(len(first), np.uint64)
    for start in range(0, len(first), ROWS):
        end = min(start + ROWS, len(first))
        longest = int((first.lengths[start:end] + second.lengths[start:end]).max())
        buffer = np.empty(longest, np.int32)
        _shingle(
            first.values,
            first.offsets,
            second.values,
            second.offsets,
            counted,
            words,
            start,
            end,
            buffer,
            values,
            offsets,
            sequences,
        )
        advance(end - start)
    return ShingleSets(values[: offsets[-1]], offsets, sequences)


@njit(nogil=True)
def _count(
    values: NDArray[np.int32],
    offsets: NDArray[np.int64],
    counted: NDArray[np.bool_],
    lengths: NDArray[np.int64],
) -> None:
    for row in range(len(lengths)):
        words = 0
        for place in range(offsets[row], offsets[row + 1]):
            words += counted[values[place]]
        lengths[row] = words


@njit(nogil=True)
def _mixed(value: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): all bits depend on all."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(nogil=True)
def _hash(words: NDArray[np.int32], start: int, end: int) -> np.uint64:
    value = np.uint64(end - start)
    for place in range(start, end):
        value = _mixed(value + _GOLDEN * np.uint64(words[place] + 1))
    return value


@njit(nogil=True)
def _shingle(
    first: NDArray[np.int32],
    first_offsets: NDArray[np.int64],
    second: NDArray[np.int32],
    second_offsets: NDArray[np.int64],
    counted: NDArray[np.bool_],
    size: int,
    start: int,
    end: int,
    buffer: NDArray[np.int32],
    values: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    sequences: NDArray[np.uint64],
) -> None:
    """Rows start..end of the result; offsets[start] says where they begin."""
    for row in range(start, end):
        words = 0
        for place in range(first_offsets[row], first_offsets[row + 1]):
            if counted[first[place]]:
                buffer[words] = first[place]
                words += 1
        for place in range(second_offsets[row], second_offsets[row + 1]):
            if counted[second[place]]:
                buffer[words] = second[place]
                words += 1
        sequences[row] = _hash(buffer, 0, words)
        at = offsets[row]
        if words:
            shingles = max(1, words - size + 1)
            for shingle in range(shingles):
                values[at + shingle] = _hash(buffer, shingle, min(words, shingle + size))
            own = values[at : at + shingles]
            own.sort()
            at += 1
            for shingle in range(1, shingles):
                if own[shingle] != own[shingle - 1]:
                    values[at] = own[shingle]
                    at += 1
        offsets[row + 1] = at


NEAR_MOST = 1000
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
    most: int = NEAR_MOST
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


SPECIAL = r"[^\p{L}\p{M}\p{N}]+"
"""What words are divided by: all that is no letter, mark or digit."""
MOST = 1 << 21
"""Pairs that are looked at together."""

Rows = NDArray[np.int64]


def check_threshold(threshold: object, option: str) -> Fraction:
    """A share below 1, to six decimals, without rounding errors; InputError that names the option."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold < 1:
        raise InputError(f"{option}: {threshold!r} is no Jaccard index from 0 to below 1, as 0.7")
    return Fraction(round(threshold * 1_000_000), 1_000_000)


class _Words(NamedTuple):
    """The different words of titles: title [n] ascending, code [n] of its words, which are words[code]."""

    title: Rows
    code: Rows
    words: pa.Array


def _words(titles: Sequence[str]) -> _Words:
    """Of each title its words, each once: of lower case, without special characters."""
    text = pc.utf8_lower(pc.utf8_normalize(pa.array(titles, pa.large_string()), "NFKC"))
    lists = pc.utf8_split_whitespace(pc.replace_substring_regex(text, SPECIAL, " "))
    encoded = lists.flatten().dictionary_encode()
    title = np.repeat(np.arange(len(titles)), pc.list_value_length(lists).to_numpy())
    code = encoded.indices.to_numpy().astype(np.int64)
    is_word = pc.not_equal(encoded.dictionary, "").to_numpy(zero_copy_only=False)[code]
    keys = _distinct(title[is_word] << 32 | code[is_word])
    return _Words(keys >> 32, keys & 0xFFFF_FFFF, encoded.dictionary)


def _distinct(keys: Rows) -> Rows:
    """Each once, ascending; np.unique hashes, which takes longer than to sort."""
    keys = np.sort(keys)
    return keys[np.diff(keys, prepend=-1) != 0]  # none is negative


def _places(sorted_rows: Rows, count: int) -> tuple[Rows, Rows]:
    """How many entries each row has [count], and the place of each entry in its row."""
    sizes = np.bincount(sorted_rows, minlength=count)
    return sizes, np.arange(len(sorted_rows)) - np.repeat(offsets_of(sizes)[:-1], sizes)


class TitleIndex:
    """Titles [T] that others are compared with."""

    def __init__(self, titles: Sequence[str], threshold: float) -> None:
        """Raises InputError for a threshold that is not in [0, 1)."""
        self._share = check_threshold(threshold, "near_duplicates")
        found = _words(titles)
        often = np.bincount(found.code, minlength=len(found.words))
        order = np.argsort(often, kind="stable")  # the rarest first
        self._words: pa.Array = found.words.take(pa.array(order))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self._keys = np.sort(found.title << 32 | rank[found.code])
        """Title and rank of a word, ascending [n]."""
        title = self._keys >> 32
        self.sizes, place = _places(title, len(titles))
        listed = place < self._prefix(self.sizes)[title]
        ranks = self._keys[listed] & 0xFFFF_FFFF
        by_rank = np.argsort(ranks, kind="stable")
        self._postings, self._posting_places = title[listed][by_rank], place[listed][by_rank]
        self._starts = offsets_of(np.bincount(ranks, minlength=len(order)))

    def __len__(self) -> int:
        return len(self.sizes)

    def near(self, titles: Sequence[str]) -> NDArray[np.bool_]:
        """Which of some titles [N] have an index above the threshold with one of the index."""
        found = np.zeros(len(titles), np.bool_)
        for title, _ in self._near(titles):
            found[title] = True
        return found

    def pairs(self, titles: Sequence[str]) -> Rows:
        """All pairs [M, 2] of a title and one of the index whose index is above the threshold, ascending."""
        found = [title << 32 | other for title, other in self._near(titles)]
        keys = _distinct(np.concatenate([np.empty(0, np.int64), *found]))
        return np.stack([keys >> 32, keys & 0xFFFF_FFFF], axis=1)

    def _near(self, titles: Sequence[str]) -> Iterator[tuple[Rows, Rows]]:
        """Titles and those of the index that are near them; a pair may come more than once."""
        found = _words(titles)
        rank = pc.fill_null(pc.index_in(found.words, value_set=self._words), -1).to_numpy().astype(np.int64)
        rank = rank[found.code]
        keys = np.sort(found.title[rank >= 0] << 32 | rank[rank >= 0])
        title, rank = keys >> 32, keys & 0xFFFF_FFFF
        sizes = np.bincount(found.title, minlength=len(titles))
        known, place = _places(title, len(titles))
        place += (sizes - known)[title]  # unknown words are rarer than all others
        first = place < self._prefix(sizes)[title]
        starts = offsets_of(known)
        for word in _parts(np.diff(self._starts)[rank[first]]):
            entry = np.flatnonzero(first)[word]
            postings, offsets = ranges(self._starts[rank[entry]], self._starts[rank[entry] + 1])
            at = np.repeat(entry, np.diff(offsets))
            yield from self._checked(
                title[at],
                place[at],
                self._postings[postings],
                self._posting_places[postings],
                sizes,
                starts,
                rank,
            )

    def _checked(
        self, title: Rows, place: Rows, other: Rows, other_place: Rows, sizes: Rows, starts: Rows, rank: Rows
    ) -> Iterator[tuple[Rows, Rows]]:
        """Of pairs that share a word, at these places of both, those that are near."""
        size, other_size = sizes[title], self.sizes[other]
        needed = self._needed(size, other_size)
        left = np.minimum(size - place, other_size - other_place)
        possible = (needed <= np.minimum(size, other_size)) & (needed <= left)
        pairs = _distinct(title[possible] << 32 | other[possible])
        for part in _parts((starts[1:] - starts[:-1])[pairs >> 32]):
            title, other = pairs[part] >> 32, pairs[part] & 0xFFFF_FFFF
            words, offsets = ranges(starts[title], starts[title + 1])
            asked = np.repeat(other, np.diff(offsets)) << 32 | rank[words]
            place = np.minimum(np.searchsorted(self._keys, asked), len(self._keys) - 1)
            shared = np.bincount(
                np.repeat(np.arange(len(title)), np.diff(offsets))[self._keys[place] == asked],
                minlength=len(title),
            )
            is_near = shared >= self._needed(sizes[title], self.sizes[other])
            yield title[is_near], other[is_near]

    def _needed(self, size: Rows, other: Rows) -> Rows:
        """Words that sets of these sizes must share: s / (a + b - s) > t."""
        above, below = self._share.numerator, self._share.denominator
        return above * (size + other) // (above + below) + 1

    def _prefix(self, size: Rows) -> Rows:
        """Of the rarest words of a set so many that one of them is shared: all but those needed, and one."""
        return size - self._share.numerator * size // self._share.denominator


def _parts(counts: Rows) -> Iterator[slice]:
    """Ranges of entries whose counts add up to MOST or a little more; entries of no count may be left out."""
    ends = np.cumsum(counts)
    first = 0
    while first < len(counts) and (done := int(ends[first] - counts[first])) < ends[-1]:
        last = max(int(np.searchsorted(ends, done + MOST, "right")), first + 1)
        yield slice(first, last)
        first = last
