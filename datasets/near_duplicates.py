"""Near-duplicates: an exact search for pairs of texts or titles with a high enough Jaccard similarity.

A text is the set of its shingles (three consecutive words), a title the set of its words; elements are 64-bit
hashes. Two sets that are similar enough have similar sizes and share one of the rarest elements of each (the
prefix filter of Chaudhuri, Ganti and Kaushik 2006). Pairs that pass these filters are compared in full.

SetSimilaritySearch finds the same pairs, in Python: 46 s and 1.3 GB for 50,000 titles with abstracts, linear
at best, against 1 s and less than 0.1 GB; 400,000 generated ones take 7 s and 0.3 GB here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from citerec.base.packages import compiled
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.records import MARKER_WORDS

SHINGLE_WORDS = 3
"""Words per shingle; a shorter text is a single shingle."""
MAX_COMPARED = 1000
"""Maximum comparisons per text; bounds the time when thousands of texts share the same few words."""
ROWS = 50_000
"""Texts between two progress reports."""
PAIRS = 1 << 20
"""Pairs buffered before they are yielded."""
MAX_SKETCH_BITS = 28
"""Limits the counts of elements to half a gigabyte."""
NOT_IN_WORDS = r"[^\p{L}\p{M}\p{N}]+"

Hashes = NDArray[np.uint64]
Offsets = NDArray[np.int64]
Rows = NDArray[np.int32]
Mask = NDArray[np.bool_]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Sets:
    """Sets of hashes: row i is values[offsets[i]:offsets[i + 1]], distinct and ascending."""

    values: Hashes
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[rows]"""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Pairs:
    """Near-duplicates: `rows` [n] of the queries, `others` [n] of the index, Jaccard similarities [n]."""

    rows: Rows
    others: Rows
    jaccard: NDArray[np.float32]


class _Rule(NamedTuple):
    """The lowest Jaccard similarity of near-duplicates, as a fraction; strict: they must exceed it."""

    numerator: int
    denominator: int
    strict: bool


class _Sketch(NamedTuple):
    """The number of sets with each element, or more: elements are told apart by their bits above `shift`."""

    shift: np.uint64
    counts: NDArray[np.uint16]


class _Queries(NamedTuple):
    """Sets to look up; lists[ends[i]:ends[i + 1]]: the index's lists of rare elements of set i, or -1."""

    values: Hashes
    offsets: Offsets
    lists: Rows
    ends: Offsets


class _Lists(NamedTuple):
    """The sets of an index, and the rows of the sets in each list: rows[starts[i]:starts[i + 1]]."""

    values: Hashes
    offsets: Offsets
    starts: Offsets
    rows: Rows


class _Limits(NamedTuple):
    """Maximum comparisons per query; earlier: a query is a row of the index, compared with earlier rows."""

    compared: int
    earlier: bool


class SetIndex:
    """An inverted index from the rarest elements of sets [N] to the sets.

    threshold: Jaccard similarity of near-duplicates; strict: they must exceed it. self_only: only self_pairs
    will be called, so that elements of a single set need not be listed.
    """

    def __init__(
        self, sets: Sets, threshold: Fraction, strict: bool = False, self_only: bool = False
    ) -> None:
        self._sets, self._rule = sets, _Rule(threshold.numerator, threshold.denominator, strict)
        bits = min(MAX_SKETCH_BITS, max(10, len(sets.values).bit_length() + 1))
        self._sketch = _Sketch(np.uint64(64 - bits), np.zeros(1 << bits, np.uint16))
        _count_elements(sets.values, self._sketch)
        elements, self._ends = self._rarest_elements(sets, 2 if self_only else 1)
        order = np.argsort(elements, kind="stable")
        rows = np.repeat(np.arange(len(sets), dtype=np.int32), np.diff(self._ends))[order]
        elements = elements[order]
        first = np.append([True], elements[1:] != elements[:-1])[: len(elements)]
        self._elements = elements[first]
        starts = np.append(np.flatnonzero(first), len(elements))
        self._index = _Lists(sets.values, sets.offsets, starts, rows)
        self._lists = np.empty(len(elements), np.int32)
        self._lists[order] = np.cumsum(first) - 1
        self.cut = 0
        """Number of queries of the last search that reached the maximum number of comparisons."""

    def __len__(self) -> int:
        return len(self._sets)

    def search(self, queries: Sets) -> Iterator[Pairs]:
        """Yield the near-duplicates of the queries, in the order of the queries."""
        elements, ends = self._rarest_elements(queries, 1)
        lists = np.searchsorted(self._elements, elements)
        known = lists < len(self._elements)
        known[known] = self._elements[lists[known]] == elements[known]
        lists[~known] = -1
        given = _Queries(queries.values, queries.offsets, lists.astype(np.int32), ends)
        return self._join(given, _Limits(len(self), False))

    def self_pairs(self, advance: Callable[[int], None] = lambda done: None) -> Iterator[Pairs]:
        """Yield the near-duplicates of each set among at most MAX_COMPARED of the sets before it.

        advance: called with the number of sets done since the last call.
        """
        own = _Queries(self._sets.values, self._sets.offsets, self._lists, self._ends)
        return self._join(own, _Limits(MAX_COMPARED, True), advance)

    def _rarest_elements(self, sets: Sets, min_count: int) -> tuple[Hashes, Offsets]:
        """Select elements of each set of which every near-duplicate has at least one; also return offsets.

        min_count: elements in fewer sets of the index are left out.
        """
        elements = np.empty(len(sets.values), np.uint64)  # untouched pages take no memory
        ends = np.zeros(len(sets) + 1, np.int64)
        _select(sets.values, sets.offsets, self._sketch, min_count, self._rule, elements, ends)
        return elements[: ends[-1]], ends

    def _join(
        self, queries: _Queries, limits: _Limits, advance: Callable[[int], None] = lambda done: None
    ) -> Iterator[Pairs]:
        self.cut, row, size = 0, 0, PAIRS + limits.compared
        buffer = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.float32)
        compared = np.full(len(self), -1, np.int32)
        count = len(queries.offsets) - 1
        while row < count:
            last = min(row + ROWS, count)
            reached, found, cut = _compare(
                queries, self._index, self._rule, limits, (row, last), compared, buffer
            )
            self.cut += cut
            advance(reached - row)
            row = reached
            if found:
                rows, others, jaccard = buffer
                yield Pairs(rows[:found].copy(), others[:found].copy(), jaccard[:found].copy())


class TitleIndex:
    """An index of titles [T] for finding near-duplicates: Jaccard similarity of words above the threshold.

    Nogueira et al. 2020, section 4.1, remove training papers whose titles are that similar to the title of a
    test paper. Case and special characters are ignored. Queries may be passed in batches.
    """

    def __init__(self, titles: Sequence[str], threshold: float) -> None:
        self._index = SetIndex(title_sets(titles), exact_fraction(threshold), strict=True)

    def matches(self, titles: Sequence[str]) -> Mask:
        """Return a mask [N] of the titles that have a near-duplicate in the index."""
        found = np.zeros(len(titles), np.bool_)
        for part in self._index.search(title_sets(titles)):
            found[part.rows] = True
        return found


def exact_fraction(share: float) -> Fraction:
    """Convert a decimal share to the fraction it stands for.

    >>> exact_fraction(0.7)
    Fraction(7, 10)
    """
    return Fraction(round(share * 1_000_000), 1_000_000)


def title_sets(titles: Sequence[str]) -> Sets:
    """Return the set of words of each title, in lower case and without special characters."""
    text = pc.utf8_lower(pc.utf8_normalize(pa.array(titles, pa.large_string()), "NFKC"))
    lists = pc.utf8_split_whitespace(pc.replace_substring_regex(text, NOT_IN_WORDS, " "))
    words = lists.flatten()
    ends = np.frombuffer(words.buffers()[1], np.int64)[words.offset :][: len(words) + 1]
    letters = np.frombuffer(words.buffers()[2] or b"", np.uint8)
    values, offsets = np.empty(len(words), np.uint64), np.zeros(len(titles) + 1, np.int64)
    _hash_words(letters, ends, offsets_of(pc.list_value_length(lists).to_numpy()), values, offsets)
    return Sets(values[: offsets[-1]], offsets)


def counted_words(words: Sequence[str]) -> Mask:
    """Return a mask [V] of the tokens that count as words: a letter or digit, and not a citation marker.

    >>> counted_words(["graph", "(targetcit)", ".", "2-d"]).tolist()
    [True, False, False, True]
    """
    mask = (any(map(str.isalnum, word)) and not any(m in word for m in MARKER_WORDS) for word in words)
    return np.fromiter(mask, np.bool_, len(words))


def word_lengths(tokens: Ragged, counted: Mask) -> NDArray[np.int64]:
    """Count the words of each text [rows]. counted: mask [V] of the tokens that are words."""
    lengths = np.empty(len(tokens), np.int64)
    _count_words(tokens.values, tokens.offsets, counted, lengths)
    return lengths


def shingle_sets(
    parts: Sequence[Ragged], counted: Mask, advance: Callable[[int], None] = lambda done: None
) -> tuple[Sets, Hashes]:
    """Return the shingles of each text, and a hash of each text's word sequence [rows].

    parts: the tokens of the texts; rows of two parts, e.g. title and abstract, are joined. counted: mask [V]
    of the tokens that are words. advance: called with the number of texts done since the last call. Uses
    eight bytes per word.
    """
    first = parts[0]
    second = parts[1] if len(parts) > 1 else Ragged(first.values[:0], np.zeros(len(first) + 1, np.int64))
    # There are at most as many shingles as words; untouched pages take no memory.
    values = np.empty(len(first.values) + len(second.values), np.uint64)
    offsets, sequences = np.zeros(len(first) + 1, np.int64), np.empty(len(first), np.uint64)
    buffer = np.empty(int((first.lengths + second.lengths).max(initial=0)), np.int32)
    for start in range(0, len(first), ROWS):
        end = min(start + ROWS, len(first))
        _shingle(
            (first.values, first.offsets, second.values, second.offsets), counted, (start, end),
            buffer, values, offsets, sequences,
        )  # fmt: skip
        advance(end - start)
    return Sets(values[: offsets[-1]], offsets), sequences


_compiled = compiled(nogil=True)


@_compiled
def _mix(value: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@_compiled
def _hash(numbers: NDArray[np.integer], start: int, end: int) -> np.uint64:
    value = np.uint64(end - start)
    for i in range(start, end):
        value = _mix(value + _GOLDEN * np.uint64(numbers[i] + 1))
    return value


@_compiled
def _make_set(values: Hashes, start: int, count: int) -> int:
    """Sort values[start:start + count] and drop duplicates; return the end of the rest."""
    own = values[start : start + count]
    own.sort()
    end = start
    for value in own:
        if end == start or value != values[end - 1]:
            values[end] = value
            end += 1
    return end


@_compiled
def _hash_words(
    letters: NDArray[np.uint8], ends: Offsets, words: Offsets, values: Hashes, offsets: Offsets
) -> None:
    for row in range(len(words) - 1):
        count = 0
        for word in range(words[row], words[row + 1]):
            if ends[word + 1] > ends[word]:
                values[offsets[row] + count] = _hash(letters, ends[word], ends[word + 1])
                count += 1
        offsets[row + 1] = _make_set(values, offsets[row], count)


@_compiled
def _count_words(values: Rows, offsets: Offsets, counted: Mask, lengths: Offsets) -> None:
    for row in range(len(lengths)):
        words = 0
        for i in range(offsets[row], offsets[row + 1]):
            words += counted[values[i]]
        lengths[row] = words


@_compiled
def _append_words(tokens: Rows, start: int, end: int, counted: Mask, buffer: Rows, words: int) -> int:
    for i in range(start, end):
        if counted[tokens[i]]:
            buffer[words] = tokens[i]
            words += 1
    return words


@_compiled
def _shingle(
    texts: tuple[Rows, Offsets, Rows, Offsets],
    counted: Mask,
    span: tuple[int, int],
    buffer: Rows,
    values: Hashes,
    offsets: Offsets,
    sequences: Hashes,
) -> None:
    """Compute the rows in `span` of the result; the offset of the first must be set. texts: in two parts."""
    first, first_offsets, second, second_offsets = texts
    for row in range(*span):
        words = _append_words(first, first_offsets[row], first_offsets[row + 1], counted, buffer, 0)
        words = _append_words(second, second_offsets[row], second_offsets[row + 1], counted, buffer, words)
        sequences[row] = _hash(buffer, 0, words)
        shingles = min(words, max(1, words - SHINGLE_WORDS + 1))
        for shingle in range(shingles):
            values[offsets[row] + shingle] = _hash(buffer, shingle, min(words, shingle + SHINGLE_WORDS))
        offsets[row + 1] = _make_set(values, offsets[row], shingles)


@_compiled
def _min_shared(total: int, rule: _Rule) -> int:
    """Return the smallest integer of at least `total` times the rule's fraction; strict: above it."""
    product = total * rule.numerator
    return product // rule.denominator + 1 if rule.strict else -(-product // rule.denominator)


@_compiled
def _prefix_size(size: int, rule: _Rule) -> int:
    """Return how many of a set's rarest elements suffice to share one with every near-duplicate."""
    return size - _min_shared(size, rule) + 1 if size else 0


@_compiled
def _count_elements(values: Hashes, sketch: _Sketch) -> None:
    for value in values:
        bucket = value >> sketch.shift
        if sketch.counts[bucket] < 65535:
            sketch.counts[bucket] += 1


@_compiled
def _select(
    values: Hashes,
    offsets: Offsets,
    sketch: _Sketch,
    min_count: int,
    rule: _Rule,
    elements: Hashes,
    ends: Offsets,
) -> None:
    """Select the rarest elements of each set that at least `min_count` sets of the index have."""
    at = 0
    for row in range(len(offsets) - 1):
        own = values[offsets[row] : offsets[row + 1]]
        counts = np.empty(len(own), np.int64)
        for i in range(len(own)):
            counts[i] = sketch.counts[own[i] >> sketch.shift]
        # A stable sort of ascending values: equally rare elements come in the same order in all sets.
        order = np.argsort(counts, kind="mergesort")
        for i in order[: _prefix_size(len(own), rule)]:
            if counts[i] >= min_count:
                elements[at] = own[i]
                at += 1
        ends[row + 1] = at


@_compiled
def _count_shared(own: Hashes, other: Hashes, needed: int) -> int:
    """Count the values in both sets; any number below `needed` if that cannot be reached."""
    shared = i = j = 0
    while i < len(own) and j < len(other):
        if shared + min(len(own) - i, len(other) - j) < needed:
            break
        if own[i] == other[j]:
            shared += 1
            i += 1
            j += 1
        elif own[i] < other[j]:
            i += 1
        else:
            j += 1
    return shared


@_compiled
def _compare(
    queries: _Queries,
    index: _Lists,
    rule: _Rule,
    limits: _Limits,
    span: tuple[int, int],
    compared: Rows,
    found: tuple[Rows, Rows, NDArray[np.float32]],
) -> tuple[int, int, int]:
    """Compare the queries in `span` with the index; return (query reached, pairs found, queries cut).

    compared [N]: the query that each set was last compared with. found: room for the pairs; stops early when
    the next query may have more pairs than fit.
    """
    rows, others, jaccard = found
    # s / (a + b - s) >= t if and only if s >= (a + b) t / (1 + t)
    of_both = _Rule(rule.numerator, rule.numerator + rule.denominator, rule.strict)
    count = cut = 0
    for row in range(*span):
        if count > len(rows) - limits.compared:
            return row, count, cut
        own = queries.values[queries.offsets[row] : queries.offsets[row + 1]]
        left = limits.compared
        for i in range(queries.ends[row], queries.ends[row + 1]):
            if queries.lists[i] < 0:
                continue
            for at in range(index.starts[queries.lists[i]], index.starts[queries.lists[i] + 1]):
                other = index.rows[at]
                if (limits.earlier and other >= row) or left < 0:
                    break
                if compared[other] == row:
                    continue
                compared[other] = row
                left -= 1
                if left < 0:
                    break
                theirs = index.values[index.offsets[other] : index.offsets[other + 1]]
                needed = _min_shared(len(own) + len(theirs), of_both)
                if min(len(own), len(theirs)) < needed:
                    continue
                shared = _count_shared(own, theirs, needed)
                if shared >= needed:
                    rows[count], others[count] = row, other
                    jaccard[count] = shared / (len(own) + len(theirs) - shared)
                    count += 1
        cut += left < 0
    return span[1], count, cut
