"""Pairs in batches of about equal length and of equally many tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from retrieval.encode import chunks


def batches(lengths: NDArray[np.int64], tokens: int) -> Iterator[NDArray[np.int64]]:
    """Rows of lengths [N] in batches of at most `tokens` tokens after padding, the longest rows first.

    >>> [batch.tolist() for batch in batches(np.array([8, 30, 7, 31]), 64)]
    [[3, 1], [0, 2]]
    """
    order = np.argsort(-lengths, kind="stable")
    for part in chunks(lengths[order], tokens):
        yield order[part]
