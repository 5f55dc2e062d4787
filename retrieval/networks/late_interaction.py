"""Late interaction: how well titles have the words of a passage (ColBERT: Khattab and Zaharia 2020, eq. 3).

For each subword of the passage, the highest cosine of its hidden state with those of a title's subwords. What
titles get is the mean over the passage, where subwords near the citation, and those that few of the papers
have, count more.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import offsets_of
from citerec.retrieval.arrays import Floats

REACH = 15.0
"""Subwords from the citation at which a subword counts 1/e of what it counts beside it."""


def word_weights(
    passage: NDArray[np.int32],
    mark: int,
    special: Collection[int],
    subwords: NDArray[np.int32],
    lengths: NDArray[np.int32],
) -> Floats:
    """Weights [L] of a passage's subwords, 0 for special ones. mark: place of the citation in it. subwords:
    of papers, `lengths` [n] of each."""
    size = int(max(subwords.max(initial=0), passage.max(initial=0))) + 1
    asked = np.zeros(size, np.bool_)
    asked[passage] = True
    there = np.flatnonzero(asked[subwords])
    paper = np.repeat(np.arange(len(lengths)), lengths)[there]
    different = np.unique(paper * size + subwords[there]) % size
    count = np.bincount(different, minlength=size)[passage]
    distance = np.abs(np.arange(len(passage)) - mark)
    weights = np.log1p(len(lengths) / (count + 1)) * np.exp(-distance / REACH)
    weights[np.isin(passage, [*special])] = 0
    return weights.astype(np.float32)


def score_titles(
    passage: Floats, weights: Floats, words: NDArray[np.int8], counts: NDArray[np.int32]
) -> Floats:
    """Score titles [n] for a passage, its hidden states [L, D] of unit length and their weights [L]; NaN for
    titles without words. words: [w, D] in units of 1 / 127 of unit length, `counts` [n] of each title."""
    scores = np.full(len(counts), np.nan, np.float32)
    if not len(words) or not weights.any():
        return scores
    used, some = weights > 0, counts > 0
    cosines = (passage[used] / np.float32(127)) @ words.astype(np.float32).T  # [L, w]
    best = np.maximum.reduceat(cosines, offsets_of(counts[some])[:-1], axis=1)
    scores[some] = weights[used] @ best / weights.sum()
    return scores
