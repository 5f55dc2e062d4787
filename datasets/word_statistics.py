"""How often words, terms and names occur in a collection, for a corpus of some of its papers.

A large library ranks a few hundred papers at a time. Their words are weighted as in the whole
collection: `Corpus.whole`. Only hashes of what occurs at least twice are kept; all else counts as once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from citerec.base.errors import DamagedFile
from citerec.base.files import write_text
from citerec.datasets.columns import load_array, save_arrays

Hashes = NDArray[np.uint64]

WORD, BM25_TERM, TERM, BEGINNING = "word", "bm25_term", "term", "beginning"
"""Kinds: words by their occurrences; terms of BM25, terms of the ranker and beginnings of words
(retrieval.lexical.terms) by the papers that have them. The ranker's names (CorpusStatistics.NAMES) are
further kinds."""
ENTRIES, BLOCKS, TOTALS = "counts", "blocks", "statistics.json"
"""Files: what occurs, checksums of its blocks, totals."""
ENTRY = np.dtype([("hash", "<u8"), ("count", "<u4")])
BLOCK_ENTRY = np.dtype([("first", "<u8"), ("digest", "<u8")])
"""The first hash of a block of entries, and its checksum."""
BLOCK = 340
"""Entries of a block: 4 KB, a page."""


class WordStatistics:
    """Counts of a collection of papers.

    papers: their number. words: the number of occurrences of all words. averages: mean length of a text, by
    kind. entries [n] of ENTRY, by hash: what occurs at least twice, and how often. blocks [n / BLOCK] of
    BLOCKS.
    """

    def __init__(
        self,
        papers: int,
        words: int,
        averages: dict[str, float],
        entries: NDArray[np.void],
        blocks: NDArray[np.void],
    ) -> None:
        self.papers, self.words, self.averages = papers, words, averages
        self._hashes, self._counts = entries["hash"], entries["count"]
        self._bytes = entries.view(np.uint8)
        self._first, self._digests = np.array(blocks["first"]), blocks["digest"]
        self._checked = np.zeros(len(blocks), np.bool_)

    def __len__(self) -> int:
        return len(self._hashes)

    @classmethod
    def open(cls, folder: Path) -> WordStatistics:
        """Memory-map what `write` has written."""
        totals = json.loads((folder / TOTALS).read_text("utf-8"))
        return cls(**totals, entries=load_array(folder, ENTRIES), blocks=load_array(folder, BLOCKS))

    @staticmethod
    def write(folder: Path, entries: Sequence[NDArray[np.void]], totals: Mapping[str, Any]) -> None:
        """Write the files of a collection. entries: in parts, by hash. totals: the other fields by name."""
        blocks, rest = list[tuple[int, int]](), np.empty(0, ENTRY)
        with (folder / f"{ENTRIES}.npy").open("wb") as file:
            header = {"descr": ENTRY.descr, "fortran_order": False, "shape": (sum(map(len, entries)),)}
            np.lib.format.write_array_header_1_0(file, header)
            for part in [*entries, None]:
                rest = rest if part is None else np.concatenate([rest, part])
                whole = len(rest) if part is None else len(rest) // BLOCK * BLOCK
                for start in range(0, whole, BLOCK):
                    block = rest[start : start + BLOCK].tobytes()
                    blocks.append((int(rest["hash"][start]), xxhash.xxh3_64_intdigest(block)))
                    file.write(block)
                rest = rest[whole:]
        save_arrays(folder, **{BLOCKS: np.array(blocks, BLOCK_ENTRY)})
        write_text(folder / TOTALS, json.dumps(totals, indent=1) + "\n")

    def count(self, kind: str, names: Sequence[str]) -> NDArray[np.int64]:
        """Return how often each name occurs, [n]; 1 for those that occur once or never."""
        return self.count_hashes(kind, hash_names(names))

    def count_hashes(self, kind: str, hashes: Hashes) -> NDArray[np.int64]:
        """Like `count`, for hashes of names [n]. Raises DamagedFile if a block that is read was changed."""
        if not len(self):
            return np.ones(len(hashes), np.int64)
        salted = hashes ^ salt(kind)
        block = np.searchsorted(self._first, salted, side="right") - 1
        self._check(block[block >= 0])
        low = block.clip(min=0) * BLOCK
        high = np.minimum(low + BLOCK, len(self))  # the last place with a hash that is not larger is searched
        while (high - low > 1).any():
            middle = (low + high) // 2
            right = self._hashes[middle] <= salted
            low, high = np.where(right, middle, low), np.where(right, high, middle)
        return np.where(self._hashes[low] == salted, self._counts[low].astype(np.int64), 1)

    def _check(self, blocks: NDArray[np.int64]) -> None:
        """Compare the blocks that have not been read before with their checksums."""
        size = BLOCK * ENTRY.itemsize
        for block in np.unique(blocks[~self._checked[blocks]]).tolist():
            if (
                xxhash.xxh3_64_intdigest(self._bytes[block * size : (block + 1) * size].data)
                != self._digests[block]
            ):
                raise DamagedFile(f"{ENTRIES}.npy: damaged (its content has changed)")
            self._checked[block] = True


def hash_names(names: Iterable[str]) -> Hashes:
    """Hash names [n] to 64 bits."""
    return np.fromiter(
        (xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")) for name in names), np.uint64
    )


@lru_cache
def salt(kind: str) -> np.uint64:
    """Return the number that tells the hashes of a kind from those of others."""
    return np.uint64(xxhash.xxh3_64_intdigest(f"statistics of {kind}".encode()))
