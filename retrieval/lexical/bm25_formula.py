"""BM25's formulas and its index of postings, and rank_bm25 as a slow reference for both."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from citerec.datasets.columns import Ragged, offsets_of, save_arrays
from citerec.retrieval.arrays import Counts, Floats, load_arrays

METHODS = ("lucene", "okapi")
"""The variants (Kamphuis et al. 2020, table 1); `okapi` is that of Gu et al. 2022: lucene's, times k1 + 1."""


@dataclass(frozen=True)
class Formula:
    """A variant and its parameters."""

    method: str
    k1: float
    b: float

    def idf(self, document_frequency: NDArray[np.integer], texts: int) -> Floats:
        """Inverse document frequencies of terms [T]; 0 for terms in no text."""
        unique, inverse = np.unique(document_frequency, return_inverse=True)
        return np.array([_idf(n, texts) if n else 0 for n in unique.tolist()], np.float32)[inverse]

    def tf_weights(self, counts: Counts, lengths: Floats, average: float) -> Floats:
        """The term frequency component of each count, before IDF; lengths: of the texts."""
        length, tf = self.b * lengths[counts.texts] / average, counts.data.astype(np.float32, copy=False)
        if self.method == "okapi":
            return np.asarray((tf * (self.k1 + 1)) / (tf + self.k1 * (1 - self.b + length)))
        return np.asarray(tf / (self.k1 * ((1 - self.b) + length) + tf))


def _idf(frequency: int, texts: int) -> float:
    """Inverse document frequency of a term in `frequency` of `texts`."""
    return math.log(1 + (texts - frequency + 0.5) / (frequency + 0.5))


ADDS_PER_LOOKUP = 16
"""Scores that can be added in the time of one lookup."""
UNIT = np.float32(2**-12)
"""Unit of contributions that are kept as uint16; below 16, as lucene's are for up to 10 million texts."""


@dataclass(frozen=True)
class Postings:
    """Precomputed contributions of each term to the score of each text, as in bm25s (Lù 2024).

    data, indices: [postings], contributions (float32, or uint16 in UNITs) and texts, term by term, texts
    ascending. offsets: int64 [T + 1], the postings of each term. average: length of a text.
    """

    data: Floats | NDArray[np.uint16]
    indices: NDArray[np.int32]
    offsets: NDArray[np.int64]
    texts: int
    average: float

    FILES = ("data.csc.index", "indices.csc.index", "indptr.csc.index")

    @classmethod
    def from_counts(
        cls,
        counts: list[Counts],
        formula: Formula,
        whole: tuple[NDArray[np.int64], int, float] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> Postings:
        """Build from batches of term counts [texts, T]; empties the list to save memory.

        whole: if the texts are part of a collection, its document frequencies [T], number of texts and
        average length. dtype: of the contributions.
        """
        lengths = [part.lengths() for part in counts]
        average = float(np.concatenate(lengths).mean(dtype=np.float64))
        total = sum(map(len, lengths))
        frequency = np.array([part.frequency() for part in counts]).sum(axis=0, dtype=np.int64)
        offsets, idf = offsets_of(frequency), formula.idf(frequency, total)
        if whole is not None:
            idf, average = formula.idf(*whole[:2]), whole[2]
        data, indices = np.empty(offsets[-1], dtype), np.empty(offsets[-1], np.int32)
        next_free, texts = offsets[:-1].copy(), 0
        for length in lengths:
            part = counts.pop(0)
            per_term, by_term = part.frequency(), np.argsort(part.indices, kind="stable")
            positions = np.repeat(next_free - offsets_of(per_term)[:-1], per_term) + np.arange(len(by_term))
            weights = (formula.tf_weights(part, length, average) * idf[part.indices])[by_term]
            data[positions] = _rounded(weights, data.dtype)
            indices[positions] = part.texts[by_term] + texts
            next_free += per_term
            texts += len(length)
        return cls(data, indices, offsets, total, average)

    def frequency(self, terms: NDArray[np.int32]) -> NDArray[np.int64]:
        """Number of texts with each of some terms [n]."""
        listed = terms < len(self.offsets) - 1
        own = np.zeros(len(terms), np.int64)
        own[listed] = self.offsets[terms[listed] + 1] - self.offsets[terms[listed]]
        return own

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.indices.nbytes + self.offsets.nbytes

    def scores(
        self, terms: NDArray[np.int32], weights: Floats, texts: NDArray[np.integer] | None = None
    ) -> Floats:
        """Scores of all texts [N], or of some [K]; terms [n]: distinct; weights [n]: their query counts."""
        if texts is None:
            scores = np.zeros(self.texts, np.float32)
            for data, indices, weight in self._terms(terms, weights):
                scores[indices] += weight * data
            return scores
        if (self.offsets[terms + 1] - self.offsets[terms]).sum() < ADDS_PER_LOOKUP * len(terms) * len(texts):
            return self.scores(terms, weights)[texts]
        scores = np.zeros(len(texts), np.float32)
        for data, indices, weight in self._terms(terms, weights):
            place = np.searchsorted(indices, texts)
            place[place == len(indices)] = 0
            scores += np.where(indices[place] == texts, weight * data[place], np.float32(0))
        return scores

    def _terms(
        self, terms: NDArray[np.int32], weights: Floats
    ) -> Iterator[tuple[Floats, NDArray[np.int32], np.float32]]:
        """Yield the contributions, texts and weight of each term that is in a text."""
        unit = UNIT if self.data.dtype == np.uint16 else np.float32(1)
        for term, weight in zip(terms.tolist(), (weights * unit).astype(np.float32), strict=True):
            if (start := self.offsets[term]) < (end := self.offsets[term + 1]):
                yield self.data[start:end].astype(np.float32, copy=False), self.indices[start:end], weight

    def save(self, folder: Path) -> None:
        arrays: tuple[NDArray[Any], ...] = self.data, self.indices, self.offsets
        save_arrays(folder, **dict(zip(self.FILES, arrays, strict=True)), texts=np.array([self.average]))

    @classmethod
    def load(cls, folder: Path, texts: int) -> Postings:
        """Memory-map postings written by `save`. texts: their number."""
        data, indices, offsets = load_arrays(folder, *cls.FILES)
        return cls(data, indices, offsets, texts, float(load_arrays(folder, "texts")[0][0]))


def _rounded(contributions: Floats, dtype: np.dtype[Any]) -> Floats | NDArray[np.uint16]:
    """Contributions as they are, or in UNITs."""
    if dtype == np.float32:
        return contributions
    return np.rint(contributions / UNIT).clip(max=np.iinfo(np.uint16).max).astype(np.uint16)


class RankBM25:
    """rank_bm25's BM25Okapi, which scores every paper in Python: slow, a reference for the formulas.

    IDFs are those of the other back end; rank_bm25's own have a floor for terms in more than half of all
    texts.
    """

    def __init__(self, counts: list[Counts], formula: Formula) -> None:
        """counts: batches of term counts [texts, T]."""
        import rank_bm25  # of the extra `train`

        matrix = Counts.concat(counts)
        repeats = matrix.data.astype(np.int64)
        documents = Ragged(np.repeat(matrix.indices, repeats), offsets_of(repeats)[matrix.indptr])
        self._index = rank_bm25.BM25Okapi((row.tolist() for row in documents), k1=formula.k1, b=formula.b)
        scale = 1.0 if formula.method == "okapi" else 1 / (formula.k1 + 1)  # it multiplies by k1 + 1
        frequency = Counter(term for counts in self._index.doc_freqs for term in counts)
        total = len(documents)
        self._index.idf = {term: scale * _idf(n, total) for term, n in frequency.items()}

    @property
    def nbytes(self) -> int:
        """Size of the frequency tables, without the integers that they share."""
        return sum(map(sys.getsizeof, self._index.doc_freqs))

    def scores(
        self, terms: NDArray[np.int32], weights: Floats, texts: NDArray[np.integer] | None = None
    ) -> Floats:
        """Return scores as `Postings.scores` does."""
        query = np.repeat(terms, weights.astype(np.int64)).tolist()
        with np.errstate(invalid="ignore"):  # rank_bm25 computes 0 / 0 for an empty text if b = 1
            scores = np.nan_to_num(self._index.get_scores(query), nan=0.0).astype(np.float32)
        return scores if texts is None else scores[texts]
