"""The index of bm25s (Lù 2024): what each term adds to the score of each paper, worked out beforehand."""

from __future__ import annotations

from pathlib import Path

import bm25s
import numpy as np
import numpy.typing as npt
from bm25s.scoring import _select_idf_scorer, _select_tfc_scorer
from numba import njit
from scipy.sparse import csc_matrix, csr_matrix, vstack

# bm25s has one name for how often a term stands in a text, one for how rare it is.
METHODS = {
    "lucene": ("lucene", "lucene"),
    "okapi": ("atire", "lucene"),
    "robertson": ("robertson", "robertson"),
    "atire": ("atire", "atire"),
    "bm25l": ("bm25l", "bm25l"),
}
"""The variants (Kamphuis et al. 2020, table 1); `okapi` is the formula of Gu et al. 2022: lucene * (k1 + 1).

bm25+ would rank as atire does: bm25s gives its extra share to papers with and without the term alike."""


def index_counts(counts: list[csr_matrix], method: str, k1: float, b: float) -> bm25s.BM25:
    """The index of texts of which counts [texts, T] are given in parts; the parts are used up.

    bm25s's own way, lists of numbers text by text, takes over ten times as long and, for a million papers,
    more than 8 GB; this is the same arithmetic on whole arrays (the tests hold it against bm25s).
    """
    of_counts, of_rarity = METHODS[method]
    index = bm25s.BM25(k1=k1, b=b, method=of_counts, idf_method=of_rarity)
    lengths = [np.asarray(part.sum(axis=1)).ravel() for part in counts]
    average = float(np.concatenate(lengths).mean(dtype=np.float64))
    size = counts[0].shape[1]
    texts_with = sum(np.bincount(part.indices, minlength=size) for part in counts)
    total = sum(part.shape[0] for part in counts)
    idf = _select_idf_scorer(of_rarity)
    rarity = np.array([idf(n, N=total) if n else 0.0 for n in np.asarray(texts_with).tolist()], np.float32)

    tfc = _select_tfc_scorer(of_counts)
    options = {"l_avg": average, "k1": k1, "b": b, "delta": index.delta}
    # What a text without the term would get as well tells nothing: bm25s adds it back, here 0 is no match.
    extra = of_counts in index.methods_requiring_nonoccurrence
    absent = np.float32(tfc(tf_array=0.0, l_d=average, **options) if extra else 0)
    for part, length in zip(counts, lengths, strict=True):
        of_text = np.repeat(length, np.diff(part.indptr))
        part.data = (tfc(tf_array=part.data, l_d=of_text, **options) - absent) * rarity[part.indices]
        part.data = part.data.astype(np.float32, copy=False)
    stacked = vstack(counts, format="csr")
    counts.clear()
    columns = stacked.tocsc()
    index.scores = {
        "data": columns.data,
        "indices": columns.indices,
        "indptr": columns.indptr,
        "num_docs": total,
    }
    index.vocab_dict = {}  # the corpus has the words
    index.nonoccurrence_array = absent * rarity if extra else None
    return index


class Postings:
    """Scores all papers for a query by the terms of a bm25s index.

    compiled: by a loop that Numba compiles (for half a second), else by SciPy. Either takes a term that
    occurs twice once with twice its weight, where bm25s itself goes over its papers twice.
    """

    def __init__(self, index: bm25s.BM25, compiled: bool) -> None:
        self._index = index
        self._matrix = csc_matrix(
            tuple(index.scores[part] for part in ("data", "indices", "indptr")),
            shape=(index.scores["num_docs"], len(index.scores["indptr"]) - 1),
        )
        self._compiled = compiled
        if compiled:
            self.scores(np.zeros(1, np.int32), np.zeros(1, np.float32))

    @property
    def nbytes(self) -> int:
        return int(self._matrix.data.nbytes + self._matrix.indices.nbytes + self._matrix.indptr.nbytes)

    def scores(
        self, terms: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Of every paper [P]; terms [n], each once, weights [n]."""
        matrix = self._matrix
        if not self._compiled:
            return np.asarray(matrix[:, terms] @ weights)
        scores = np.zeros(matrix.shape[0], np.float32)
        _add(matrix.data, matrix.indices, matrix.indptr, terms, weights, scores)
        return scores

    def save(self, folder: Path) -> None:
        self._index.save(folder)

    @classmethod
    def load(cls, folder: Path, compiled: bool) -> Postings:
        """What `save` wrote, mapped."""
        return cls(bm25s.BM25.load(folder, mmap=True, allow_pickle=False, load_vocab=False), compiled)


@njit(nogil=True)
def _add(
    data: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int32],
    terms: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    scores: npt.NDArray[np.float32],
) -> None:
    for term, weight in zip(terms, weights):  # noqa: B905 (Numba has no `strict`)
        for place in range(indptr[term], indptr[term + 1]):
            scores[indices[place]] += weight * data[place]
