"""Could a citation that does not fit be noticed? Measured by swapping each for another paper of the draft.

A citation is noticed if the score of its paper is a threshold or more below the best score for its sentence.
Thresholds are chosen on other drafts, as the least with which RIGHT of those noticed are swapped, if a share
of all citations (SHARES) is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Gaps = tuple[Floats, Floats]
"""How far citations of a draft lie below the best paper, as they are [Q] and swapped [Q]; inf: not found."""

RIGHT = 0.75
SHARES = (0.01, 0.05, 0.1)
"""Shares of wrong citations that are assumed."""
FOLDS = 5
MOST_THRESHOLDS = 2000
HEAD = ["swapped citations", "bibliographies", "command", "AUC by draft, mean (least, most)"]
HEAD += [f"{share:.0%} swapped: noticed, right" for share in SHARES]


def area(gaps: Gaps) -> float:
    """Return the probability that a swapped citation has the larger gap; ties count half.

    >>> area((np.array([0.0, 2.0]), np.array([1.0, 2.0])))
    0.625
    """
    own, swapped = gaps[0], gaps[1][:, None]
    return float((swapped > own).mean() + (swapped == own).mean() / 2)


def swap_cells(drafts: Sequence[Gaps]) -> list[str]:
    """Return the cells of a row below HEAD, from the AUC on."""
    areas = [area(gaps) for gaps in drafts if len(gaps[0])]
    cells = [f"{np.mean(areas):.3f} ({min(areas):.2f}, {max(areas):.2f})"]
    for share in SHARES:
        counts = np.zeros(2)
        for fold in range(FOLDS):
            threshold = _threshold([gaps for n, gaps in enumerate(drafts) if n % FOLDS != fold], share)
            counts += _noticed(drafts[fold::FOLDS], threshold)
        own, swapped = counts / sum(len(gaps[0]) for gaps in drafts)
        right = f"{_right(own, swapped, share):.2f}" if counts.any() else "none"
        cells.append(f"{swapped:.1%}, {right}")
    return cells


def _noticed(drafts: Sequence[Gaps], threshold: float) -> Floats:
    """Return how many citations are noticed as they are, and swapped [2]."""
    return np.array([sum((gaps[kind] >= threshold).sum() for gaps in drafts) for kind in (0, 1)], np.float64)


def _right(own: float, swapped: float, share: float) -> float:
    """Return the share of noticed citations that are swapped, from the shares that are noticed."""
    wrong = share * swapped
    return wrong / (wrong + (1 - share) * own) if wrong else 0.0


def _threshold(drafts: Sequence[Gaps], share: float) -> float:
    """Return the least threshold that is right often enough; above all if there is none."""
    gaps = np.unique(np.concatenate([part for pair in drafts for part in pair]))
    total = sum(len(pair[0]) for pair in drafts)
    for threshold in gaps[:: len(gaps) // MOST_THRESHOLDS + 1].tolist():
        own, swapped = _noticed(drafts, threshold) / total
        if _right(own, swapped, share) >= RIGHT:
            return float(threshold)
    return np.nan  # nothing is as large
