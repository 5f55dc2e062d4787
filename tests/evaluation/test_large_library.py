"""speed.large_library measures a library as it is, and its search is the library's own."""

import argparse
import shutil
from pathlib import Path

import numpy as np
import pytest

from citerec.library.disk.library import DiskLibrary
from citerec.library.disk.shard import SUM, VECTORS, Shard
from citerec.library.recommender import Recommender
from citerec.speed import large_library


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("fincore"), reason="needs fincore of util-linux")
def test_measuring_a_library(tmp_path: Path) -> None:
    folder, _ = large_library.small_library(tmp_path, 600)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    args = argparse.Namespace(library=folder, sources=[], papers=0, questions=2, cold=1, exact=True)
    found = large_library.measure(args)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert found["papers"] == found["build"]["papers"] == 600
    assert found["bytes per paper"]["vectors, 8 bits"] == 200 + SUM
    assert len(found["queries"]) == 2 and min(found["asking"]["cold"]["bytes read"]) >= 0
    assert found["asking"]["recall@200 of vectors"] > 0.9
    assert "| vectors, 8 bits, bytes a paper | 204.0 |" in large_library.measured_table(found)

    library = DiskLibrary.open(folder)
    asked = [request for request, _ in large_library.generated_requests(library, 600, 2)]
    plain = [[one.id for one in found] for found in Recommender(library).recommend_batch(asked)]
    measured = large_library.MeasuredRecommender(DiskLibrary.open(folder), lambda: 0.0)
    assert [measured.ask(request)[0] for request in asked] == plain
    large_library.evict(folder)
    assert [measured.ask(request)[0] for request in asked] == plain

    [number] = {path.parent.name for path in folder.rglob(VECTORS)}
    shard = Shard(next(folder.rglob(VECTORS)).parent)
    vectors = shard.vectors(np.arange(3))
    for row, exact in enumerate(large_library.exact_search(shard, vectors, 5)):
        scores = shard.vectors(np.arange(600)) @ vectors[row]
        assert exact.rows[0] == row and number == "0"
        assert exact.scores == pytest.approx(np.sort(scores)[::-1][:5], abs=1e-5)
