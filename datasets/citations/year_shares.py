"""The oldest papers for training, the next for validation, the latest for test: shares of the papers by year.

Nogueira et al. 2020, section 4.1, after Bhagavatula et al. 2018 (Citeomatic): all papers that have a year are
sorted by it and cut after 80 and 90 percent, whether they cite or not, and at most 20,000 queries each are
drawn of validation and test. Papers of one year stay in the order of the files, and may be cut in two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.schema import SPLITS, TRAIN


class YearShares:
    """Chooses by the years of all papers; papers without a year are in no split.

    train, val, test: shares of the papers, 1 together. queries: at most so many are drawn of each split but
    that for training; None: all. seed: they are drawn by.
    """

    def __init__(self, train: float, val: float, test: float, queries: int | None, seed: int) -> None:
        shares = dict(zip(SPLITS, (train, val, test), strict=True))
        for name, share in shares.items():
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise InputError(f"splitting.{name}: {share!r} is no share between 0 and 1")
        if abs(sum(shares.values()) - 1) > 1e-9:
            raise InputError(
                f"splitting: the shares train, val and test add up to {sum(shares.values()):g}, not 1"
            )
        if queries is not None and (type(queries) is not int or queries < 1):
            raise InputError(f"splitting.queries: {queries!r} is no number of queries; null for all")
        self._train, self._val_of_rest = train, val / (val + test) if val + test else 0.0
        self._queries, self._seed = queries, seed
        self.settings: dict[str, Any] = {**shares, "queries": queries, "seed": seed}

    def __call__(self, paper: str, year: int) -> str | None:
        """It takes all papers to place one, so that it is for collections of papers alone."""
        raise InputError("splitting=year_shares is for data=papers; here take splitting=year or random")

    def split(self, years: NDArray[np.int32], papers: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Of each split the rows of its papers, ascending: some papers [P] among rows of these years [N]."""
        dated = papers[years[papers] != 0]
        order = dated[np.argsort(years[dated], kind="stable")]
        train = int(self._train * len(order))
        val = int((len(order) - train) * self._val_of_rest)
        parts = np.split(order, [train, train + val])
        return {split: np.sort(part) for split, part in zip(SPLITS, parts, strict=True)}

    def sampled(self, asking: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
        """Of each split at most so many of the rows that may ask, ascending; for training all."""
        drawn = {}
        for number, (split, rows) in enumerate(asking.items()):
            if split != TRAIN and self._queries is not None and len(rows) > self._queries:
                rng = np.random.default_rng([self._seed, number])
                rows = np.sort(rng.choice(rows, self._queries, replace=False))
            drawn[split] = rows
        return drawn
