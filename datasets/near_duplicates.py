"""Near-duplicates: an exact search for titles that share most of their words.

Two sets that are similar enough share one of the rarest elements of each (the prefix filter of Chaudhuri,
Ganti and Kaushik 2006): a sparse matrix product finds the pairs that do, and a second one counts what they
share.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from citerec.datasets.columns import concat_ranges, offsets_of

MAX_COMPARED = 1000
"""Titles that a rare word finds, the first ones; bounds the time when thousands share a few words."""
ROWS, PAIRS = 20_000, 200_000
"""Titles looked up and pairs compared at a time."""
_NOT_IN_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class _Titles:
    """Titles as rows of a matrix [N, E], with columns from the rarest word to the most frequent.

    sizes [N]: words of each, with those that have no column, which are in no title of the index.
    """

    matrix: csr_array
    sizes: NDArray[np.int64]

    def rarest(self, threshold: Fraction) -> csr_array:
        """Select words of each title of which every near-duplicate has at least one [N, E]."""
        starts, ends = self.matrix.indptr[:-1], self.matrix.indptr[1:]
        least = self.sizes * threshold.numerator // threshold.denominator + 1
        # Words without a column are the rarest.
        count = self.sizes - least + 1 - (self.sizes - (ends - starts))
        kept, offsets = concat_ranges(starts, starts + np.clip(count, 0, ends - starts))
        return csr_array(
            (np.ones(len(kept), np.bool_), self.matrix.indices[kept], offsets), self.matrix.shape
        )


class TitleIndex:
    """An index of titles [T] for finding near-duplicates: Jaccard similarity of words above the threshold.

    Nogueira et al. 2020, section 4.1, remove training papers whose titles are that similar to the title of a
    test paper. Case and special characters are ignored. Queries may be passed in batches.
    """

    def __init__(self, titles: Sequence[str], threshold: float) -> None:
        words = list(map(_title_words, titles))
        counts = Counter(chain.from_iterable(words)).most_common()
        self._columns = {word: column for column, (word, _) in enumerate(reversed(counts))}
        self._threshold = Fraction(round(threshold * 1_000_000), 1_000_000)  # what the decimal stands for
        self._titles = self._make(words)
        lists = self._titles.rarest(self._threshold).T.tocsr()
        lists.sort_indices()
        kept, offsets = concat_ranges(
            lists.indptr[:-1], np.minimum(lists.indptr[1:], lists.indptr[:-1] + MAX_COMPARED)
        )
        self._found_by = csr_array((lists.data[kept], lists.indices[kept], offsets), shape=lists.shape)

    def matches(self, titles: Sequence[str]) -> NDArray[np.bool_]:
        """Return a mask [N] of the titles that have a near-duplicate in the index."""
        matching = np.zeros(len(titles), np.bool_)
        queries, above = self._make(list(map(_title_words, titles))), self._threshold
        rare = queries.rarest(above)
        for start in range(0, len(titles), ROWS):
            sharing = (rare[start : start + ROWS] @ self._found_by).tocoo()
            for first in range(0, sharing.nnz, PAIRS):
                row = sharing.row[first : first + PAIRS].astype(np.int64) + start
                other = sharing.col[first : first + PAIRS]
                both = queries.matrix[row].multiply(self._titles.matrix[other])
                shared = both.sum(axis=1).astype(np.int64)
                total = queries.sizes[row] + self._titles.sizes[other]
                # s / (a + b - s) > n / d if and only if s (n + d) > n (a + b)
                near = shared * (above.numerator + above.denominator) > above.numerator * total
                matching[row[near]] = True
        return matching

    def _make(self, titles: Sequence[set[str]]) -> _Titles:
        columns = [sorted(self._columns[word] for word in words if word in self._columns) for words in titles]
        offsets = offsets_of(np.array([len(row) for row in columns], np.int64))
        values = np.fromiter(chain.from_iterable(columns), np.int64, offsets[-1])
        shape = (len(titles), len(self._columns))
        matrix = csr_array((np.ones(len(values), np.int32), values, offsets), shape)
        return _Titles(matrix, np.array([len(words) for words in titles], np.int64))


def _title_words(title: str) -> set[str]:
    return set(_NOT_IN_WORDS.sub(" ", unicodedata.normalize("NFKC", title).lower()).split())
