"""speed.large_library measures a library as it is, and leaves it so."""

import argparse
from pathlib import Path

import pytest

from citerec.library.disk.shard import SUM
from citerec.speed import large_library


@pytest.mark.slow
def test_measuring_a_library(tmp_path: Path) -> None:
    folder = large_library.small_library(tmp_path, 600)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    rows = dict(large_library.measure(argparse.Namespace(library=folder, papers=0, questions=2, cold=1)))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert rows["vectors, 8 bits, bytes a paper"] == f"{200 + SUM:.1f}"
    assert {"cold: MB read a query", "in turn: ms, p50, p95, p99", "memory, private", "R@10"} < rows.keys()
    assert 0 <= float(rows["R@10"]) <= 1 and float(rows["memory, private"].split()[0]) > 0
