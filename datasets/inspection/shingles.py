"""Texts as sets of shingles: hashes of so many words in a row, from the word ids of a store.

What is a word and counts is said by a mask over the vocabulary: signs and the marks of citations do not, so
that texts which differ in these alone are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from datasets.ragged import Ragged
from datasets.schema import MARKER_WORDS

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
