"""How often words, terms and names occur in a collection, for a corpus of some of its papers.

A large library ranks a few hundred papers at a time (library.disk). Their words are weighted as in the whole
collection: `Corpus.whole`. Only hashes of what occurs at least twice are kept; all else counts as once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from citerec.datasets.columns import load_array

Hashes = NDArray[np.uint64]

WORD, BM25_TERM, TERM, BEGINNING, PAIR = "word", "bm25_term", "term", "beginning", "pair"
"""Kinds: words by their occurrences; terms of BM25, terms of the ranker and beginnings of words
(retrieval.lexical.terms) by the papers that have them; pairs of adjacent terms in titles by their
occurrences. The ranker's names (CorpusStatistics.NAMES) are further kinds."""
TOTALS = "statistics.json"
_MIX = np.uint64(0x9E3779B97F4A7C15)


class WordStatistics:
    """Counts of a collection of papers.

    papers: their number. words: the number of occurrences of all words. averages: mean length of a text, by
    kind. hashes [n]: ascending, of what occurs at least twice; counts [n]: how often.
    """

    def __init__(
        self,
        papers: int,
        words: int,
        averages: dict[str, float],
        hashes: Hashes,
        counts: NDArray[np.integer],
    ) -> None:
        self.papers, self.words, self.averages = papers, words, averages
        self._hashes, self._counts = hashes, counts

    def __len__(self) -> int:
        return len(self._hashes)

    @classmethod
    def open(cls, folder: Path) -> WordStatistics:
        """Memory-map what library.disk.counts wrote."""
        totals = json.loads((folder / TOTALS).read_text("utf-8"))
        return cls(**totals, hashes=load_array(folder, "hashes"), counts=load_array(folder, "counts"))

    def count(self, kind: str, names: Sequence[str]) -> NDArray[np.int64]:
        """Return how often each name occurs, [n]; 1 for those that occur once or never."""
        return self.count_hashes(kind, hash_names(names))

    def count_hashes(self, kind: str, hashes: Hashes) -> NDArray[np.int64]:
        """Like `count`, for hashes of names [n]."""
        if not len(self._hashes):
            return np.ones(len(hashes), np.int64)
        salted = hashes ^ salt(kind)
        order = np.argsort(salted)  # neighbours are looked up faster
        place = np.empty(len(hashes), np.int64)
        place[order] = np.searchsorted(self._hashes, salted[order]).clip(max=len(self._hashes) - 1)
        return np.where(self._hashes[place] == salted, self._counts[place].astype(np.int64), 1)


def hash_names(names: Iterable[str]) -> Hashes:
    """Hash names [n] to 64 bits."""
    return np.fromiter(
        (xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")) for name in names), np.uint64
    )


def hash_pairs(first: Hashes, second: Hashes) -> Hashes:
    """Hash pairs of names, given by their hashes [n]."""
    mixed = (first * _MIX) ^ (first >> np.uint64(32))
    return (mixed ^ second) * _MIX


@lru_cache
def salt(kind: str) -> np.uint64:
    """Return the number that tells the hashes of a kind from those of others."""
    return np.uint64(xxhash.xxh3_64_intdigest(f"statistics of {kind}".encode()))
