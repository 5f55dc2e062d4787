"""Retrieval by vectors: what HAtten, averaged word vectors and article encoders share."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.store import Corpus
from retrieval.base import Retriever, check_encoding
from retrieval.encode import Remembered
from retrieval.halves import Halves
from retrieval.indexes import IndexConfig, PaperIndex, build_index, load_index
from retrieval.profiles import ProfileConfig, with_profiles
from retrieval.ranking import Ranking

NORMALISATION = "unit"
"""Vectors are of unit length, so that their inner product is the cosine."""


class DenseRetriever(Retriever):
    """Nearest papers to a query by cosine. Subclasses fill in what makes vectors.

    index: how vectors are searched (retrieval.indexes). profile: whether papers are enriched by the training
    contexts that cite them (retrieval.profiles).
    """

    def __init__(self, index: IndexConfig | None = None, profile: ProfileConfig | None = None) -> None:
        super().__init__()
        self.index_config = index or IndexConfig()
        self.profile = profile or ProfileConfig()
        self.encoding = "local"
        self._remembered: Remembered | None = None

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What vectors depend on beside the corpus, as plain values: options, a hash of the weights."""

    @abstractmethod
    def prepare(self, corpus: Corpus) -> None:
        """Get ready to read queries and papers of a corpus."""

    @abstractmethod
    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Papers, rows [n] -> [n, D] of unit length; zeros where there is nothing to encode."""

    @abstractmethod
    def encode_queries(self, contexts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Contexts, rows [Q] -> [Q, D] of unit length; zeros where there is nothing to encode."""

    def paper_vectors(self, corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.float32] | Halves:
        """As `encode_papers`, by whoever encodes; the retriever is prepared for the corpus."""
        if self.encoding == "ray":
            from retrieval import over_ray

            return over_ray.encode_papers(self, corpus, rows)
        return self.encode_papers(rows)

    def settings(self) -> dict[str, Any]:
        return {
            "normalisation": NORMALISATION,
            **self.fingerprint(),
            "index": self.index_config.asdict(),
            "profile": self.profile.asdict(),
        }

    def encode_with(self, encoding: str) -> None:
        check_encoding(encoding)
        self.encoding = encoding

    def remember_queries(self) -> None:
        """Keep the vectors of queries from now on, until another corpus is indexed."""
        self._remembered = Remembered()

    @property
    def index_bytes(self) -> int:
        return self._vectors.nbytes

    def _index(self, corpus: Corpus) -> None:
        self._remembered = None
        self.prepare(corpus)
        self._candidates = np.flatnonzero(corpus.is_candidate)
        self.index_config.check(len(self._candidates))  # before the work of encoding
        vectors = self.paper_vectors(corpus, self._candidates)
        if self.profile.weight != 0:
            vectors, weight = with_profiles(
                np.asarray(vectors), corpus, self._candidates, self.encode_queries, self.profile
            )
            self.tuned = {"profile.weight": weight}
        self._vectors: PaperIndex = build_index(self.index_config, vectors)

    def _search(self, contexts: NDArray[np.int64], k: int, allowed: NDArray[np.bool_] | None) -> Ranking:
        if self._remembered is None:
            queries = self.encode_queries(contexts)
        else:
            queries = np.stack(self._remembered.of(contexts, self.encode_queries))
        found = self._vectors.search(queries, k, None if allowed is None else allowed[self._candidates])
        # A query without a known word is as near to every paper as to any other: it gets none.
        there = (found.papers >= 0) & queries.any(axis=1, keepdims=True)
        papers = np.where(there, self._candidates[found.papers], -1).astype(np.int32)
        return Ranking(papers, np.where(there, found.scores, np.float32(-np.inf)))

    def _save(self, folder: Path) -> None:
        ids = self.corpus.paper_ids
        with (folder / "ids.txt").open("w", encoding="utf-8") as file:
            file.writelines(f"{ids[row]}\n" for row in self._candidates.tolist())
        self._vectors.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._remembered = None
        self.prepare(corpus)
        self._candidates = np.flatnonzero(corpus.is_candidate)
        self._vectors = load_index(self.index_config, folder)
        if len(self._vectors) != len(self._candidates):
            raise InputError(
                f"{folder}: {len(self._vectors):,} vectors for {len(self._candidates):,} candidates; "
                "make the index again"
            )
