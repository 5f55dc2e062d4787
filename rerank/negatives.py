"""Negatives of training queries, drawn from what a retriever ranks high: Gu et al. 2022, section 4.3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from hatten.options import at_least_1

DRAW = 11
"""Keeps these random numbers apart from others of the same seed."""


@dataclass(frozen=True)
class NegativesConfig:
    """Which of a query's prefetched papers it is shown as not cited."""

    count: int = 62
    """papers a query; fewer where fewer are left to draw from"""
    depth: int = 2000
    """papers prefetched for a query"""
    skip: int = 0
    """of those, the best that are left out"""
    weighting: str = "uniform"
    """uniform, or reciprocal: the paper at rank r (from 1) is drawn in proportion to 1 / r"""

    def __post_init__(self) -> None:
        at_least_1(self, "model.negatives", "count", "depth")
        if self.skip >= self.depth:
            raise InputError(
                f"model.negatives.skip={self.skip}: nothing is left of depth={self.depth}; skip fewer"
            )
        if self.weighting not in ("uniform", "reciprocal"):
            raise InputError(
                f"model.negatives.weighting={self.weighting}: choose uniform or reciprocal (1 / rank)"
            )

    def left(self, ranked: NDArray[np.int32], barred: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Places of a ranking [depth] (-1: none) that negatives may come from: none of the `barred`."""
        left = (ranked >= 0) & ~np.isin(ranked, barred)
        left[: self.skip] = False
        return left

    def draw(
        self,
        ranked: NDArray[np.int32],
        barred: NDArray[np.integer],
        seed: int,
        epoch: int,
        query: int,
    ) -> NDArray[np.int32]:
        """Different papers for a query, `count` or as many as there are; the same whenever it is asked for.

        ranked: [depth] rows of the corpus, best first, -1 where there are fewer. barred: the papers cited at
        the context, and the citing one.
        """
        places = np.flatnonzero(self.left(ranked, barred))
        rng = np.random.default_rng((seed, DRAW, epoch, query))
        # The least of exponential times, each of its own rate: draws in proportion without putting back.
        times = rng.exponential(size=len(ranked))[places]
        if self.weighting == "reciprocal":
            times *= places + 1
        return ranked[places[np.argsort(times, kind="stable")[: self.count]]]
