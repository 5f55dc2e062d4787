"""Filters: which papers of a library may be recommended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from citerec.base.errors import InputError
from citerec.library.library import Library
from citerec.retrieval.arrays import Mask

_YEARS = re.compile(r"\s*(\d{1,4})?\s*(-)?\s*(\d{1,4})?\s*")


@dataclass(frozen=True)
class Filters:
    """Papers that may be recommended; all by default.

    exclude, only: ids or keys. years: 2015-2020, 2015-, -2020 or 2019. collection: its name. venue: a part of
    its name.
    """

    exclude: Sequence[str] = ()
    only: Sequence[str] = ()
    years: str | None = None
    collection: str | None = None
    venue: str | None = None

    def mask(self, library: Library) -> Mask | None:
        """Return a mask [P] of the papers that pass; None means all. Raises InputError for a bad filter."""
        if not any((self.exclude, self.only, self.years, self.collection, self.venue)):
            return None
        allowed = np.ones(len(library), np.bool_)
        if self.only:
            allowed[:] = False
            allowed[library.rows(self.only, "only")] = True
        allowed[[row for name in self.exclude if (row := library.row(name)) is not None]] = False
        if self.years:
            first, last = year_range(self.years)
            allowed &= (library.corpus.years >= first) & (library.corpus.years <= last)
        if self.collection:
            lists = library.metadata["collections"].combine_chunks()
            matches = pc.equal(pc.list_flatten(lists), self.collection)
            members = pc.list_parent_indices(lists).filter(matches)
            if not len(members):
                raise InputError(f"collection={self.collection}: no paper of the library is in it")
            allowed &= np.isin(np.arange(len(library)), members.to_numpy())
        if self.venue:
            venues = library.metadata["venue"]
            allowed &= pc.match_substring(venues, self.venue, ignore_case=True).to_numpy()
        return allowed


def year_range(years: str) -> tuple[int, int]:
    """Parse 2015-2020, 2015-, -2020 or 2019 into first and last year. Raises InputError for anything else."""
    parts = _YEARS.fullmatch(years)
    if parts is None or not (parts[1] or parts[3]) or (parts[3] and not parts[2]):
        raise InputError(f"years={years}: must look like 2015-2020, 2015-, -2020 or 2019")
    first = int(parts[1] or 1)
    last = int(parts[3]) if parts[3] else 9999 if parts[2] else first
    if first > last:
        raise InputError(f"years={years}: the first year comes after the last")
    return first, last
