"""BM25's k1 and b, chosen by MAP on a validation sample made as the test sample is."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from datasets.errors import InputError
from evaluation.global_sampling.pools import Pool
from evaluation.global_sampling.ranking import PoolRanker, means
from retrieval.bm25 import BM25

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tuning:
    """What is tried, and on how many queries (of each field) in pools of what size.

    size: papers of a pool; None: as the smallest for test, or more where the queries cite more.
    """

    k1: Sequence[float] = (0.9, 1.2, 1.6, 2.0, 3.0)
    b: Sequence[float] = (0.3, 0.5, 0.75, 0.9)
    queries: int = 200
    size: int | None = None

    def __post_init__(self) -> None:
        """Raises InputError for what is no list, or no number from 1 on."""
        for name, values in (("k1", self.k1), ("b", self.b)):
            if isinstance(values, str | int | float) or not values:
                raise InputError(f"benchmark.tune.{name}: {values!r} is no list of values to try")
        for name, number in (("queries", self.queries), ("size", 1 if self.size is None else self.size)):
            if type(number) is not int or number < 1:
                raise InputError(f"benchmark.tune.{name}: {number!r} is no whole number from 1 on")


@dataclass(frozen=True)
class Tuned:
    """The best parameters, of equals the first, and the validation MAP of all that were tried, in percent."""

    k1: float
    b: float
    tried: dict[tuple[float, float], float]

    def __str__(self) -> str:
        best = self.tried[self.k1, self.b]
        return (
            f"k1 = {self.k1:g}, b = {self.b:g}: MAP {best:.2f} on validation, the best of "
            f"{len(self.tried)} pairs ({min(self.tried.values()):.2f} to {max(self.tried.values()):.2f})"
        )


def tune(tuning: Tuning, ranker: PoolRanker, pools: Sequence[Pool], retriever: BM25) -> Tuned:
    """Try all pairs on the pools (MAP: the mean over the groups), and leave the best in the retriever."""
    if not pools or not all(len(pool.queries) for pool in pools):
        raise InputError(
            "benchmark.tune: no queries are left for validation; ask fewer (queries=N) or set it to null"
        )
    tried: dict[tuple[float, float], float] = {}
    for k1, b in product(tuning.k1, tuning.b):
        retriever.weigh(k1, b)
        runs = ranker.ranked(retriever, pools, None)
        maps = [means(ranker.values(run, pool))["map"] for run, pool in zip(runs, pools, strict=True)]
        tried[k1, b] = float(np.mean(maps))
    best = max(tried, key=lambda pair: tried[pair])
    retriever.weigh(*best)
    found = Tuned(*best, tried)
    log.info("%s: %s", retriever.name, found)
    return found
