"""Near-duplicates: an exact search for pairs of texts or titles with a high enough Jaccard similarity.

A text is the set of its shingles (three consecutive words), a title the set of its words. Two sets that are
similar enough share one of the rarest elements of each (the prefix filter of Chaudhuri, Ganti and Kaushik
2006): a sparse matrix product finds the pairs that do, and a second one counts what they share.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from citerec.datasets.columns import Ragged, concat_ranges, offsets_of
from citerec.datasets.records import MARKER_WORDS

SHINGLE_WORDS = 3
"""Words per shingle; a shorter text is a single shingle."""
MAX_COMPARED = 1000
"""Texts that a rare element finds, the first ones; bounds the time when thousands share a few words."""
ROWS, PAIRS = 20_000, 200_000
"""Texts looked up and pairs compared at a time."""
_NOT_IN_WORDS = re.compile(r"[\W_]+")

Hashes = NDArray[np.uint64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Sets:
    """Sets of elements: rows of a matrix [N, E] with columns from the rarest element to the most frequent.

    sizes [N]: of the sets, with elements that have no column, as no other set has them.
    """

    matrix: csr_array
    sizes: Rows

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True)
class Pairs:
    """Near-duplicates: `rows` [n] of the queries, `others` [n] of the index.

    cut: sets of the index that were not compared with all queries that share a rare element with them.
    """

    rows: Rows
    others: Rows
    cut: int


def near_pairs(
    queries: Sets, index: Sets, threshold: Fraction, strict: bool = False, before: bool = False
) -> Pairs:
    """Find the near-duplicates of each query in an index of the same columns, in order.

    threshold: lowest Jaccard similarity; strict: it must be exceeded. before: the queries are the sets of the
    index, each compared with those before it only.
    """
    lists = _rarest(index, threshold, strict).T.tocsr()
    lists.sort_indices()
    kept, offsets = concat_ranges(
        lists.indptr[:-1], np.minimum(lists.indptr[1:], lists.indptr[:-1] + MAX_COMPARED)
    )
    dropped, _ = concat_ranges(
        np.minimum(lists.indptr[1:], lists.indptr[:-1] + MAX_COMPARED + 1), lists.indptr[1:]
    )
    cut = len(np.unique(lists.indices[dropped]))
    lists = csr_array((lists.data[kept], lists.indices[kept], offsets), shape=lists.shape)
    rare = _rarest(queries, threshold, strict)
    rows, others = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, len(queries), ROWS):
        sharing = (rare[start : start + ROWS] @ lists).tocoo()
        pairs = np.stack([sharing.row.astype(np.int64) + start, sharing.col.astype(np.int64)])
        pairs = pairs[:, np.lexsort((pairs[1], pairs[0]))]
        if before:
            pairs = pairs[:, pairs[1] < pairs[0]]
        for first in range(0, pairs.shape[1], PAIRS):
            row, other = pairs[:, first : first + PAIRS]
            shared = queries.matrix[row].multiply(index.matrix[other]).sum(axis=1).astype(np.int64)
            total = queries.sizes[row] + index.sizes[other]
            # s / (a + b - s) >= t if and only if s >= (a + b) t / (1 + t)
            near = shared >= _at_least(total, threshold / (1 + threshold), strict)
            rows.append(row[near])
            others.append(other[near])
    return Pairs(np.concatenate(rows), np.concatenate(others), cut)


def _rarest(sets: Sets, threshold: Fraction, strict: bool) -> csr_array:
    """Select elements of each set of which every near-duplicate has at least one [N, E]."""
    starts, ends = sets.matrix.indptr[:-1], sets.matrix.indptr[1:]
    # Elements without a column are the rarest.
    count = sets.sizes - _at_least(sets.sizes, threshold, strict) + 1 - (sets.sizes - (ends - starts))
    kept, offsets = concat_ranges(starts, starts + np.clip(count, 0, ends - starts))
    return csr_array((np.ones(len(kept), np.bool_), sets.matrix.indices[kept], offsets), sets.matrix.shape)


def _at_least(total: Rows, share: Fraction, strict: bool) -> Rows:
    """Return the smallest whole numbers of at least a share of the totals; strict: above it."""
    product = total * share.numerator
    return product // share.denominator + 1 if strict else -(-product // share.denominator)


def exact_fraction(share: float) -> Fraction:
    """Convert a decimal share to the fraction it stands for.

    >>> exact_fraction(0.7)
    Fraction(7, 10)
    """
    return Fraction(round(share * 1_000_000), 1_000_000)


class TitleIndex:
    """An index of titles [T] for finding near-duplicates: Jaccard similarity of words above the threshold.

    Nogueira et al. 2020, section 4.1, remove training papers whose titles are that similar to the title of a
    test paper. Case and special characters are ignored. Queries may be passed in batches.
    """

    def __init__(self, titles: Sequence[str], threshold: float) -> None:
        words = list(map(_title_words, titles))
        counts = Counter(chain.from_iterable(words)).most_common()
        self._columns = {word: column for column, (word, _) in enumerate(reversed(counts))}
        self._sets, self._threshold = self._make(words), exact_fraction(threshold)

    def matches(self, titles: Sequence[str]) -> Mask:
        """Return a mask [N] of the titles that have a near-duplicate in the index."""
        matching = np.zeros(len(titles), np.bool_)
        queries = self._make(list(map(_title_words, titles)))
        matching[near_pairs(queries, self._sets, self._threshold, strict=True).rows] = True
        return matching

    def _make(self, titles: Sequence[set[str]]) -> Sets:
        columns = [sorted(self._columns[word] for word in words if word in self._columns) for words in titles]
        offsets = offsets_of(np.array([len(row) for row in columns], np.int64))
        values = np.fromiter(chain.from_iterable(columns), np.int64, offsets[-1])
        shape = (len(titles), len(self._columns))
        matrix = csr_array((np.ones(len(values), np.int32), values, offsets), shape)
        return Sets(matrix, np.array([len(words) for words in titles], np.int64))


def _title_words(title: str) -> set[str]:
    return set(_NOT_IN_WORDS.sub(" ", unicodedata.normalize("NFKC", title).lower()).split())


def counted_words(words: Sequence[str]) -> Mask:
    """Return a mask [V] of the tokens that count as words: a letter or digit, and not a citation marker.

    >>> counted_words(["graph", "(targetcit)", ".", "2-d"]).tolist()
    [True, False, False, True]
    """
    mask = (any(map(str.isalnum, word)) and not any(m in word for m in MARKER_WORDS) for word in words)
    return np.fromiter(mask, np.bool_, len(words))


def word_lengths(tokens: Ragged, counted: Mask) -> Rows:
    """Count the words of each text [rows]. counted: mask [V] of the tokens that are words."""
    words = np.append(0, np.cumsum(counted[tokens.values]))
    return np.asarray(words[tokens.offsets[1:]] - words[tokens.offsets[:-1]])


def shingle_sets(parts: Iterable[Ragged], counted: Mask) -> tuple[Sets, Hashes]:
    """Return the shingles of each text, and a hash of each text's word sequence [rows].

    parts: the tokens of the texts; rows of several parts, e.g. title and abstract, are joined. counted: mask
    [V] of the tokens that are words.
    """
    parts = list(parts)
    row = np.concatenate([np.repeat(np.arange(len(part)), part.lengths) for part in parts])
    word = np.concatenate([np.asarray(part.values) for part in parts])
    row, word = row[counted[word]], word[counted[word]].astype(np.uint64) + np.uint64(1)
    order = np.argsort(row, kind="stable")
    row, word = row[order], word[order]
    lengths = np.bincount(row, minlength=len(parts[0]))
    starts = offsets_of(lengths)
    place = np.arange(len(row)) - starts[row]
    sums = np.append(np.uint64(0), np.cumsum(_mix(_mix(word) + place.astype(np.uint64))))
    sequences = np.asarray(sums[starts[1:]] - sums[starts[:-1]])
    hashes = _mix(word)
    for ahead in range(1, SHINGLE_WORDS):  # behind the end of a short text is word 0
        after = np.append(word[ahead:], np.zeros(min(ahead, len(word)), np.uint64))
        hashes = _mix(hashes + np.where(place + ahead < lengths[row], after, np.uint64(0)))
    begins = place < np.maximum(1, lengths[row] - SHINGLE_WORDS + 1)
    return _make_sets(row[begins], hashes[begins], len(parts[0])), sequences


def _make_sets(rows: Rows, elements: Hashes, count: int) -> Sets:
    """Group elements [n] by their rows [n] to `count` sets; those that occur once get no column."""
    _, number, counts = np.unique(elements, return_inverse=True, return_counts=True)
    order = np.argsort(counts, kind="stable")
    single = int((counts == 1).sum())
    columns = np.empty(len(order), np.int64)
    columns[order] = np.arange(len(order)) - single
    column = columns[number]
    alone = np.bincount(rows[column < 0], minlength=count)
    rows, column = rows[column >= 0], column[column >= 0]
    matrix = csr_array((np.ones(len(rows), np.int32), (rows, column)), (count, len(order) - single))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return Sets(matrix, alone + np.diff(matrix.indptr))


def _mix(value: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014) [n]."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)))
