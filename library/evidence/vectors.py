"""Vectors of passages by the encoder of a library's model, kept by the hashes of the papers' texts.

Each text is kept as the papers are (retrieval.networks.store), its passages as its sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from citerec.library.evidence.index import PassageIndex
from citerec.library.evidence.store import TextStore
from citerec.retrieval.arrays import Floats
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.networks.networks import PASSAGE
from citerec.retrieval.networks.store import Keys, VectorStore

ENCODED = "encoded"
"""Folder of the vectors beside the texts."""
PART = 8
"""Texts that are encoded between two writes: a kill loses some seconds of work."""


class PassageVectors:
    """The vectors of the texts in an index, and those that are missing."""

    def __init__(
        self, folder: Path, texts: TextStore, index: PassageIndex, encoder: NetworkRetriever
    ) -> None:
        """folder: of the full texts. encoder: of a library's papers."""
        self._texts, self._index, self._encoder = texts, index, encoder
        networks = encoder.networks
        self.store = VectorStore(folder / ENCODED, f"{networks.identity} {PASSAGE}", networks.dim)

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._index.papers)

    @property
    def keys(self) -> Keys:
        """Keys of the texts in the store [P]."""
        return self._index.hashes.view(np.uint64)

    def missing(self) -> NDArray[np.int64]:
        """Rows of the index's papers whose texts have no vectors."""
        return np.flatnonzero(~self.store.known(self.keys))

    def refresh(self) -> None:
        """Read what other processes have encoded."""
        self.store.refresh()

    def encode(
        self,
        rows: NDArray[np.integer],
        advance: Callable[[int], None] | None = None,
        pool: Executor | None = None,
    ) -> None:
        """Encode texts, PART by PART; each part is kept before the next begins."""
        for start in range(0, len(rows), PART):
            part, texts = list[int](), list[list[str]]()
            for row in rows[start : start + PART].tolist():
                stored, passages = self._texts.text(self._index.papers[row])
                if stored.hash == self._index.hashes[row]:  # has not changed since the index was opened
                    part.append(row)
                    texts.append([passage.text for passage in passages])
            if part:
                self.store.append(self._encoder.networks.encode_texts(self.keys[part], texts, pool))
            if advance is not None:
                advance(len(rows[start : start + PART]))

    def cosines(self, context: str, papers: NDArray[np.int64]) -> Floats:
        """Return the cosines [n] of a context with the passages of papers (rows of the index), in their
        order; NaN for texts without vectors."""
        counts, keys = np.diff(self._index.offsets)[papers].tolist(), self.keys[papers]
        parts = [np.full(count, np.nan, np.float32) for count in counts]
        encoded = np.flatnonzero(self.store.known(keys)).tolist()
        if encoded:
            networks = self._encoder.networks
            [vector] = self._encoder.text_vectors(networks.reader.passages([context], [""]))
            for number in encoded:
                parts[number] = self.store.sentences(int(keys[number])) @ vector
        return np.concatenate(parts)
