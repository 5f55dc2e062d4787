"""The index of bm25s (Lù 2024): what each term adds to the score of each paper, worked out beforehand."""

from __future__ import annotations

from pathlib import Path

import bm25s
import numpy as np
import numpy.typing as npt
from bm25s.scoring import _select_idf_scorer, _select_tfc_scorer
from numba import njit
from scipy.sparse import csc_matrix

from datasets.ragged import offsets_of

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


def index_counts(counts: list[csc_matrix], method: str, k1: float, b: float) -> bm25s.BM25:
    """The index of texts, of which the counts [texts, T] are given in parts; they are used up.

    bm25s goes through lists of numbers text by text; this is the same arithmetic on whole arrays (the tests
    hold it against bm25s), which takes a fraction of the time and of the memory.
    """
    of_counts, of_rarity = METHODS[method]
    index = bm25s.BM25(k1=k1, b=b, method=of_counts, idf_method=of_rarity)
    lengths = [np.asarray(part.sum(axis=1)).ravel() for part in counts]
    average = float(np.concatenate(lengths).mean(dtype=np.float64))
    total = sum(map(len, lengths))
    texts_with = np.array([np.diff(part.indptr) for part in counts]).sum(axis=0, dtype=np.int64)
    idf = _select_idf_scorer(of_rarity)
    rarity = np.array([idf(n, N=total) if n else 0 for n in texts_with.tolist()], np.float32)

    tfc = _select_tfc_scorer(of_counts)
    options = {"l_avg": average, "k1": k1, "b": b, "delta": index.delta}
    # What a text without the term would get as well tells nothing: bm25s adds it back, here 0 is no match.
    extra = of_counts in index.methods_requiring_nonoccurrence
    absent = np.float32(tfc(tf_array=0.0, l_d=average, **options) if extra else 0)
    indptr = offsets_of(texts_with)
    data, indices = np.empty(indptr[-1], np.float32), np.empty(indptr[-1], np.int32)
    next_place, texts = indptr[:-1].copy(), 0
    for length in lengths:
        part = counts.pop(0)
        of_term = np.diff(part.indptr)
        places = np.repeat(next_place - part.indptr[:-1], of_term) + np.arange(part.nnz)
        share = tfc(tf_array=part.data, l_d=length[part.indices], **options) - absent
        data[places] = share * np.repeat(rarity, of_term)
        indices[places] = part.indices + np.int32(texts)
        next_place += of_term
        texts += len(length)
    index.scores = {"data": data, "indices": indices, "indptr": indptr, "num_docs": total}
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
