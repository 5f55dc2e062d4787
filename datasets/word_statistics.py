"""How often words, terms and names occur in a collection, for a corpus of some of its papers.

A large library ranks a few hundred papers at a time. Their words are weighted as in the whole collection:
`Corpus.whole`. Only hashes of what occurs at least twice are kept; all else counts as once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from citerec.base.files import write_text
from citerec.datasets.columns import load_array, save_arrays

Hashes = NDArray[np.uint64]

WORD, BM25_TERM, TERM, BEGINNING = "word", "bm25_term", "term", "beginning"
"""Kinds of counts. Words are counted by their occurrences; terms of BM25, terms of the ranker and beginnings
of words (retrieval.lexical.terms) by the papers that have them. The ranker's names (CorpusStatistics.NAMES)
are further kinds."""
TOTALS = "statistics.json"


@dataclass(frozen=True, eq=False)
class WordStatistics:
    """Counts of a collection.

    papers: their number. words: the number of occurrences of all words. averages: mean length of a text, by
    kind. hashes [n]: of what occurs at least twice, ascending; counts [n]: how often.
    """

    papers: int
    words: int
    averages: dict[str, float]
    hashes: Hashes
    counts: NDArray[np.int64]

    @classmethod
    def open(cls, folder: Path) -> WordStatistics:
        """Memory-map what `save` has written."""
        totals = json.loads((folder / TOTALS).read_text("utf-8"))
        return cls(**totals, hashes=load_array(folder, "hashes"), counts=load_array(folder, "counts"))

    def save(self, folder: Path) -> None:
        """Write the statistics to a folder."""
        save_arrays(folder, hashes=self.hashes, counts=self.counts)
        totals = {"papers": self.papers, "words": self.words, "averages": self.averages}
        write_text(folder / TOTALS, json.dumps(totals, indent=1) + "\n")

    def count(self, kind: str, names: Sequence[str]) -> NDArray[np.int64]:
        """Return how often each name occurs, [n]; 1 for those that occur once or never."""
        return self.count_hashes(kind, hash_names(names))

    def count_hashes(self, kind: str, hashes: Hashes) -> NDArray[np.int64]:
        """Like `count`, for hashes of names [n]."""
        if not len(self.hashes):
            return np.ones(len(hashes), np.int64)
        salted = hashes ^ salt(kind)
        place = np.searchsorted(self.hashes, salted).clip(max=len(self.hashes) - 1)
        return np.where(self.hashes[place] == salted, self.counts[place], 1)


def hash_names(names: Iterable[str]) -> Hashes:
    """Hash names [n] to 64 bits."""
    return np.fromiter(
        (xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")) for name in names), np.uint64
    )


@lru_cache
def salt(kind: str) -> np.uint64:
    """Return the number that distinguishes the hashes of a kind from those of others."""
    return np.uint64(xxhash.xxh3_64_intdigest(f"statistics of {kind}".encode()))
