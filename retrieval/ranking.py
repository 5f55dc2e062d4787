"""The ranked papers of a batch of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_NOTHING = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_SIGN = np.uint32(0x8000_0000)


@dataclass(frozen=True)
class Ranking:
    """Ranked papers, one row a query.

    papers: int32 [Q, k], rows of the corpus, best first; -1 where there are fewer than k candidates.
    scores: float32 [Q, k], descending; -inf where `papers` is -1. Equal scores are ordered by paper row.
    """

    papers: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.papers.ndim != 2 or self.papers.shape != self.scores.shape:
            raise ValueError(f"papers {self.papers.shape} and scores {self.scores.shape} must both be [Q, k]")

    def __len__(self) -> int:
        return len(self.papers)

    @property
    def k(self) -> int:
        return self.papers.shape[1]

    @staticmethod
    def concat(parts: Sequence[Ranking]) -> Ranking:
        """The rows of several rankings of the same k, one after the other."""
        return Ranking(np.concatenate([p.papers for p in parts]), np.concatenate([p.scores for p in parts]))


def nothing(queries: int, k: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Papers and scores [queries, k] of rankings without a paper."""
    return np.full((queries, k), -1, np.int32), np.full((queries, k), -np.inf, np.float32)


def ordered(
    papers: npt.NDArray[np.integer],
    scores: npt.NDArray[np.floating],
    k: int,
    drop: npt.NDArray[np.bool_] | None = None,
) -> Ranking:
    """The k best of each row, by score descending and then by paper row, padded to k.

    papers: int [Q, n] (-1 = nothing), scores: float [Q, n], drop: bool [Q, n], places to leave out.
    Raises ValueError when a score that stays is NaN.
    """
    n = papers.shape[1]
    left_out = papers < 0 if drop is None else (papers < 0) | drop
    values = np.asarray(scores, dtype=np.float32) + np.float32(0)  # turns -0.0 into 0.0, copies
    if np.isnan(values).any() and (np.isnan(values) & ~left_out).any():
        raise ValueError("a score is not a number")
    # One integer a place, ascending with (-score, row): numpy sorts integers far faster than it argsorts.
    bits = values.view(np.uint32)
    ascending = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    keys = (~ascending).astype(np.uint64) << np.uint64(32) | papers.astype(np.uint32)
    keys[left_out] = _NOTHING
    keys.sort(axis=1)
    if n < k:
        keys = np.pad(keys, ((0, 0), (0, k - n)), constant_values=_NOTHING)
    keys = keys[:, :k]

    best = keys.astype(np.uint32).view(np.int32)  # the low half
    ascending = ~(keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ascending & _SIGN, ascending ^ _SIGN, ~ascending)
    return Ranking(best, np.where(best < 0, np.float32(-np.inf), bits.view(np.float32)))
