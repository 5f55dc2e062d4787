"""Dense retrieval: `DenseRetriever` finds the nearest papers by an encoder's vectors.

Subclasses provide the encoder: of subwords in retrieval.encoders.article, of words in hatten.retriever.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.indexes.cpu import PaperIndex
from citerec.retrieval.indexes.index import build_index, check_index, load_index
from citerec.retrieval.queries import Queries, context_fields
from citerec.retrieval.settings import QUERY_FIELDS, IndexConfig
from citerec.retrieval.vectors import VectorTable, blocks

NORMALISATIONS = {"cosine": "unit", "l2": "squares"}
"""How vectors are indexed by similarity: with unit length, so that their inner product is the cosine, or with
half of their squared length."""
IDS = "ids.txt"
"""Ids of the papers of an index, line by line."""
KEPT = 1 << 14
"""Contexts whose vectors are kept."""


class DenseRetriever(Retriever):
    """Finds the nearest papers by cosine, or by `similarity`. Subclasses implement the encoding."""

    reads_contexts = False
    similarity = "cosine"
    """cosine, or l2: the negative Euclidean distance of vectors that are not normalised; papers are then
    indexed as (v, -|v|^2 / 2), and queries are (q, 1), as |q - v|^2 = |q|^2 - 2 (q.v - |v|^2 / 2)"""
    model: Any = None
    """the trained model that encodes, if it can be saved"""

    def __init__(self, index: IndexConfig | None = None) -> None:
        """index: the vector index."""
        super().__init__()
        self.index_config = index or IndexConfig()
        self._last: tuple[Queries | None, Floats] = None, np.empty((0, 0), np.float32)
        self._kept: dict[int, Floats] = {}
        """vectors of contexts, by their rows"""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Everything the vectors depend on besides the corpus, as plain values: options, weights hash."""

    @abstractmethod
    def prepare(self, corpus: Corpus) -> None:
        """Prepare to read queries and papers of a corpus."""

    @abstractmethod
    def encode_papers(self, rows: Rows) -> Floats:
        """Rows of papers [n] -> [n, D] of unit length, zeros for papers without known words."""

    @abstractmethod
    def encode_queries(self, queries: Queries | Rows) -> Floats:
        """Queries, or rows of contexts, [Q] -> [Q, D] of unit length, zeros if no word is known."""

    def paper_vectors(self, corpus: Corpus, rows: Rows) -> Floats | VectorTable:
        """Encode papers, after `prepare`."""
        return self.encode_papers(rows)

    def settings(self) -> dict[str, Any]:
        return {
            "normalisation": NORMALISATIONS.get(self.similarity, "none"),
            **self.fingerprint(),
            "index": self.index_config.asdict(),
        }

    @property
    def index_bytes(self) -> int:
        return self._vectors.nbytes

    def _index(self, corpus: Corpus) -> None:
        check_index(self.index_config, len(self._candidates))  # before encoding, which is slow
        vectors = self.paper_vectors(corpus, self._candidates)
        self._vectors: PaperIndex = build_index(self.index_config, vectors)

    def _prepare(self, corpus: Corpus) -> None:
        self._last, self._kept = (None, np.empty((0, 0), np.float32)), {}
        self.prepare(corpus)
        self._candidates = np.flatnonzero(corpus.is_candidate)

    def _query_vectors(self, queries: Queries) -> Floats:
        last, vectors = self._last  # a ranker searches for queries, then scores its candidates for them
        if last is not queries:
            vectors = self._encode(queries)
            self._last = queries, vectors
        return vectors

    def _encode(self, queries: Queries) -> Floats:
        """Encode queries; contexts are encoded once for all pools and signals that search for them."""
        rows = queries.contexts.tolist()
        if len(rows) > KEPT or min(rows, default=-1) < 0:
            return self.encode_queries(queries)
        whole = context_fields(self.corpus, queries.contexts)
        for name in QUERY_FIELDS:  # a caller may have changed the texts
            field, own = queries.fields[name], whole[name]
            is_same = field.texts is own.texts and np.array_equal(field.rows, own.rows)
            if not is_same and field.strings() != own.strings():
                return self.encode_queries(queries)
        new = {row: number for number, row in enumerate(rows) if row not in self._kept}
        if len(self._kept) + len(new) > KEPT:
            self._kept, new = {}, {row: number for number, row in enumerate(rows)}
        if new:
            vectors = self.encode_queries(queries[np.array(list(new.values()))])
            self._kept.update(zip(new, vectors, strict=True))
        return np.stack([self._kept[row] for row in rows])

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        vectors = self._query_vectors(queries)
        mask = None if allowed is None else allowed[self._candidates]
        ranking = self._vectors.search(vectors, k, mask)
        # A query without a known word is equally near to every paper and gets none.
        valid = (ranking.papers >= 0) & vectors.any(axis=1, keepdims=True)
        papers = np.where(valid, self._candidates[ranking.papers], -1).astype(np.int32)
        return Ranking(papers, np.where(valid, self._scores(vectors, ranking.scores), np.float32(-np.inf)))

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        queries = Queries.from_contexts(self.corpus, queries)
        positions, valid = self._positions(papers)
        valid &= ~queries.is_own(papers)
        scores = np.full(papers.shape, -np.inf, np.float32)
        for part in blocks(len(queries), papers.shape[1] * self._vectors.dim):
            whole = part.stop - part.start == len(queries)
            vectors = self._query_vectors(queries if whole else queries[part])
            paper_vectors = self._vectors.read(positions[part].ravel()).reshape(*positions[part].shape, -1)
            products = self._scores(vectors, (paper_vectors @ vectors[:, :, None])[:, :, 0])
            scores[part] = np.where(valid[part] & vectors.any(axis=1, keepdims=True), products, -np.inf)
        return scores

    def _scores(self, vectors: Floats, products: Floats) -> Floats:
        """Inner products of queries [Q, D] with papers [Q, K], or negative distances."""
        if self.similarity != "l2":
            return products
        squares = np.square(vectors[:, :-1]).sum(axis=1, keepdims=True) - 2 * products
        return -np.sqrt(np.maximum(squares, 0))

    def indexed_vectors(self, papers: NDArray[np.integer]) -> Floats:
        """The indexed vectors of papers, rows [n] -> [n, D]; zeros for papers that are not candidates."""
        positions, valid = self._positions(papers)
        return np.where(valid[:, None], self._vectors.read(positions), np.float32(0))

    def _positions(self, papers: NDArray[np.integer]) -> tuple[Rows, Mask]:
        """Positions of papers among the candidates, and a mask of those that are candidates."""
        positions = np.searchsorted(self._candidates, papers).clip(max=len(self._candidates) - 1)
        return positions, self._candidates[positions] == papers

    def _save(self, folder: Path) -> None:
        ids = list(self.corpus.paper_ids)
        with (folder / IDS).open("w", encoding="utf-8") as file:
            file.writelines(f"{ids[row]}\n" for row in self._candidates.tolist())
        self._vectors.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._vectors = load_index(self.index_config, folder)
