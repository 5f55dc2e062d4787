"""Groups of rows with equal keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class EqualGroups:
    """Rows [N] by equal keys [N]; those that are not `valid` [N] are in none.

    group [N] int64 is the number of a row's group, or -1; `count` of groups.
    """

    def __init__(self, keys: NDArray[np.uint64], valid: NDArray[np.bool_]) -> None:
        self._rows = np.flatnonzero(valid)
        found, numbers = np.unique(keys[self._rows], return_inverse=True)
        self.group = np.full(len(keys), -1, np.int64)
        self.group[self._rows] = numbers
        self.count = len(found)

    def partners(self) -> NDArray[np.int32]:
        """For each row [N] another one of its group, the next or, for the last, the first; -1 for none."""
        partner = np.full(len(self.group), -1, np.int32)
        if not self.count:
            return partner
        order = self._rows[np.argsort(self.group[self._rows], kind="stable")]
        starts = np.flatnonzero(np.diff(self.group[order], prepend=-1))
        partner[order[:-1]] = order[1:]
        ends = np.append(starts[1:], len(order)) - 1
        partner[order[ends]] = order[starts]
        partner[partner == np.arange(len(partner))] = -1  # alone in its group
        return partner

    def others(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether another row than this one, of its group, is marked [N]."""
        rows = self._rows
        counts = np.bincount(self.group[rows], weights=marked[rows], minlength=self.count)
        found = np.zeros(len(self.group), np.bool_)
        found[rows] = counts[self.group[rows]] > marked[rows]
        return found

    def differing(self, values: NDArray[np.uint64]) -> NDArray[np.int32]:
        """For each row [N] another one of its group with another of the values [N]; -1 for none."""
        partner = np.full(len(self.group), -1, np.int32)
        if not self.count:
            return partner
        # Sorted by group and value, the first and the last of a group differ if any two of it do.
        order = self._rows[np.lexsort((values[self._rows], self.group[self._rows]))]
        starts = np.flatnonzero(np.diff(self.group[order], prepend=-1))
        first, last = order[starts], order[np.append(starts[1:], len(order)) - 1]
        group = self.group[self._rows]
        other = np.where(values[self._rows] == values[first[group]], last[group], first[group])
        differs = values[other] != values[self._rows]
        partner[self._rows[differs]] = other[differs]
        return partner
