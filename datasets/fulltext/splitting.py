"""Which split the contexts of a citing paper go to: one of train, val and test for all of them, or none."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Protocol

from datasets.errors import InputError
from datasets.schema import SPLITS

_Years = Sequence[int | None] | None


class Splitting(Protocol):
    """Chooses by the citing paper, so that no paper cites in two splits."""

    settings: dict[str, Any]
    """What it was made with, for the report."""

    def __call__(self, paper: str, year: int) -> str | None:
        """The split of the contexts in a paper of that id and year (0: unknown); None: they are dropped."""


class RandomSplitting:
    """By a hash of seed and id: other papers in the collection change nothing.

    train, val, test: shares of the citing papers; what is missing to 1 is dropped.
    """

    def __init__(self, train: float, val: float, test: float, seed: int) -> None:
        shares = {"train": train, "val": val, "test": test}
        for name, share in shares.items():
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise InputError(f"splitting.{name}: {share!r} is no share between 0 and 1")
        if sum(shares.values()) > 1 + 1e-9:
            raise InputError(f"splitting: the shares train, val and test add up to {sum(shares.values()):g}")
        self._shares = shares
        self._seed = seed
        self.settings: dict[str, Any] = {**shares, "seed": seed}

    def __call__(self, paper: str, year: int) -> str | None:
        digest = blake2b(f"{self._seed} {paper}".encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "little") / 2**64
        for split, share in self._shares.items():
            place -= share
            if place < 0:
                return split
        return None


class YearSplitting:
    """By ranges of years [first, last], both included, None for an open end; None for a split not wanted.

    Other and unknown years are dropped. Gu et al. 2022, section 3, split by date: the latest contexts are for
    validation and test.
    """

    def __init__(self, train: _Years, val: _Years, test: _Years) -> None:
        given = dict(zip(SPLITS, (train, val, test), strict=True))
        self._ranges = {name: _range(name, years) for name, years in given.items() if years is not None}
        for name, (first, last) in self._ranges.items():
            for other, (begin, end) in self._ranges.items():
                if name < other and first <= end and begin <= last:
                    raise InputError(f"splitting: the years of {name} and {other} overlap")
        self.settings: dict[str, Any] = given

    def __call__(self, paper: str, year: int) -> str | None:
        if year:
            for split, (first, last) in self._ranges.items():
                if first <= year <= last:
                    return split
        return None


def _range(name: str, years: Sequence[int | None]) -> tuple[float, float]:
    if (
        not isinstance(years, list | tuple)
        or len(years) != 2
        or not all(year is None or type(year) is int for year in years)
    ):
        raise InputError(
            f"splitting.{name}: must be two years as [2019,2020], null for an open end; is {years!r}"
        )
    first = float("-inf") if years[0] is None else years[0]
    last = float("inf") if years[1] is None else years[1]
    if first > last:
        raise InputError(f"splitting.{name}: {years[0]} is after {years[1]}")
    return first, last
