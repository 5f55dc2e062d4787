"""BM25 by rank_bm25, which scores every paper in Python: slow, and a second opinion on the formulas."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import rank_bm25
from bm25s.scoring import _select_idf_scorer
from scipy.sparse import csr_matrix

from datasets.ragged import Ragged
from retrieval.postings import METHODS

RANK_BM25_METHODS = tuple(method for method, (of_counts, _) in METHODS.items() if of_counts != "bm25l")
"""rank_bm25's BM25L counts a term's frequency twice, so that it is no variant of the others' bm25l."""


class Okapi(rank_bm25.BM25Okapi):
    """rank_bm25's BM25Okapi with the rarity of a term as in the other back ends.

    Its own is that of `robertson`, with a floor where a term stands in more than half of all texts.
    documents: rows of terms.
    """

    def __init__(self, documents: Ragged, method: str, k1: float, b: float) -> None:
        self._documents, self._method = documents, method
        super().__init__((row.tolist() for row in documents), k1=k1, b=b)

    def _calc_idf(self, nd: dict[int, int]) -> None:
        of_counts, of_rarity = METHODS[self._method]
        idf = _select_idf_scorer(of_rarity)
        # Its scores always have the factor k1 + 1, which two of the variants do without.
        scale = 1.0 if of_counts == "atire" else 1 / (self.k1 + 1)
        self.idf = {term: scale * idf(texts, N=self.corpus_size) for term, texts in nd.items()}

    @property
    def nbytes(self) -> int:
        """Of the tables of frequencies; what they hold is shared between them."""
        return sum(map(sys.getsizeof, self.doc_freqs))

    def scores(
        self, terms: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Of every text [P]; terms [n], each once, weights [n]: how often they stand in the query."""
        query = np.repeat(terms, weights.astype(np.int64)).tolist()
        with np.errstate(invalid="ignore"):
            scores = self.get_scores(query)
        # It takes 0 / 0 for an empty text where b is 1.
        return np.nan_to_num(scores, nan=0.0).astype(np.float32)

    def save(self, folder: Path) -> None:
        np.save(folder / "documents.values.npy", self._documents.values)
        np.save(folder / "documents.offsets.npy", self._documents.offsets)

    @classmethod
    def load(cls, folder: Path, method: str, k1: float, b: float) -> Okapi:
        """Made anew of the documents that `save` wrote: rank_bm25 has no files of its own."""
        values, offsets = (
            np.load(folder / f"documents.{part}.npy", allow_pickle=False) for part in ("values", "offsets")
        )
        return cls(Ragged(values, offsets), method, k1, b)


def documents(counts: csr_matrix) -> Ragged:
    """Whole counts [texts, T] -> the terms of each text, each as often as it stands there."""
    often = counts.data.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(often)])[counts.indptr]
    return Ragged(np.repeat(counts.indices, often), offsets)
