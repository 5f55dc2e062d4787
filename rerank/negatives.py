"""The papers that training queries are shown with, of what a retriever ranks high.

A cited paper and negatives that are drawn (Gu et al. 2022, section 4.3), or the first papers as they were
found, cited or not (Nogueira et al. 2020, section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from hatten.options import at_least_1

DRAW, CITED = 11, 13
"""Keep these random numbers apart from others of the same seed."""


class Query(NamedTuple):
    """A training query: its row in the split, the papers cited there, the paper that it stands in, and what
    was found for it, int32 [depth], best first, -1 where there are fewer."""

    row: int
    cited: NDArray[np.integer]
    citing: int
    found: NDArray[np.int32]


class Listing(Protocol):
    """How the list of a query is made."""

    @property
    def most(self) -> int:
        """Papers of a list at most."""

    def choice(self, query: Query) -> int:
        """How many papers there are to list, or to draw negatives from; none: the query has no list."""

    def listed(self, query: Query, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Different papers [n], and which of them are cited; the same whenever it is asked for."""

    @property
    def wanted(self) -> tuple[str, int]:
        """The option that says how large a choice there should be, and its value."""


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

    @property
    def most(self) -> int:
        return 1 + self.count

    @property
    def wanted(self) -> tuple[str, int]:
        return "model.negatives.count", self.count

    def choice(self, query: Query) -> int:
        return int(np.count_nonzero(self.left(query.found, np.append(query.cited, query.citing))))

    def listed(self, query: Query, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """One of the cited papers, the first, and its negatives."""
        cited = query.cited
        if len(cited) > 1:
            cited = np.random.default_rng((seed, CITED, epoch, query.row)).permutation(cited)
        drawn = self.draw(query.found, np.append(query.cited, query.citing), seed, epoch, query.row)
        papers = np.append(cited[:1], drawn).astype(np.int64)
        return papers, np.arange(len(papers)) == 0

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


@dataclass(frozen=True)
class TopPapers:
    """The first `depth` papers that were found, cited or not: most are not, and nothing is balanced."""

    depth: int = 10

    @property
    def most(self) -> int:
        return self.depth

    @property
    def wanted(self) -> tuple[str, int]:
        return "model.negatives.depth", self.depth

    def choice(self, query: Query) -> int:
        return int(np.count_nonzero(query.found >= 0))

    def listed(self, query: Query, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        papers = query.found[query.found >= 0].astype(np.int64)
        return papers, np.isin(papers, query.cited)
