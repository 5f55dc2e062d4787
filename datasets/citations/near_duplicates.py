"""Titles that are nearly those of others: a Jaccard index of their words above a threshold, exactly.

Nogueira et al. 2020, section 4.1: special characters are removed from titles, and papers whose titles have a
Jaccard index of unigrams above 0.7 with one of the test papers are removed from the training set.

Two sets that are so similar share a word among the rarest of each (the prefix filter of Chaudhuri, Ganti and
Kaushik 2006), are of similar sizes, and their first shared word leaves room for enough others (PPJoin, Xiao
et al. 2008). What passes is compared word for word. Only the titles of the index are held in memory: those
that are compared with them pass in batches, and words that no title of the index has are the rarest of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.ragged import offsets_of, ranges

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
