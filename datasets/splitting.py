"""Splitting by citing paper: no paper cites in two of train, val and test."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.settings import check_count
from citerec.datasets.records import SPLITS, TRAIN

Rows = NDArray[np.int64]
_Years = Sequence[int | str | None] | None
_DATE = re.compile(r"(\d+)(?:-(0[1-9]|1[0-2]))?")


class Splitting(Protocol):
    """Chooses the split of a citing paper."""

    settings: dict[str, Any]
    """The constructor's arguments, for reports."""

    def __call__(self, paper: str, year: int, month: int = 0) -> str | None:
        """Return the split of a paper by id, year and month (0 if unknown); None drops its contexts."""


class RandomSplitting:
    """Splits by a hash of seed and id, so that a paper's split does not depend on other papers.

    train, val, test: shares of the citing papers; if they add up to less than 1, the rest is dropped.
    """

    def __init__(self, train: float, val: float, test: float, seed: int) -> None:
        self._shares = _check_shares(train, val, test)
        self._seed = seed
        self.settings: dict[str, Any] = {**self._shares, "seed": seed}

    def __call__(self, paper: str, year: int, month: int = 0) -> str | None:
        digest = blake2b(f"{self._seed} {paper}".encode(), digest_size=8).digest()
        point = int.from_bytes(digest, "little") / 2**64
        for split, share in self._shares.items():
            point -= share
            if point < 0:
                return split
        return None


class YearSplitting:
    """Splits by ranges of years or months [first, last], both inclusive; None for an open end or empty split.

    Months are strings as "2020-03". Papers outside all ranges are dropped, as are those that may be outside,
    since their month or year is not known. Gu et al. 2022, section 3: [None, 2019], ["2020-01", "2020-02"],
    ["2020-03", "2020-04"].
    """

    def __init__(self, train: _Years, val: _Years, test: _Years) -> None:
        self.settings: dict[str, Any] = dict(zip(SPLITS, (train, val, test), strict=True))
        self._ranges = {
            name: _months(name, years) for name, years in self.settings.items() if years is not None
        }
        for name, (first, last) in self._ranges.items():
            for other, (begin, end) in self._ranges.items():
                if name < other and first <= end and begin <= last:
                    raise InputError(f"splitting: the years of {name} and {other} overlap")

    def __call__(self, paper: str, year: int, month: int = 0) -> str | None:
        begin, end = (12 * year + month,) * 2 if month else (12 * year + 1, 12 * year + 12)
        containing = (split for split, (first, last) in self._ranges.items() if first <= begin <= end <= last)
        return next(containing, None) if year else None


class YearShares:
    """Splits a whole collection by age: the oldest papers for training, the next for validation, then test.

    Papers without a year are in no split.
    train, val, test: shares of the papers, which add up to 1. queries: maximum number of papers to sample
    from each split except train; None means all. seed: of the sample.
    """

    def __init__(self, train: float, val: float, test: float, queries: int | None, seed: int) -> None:
        shares = _check_shares(train, val, test, whole=True)
        if queries is not None:
            check_count("splitting.queries", queries)
        self._train, self._val_of_rest = train, val / (val + test) if val + test else 0.0
        self._queries, self._seed = queries, seed
        self.settings: dict[str, Any] = {**shares, "queries": queries, "seed": seed}

    def __call__(self, paper: str, year: int, month: int = 0) -> str | None:
        """Raise InputError: the split of a paper depends on all others."""
        raise InputError("splitting=year_shares works with data=papers only; use splitting=year or random")

    def split(self, years: NDArray[np.int32], papers: Rows) -> dict[str, Rows]:
        """Return the rows of each split, ascending. years [N]: of all papers; papers [P]: rows to split."""
        dated = papers[years[papers] != 0]
        order = dated[np.argsort(years[dated], kind="stable")]
        train = int(self._train * len(order))
        val = int((len(order) - train) * self._val_of_rest)
        parts = np.split(order, [train, train + val])
        return {split: np.sort(part) for split, part in zip(SPLITS, parts, strict=True)}

    def sample(self, splits: Mapping[str, Rows]) -> dict[str, Rows]:
        """Sample at most `queries` rows of each split, ascending; all rows of train."""
        samples = {}
        for number, (split, rows) in enumerate(splits.items()):
            if split != TRAIN and self._queries is not None and len(rows) > self._queries:
                rng = np.random.default_rng([self._seed, number])
                rows = np.sort(rng.choice(rows, self._queries, replace=False))
            samples[split] = rows
        return samples


def _check_shares(*values: float, whole: bool = False) -> dict[str, float]:
    """Return valid shares by split; InputError if they add up to more than 1, or (whole) not to 1."""
    shares = dict(zip(SPLITS, values, strict=True))
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InputError(f"splitting: the share of {name} is {share!r}, not between 0 and 1")
    if (total := sum(values)) > 1 + 1e-9 or (whole and total < 1 - 1e-9):
        raise InputError(f"splitting: the shares train, val and test add up to {total:g}{', not 1' * whole}")
    return shares


def _months(name: str, years: Sequence[int | str | None]) -> tuple[float, float]:
    """Return the first and last month of a range, counted from the year 0."""
    spans = [_span(year) for year in years] if isinstance(years, list | tuple) else []
    if len(spans) != 2 or None in spans:
        raise InputError(
            f"splitting: the years of {name} must be two, such as [2019,2020] or [2020-01,2020-02], null for "
            f"an open end, not {list(years) if isinstance(years, tuple) else years!r}"
        )
    (first, _), (_, last) = (span for span in spans if span)
    if first > last:
        raise InputError(f"splitting: the years of {name}: {years[0]} is after {years[1]}")
    return first, last


def _span(year: int | str | None) -> tuple[float, float] | None:
    """Return the first and last month of a year or month; None if it is neither."""
    if year is None:
        return -math.inf, math.inf
    if not (match := _DATE.fullmatch(str(year))):
        return None
    months = 12 * int(match[1])
    return (months + int(match[2]),) * 2 if match[2] else (months + 1, months + 12)
