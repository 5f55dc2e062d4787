"""Libraries whose files were damaged answer as before, or refuse with one line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from citerec.tests.faults.damage import CHANGES, REFUSED, Damaged

FLIPS = 200
"""`python -m citerec.tests.faults.damage 10000` makes more."""


@pytest.mark.slow
def test_damage_is_noticed_or_does_no_harm(tmp_path: Path) -> None:
    damaged = Damaged.build(tmp_path)
    damaged.all_but_flips()
    damaged.flips(FLIPS)
    assert damaged.answers() == damaged.expected
    files = len(damaged.files)
    assert sum(damaged.done[what, REFUSED] for what in ("removed", "cut to nothing")) > 1.8 * files
    assert damaged.done["unreadable", REFUSED] > 0.9 * files
    counts = Counter[str]()
    for (what, _), count in damaged.done.items():
        counts[what] += count
    assert files > 30 and all(counts[what] == files for what in (*CHANGES, "removed"))
