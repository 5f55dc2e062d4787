"""What libraries on disk cost: the simulation against queueing theory, the plan, and the measuring."""

import json
import shutil
import sys
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.library.disk.build import PAPERS_PER_SHARD
from citerec.library.disk.library import LargeLibrary, LargeRecommender
from citerec.library.disk.shard import VECTORS, Shard
from citerec.speed import capacity, large_library
from citerec.speed.capacity import BUSY, DISK_READS, MACHINE, RESERVED, Cluster, Service, plan, simulate

MEASURED = json.loads(capacity.MEASURED.read_text("utf-8"))
PAGE = capacity.MEASURED.with_suffix(".md")


def searching(seconds: np.ndarray, **others: float) -> Service:
    """Queries that search one shard or more [Q, shards]."""
    encode, read, rank = (np.full(len(seconds), others.get(name, 0.0)) for name in ("encode", "read", "rank"))
    return Service(encode, seconds, read, rank)


def erlang_wait(cores: int, load: float) -> float:
    """Mean wait of M/M/c in service times; load: mean number of busy cores (Erlang C)."""
    last = load**cores / factorial(cores) / (1 - load / cores)
    return last / (sum(load**n / factorial(n) for n in range(cores)) + last) / (cores - load)


@pytest.mark.parametrize(("cores", "load", "varies"), [(1, 0.5, True), (1, 0.5, False), (2, 1.0, True)])
def test_waits_are_those_of_queueing_theory(cores: int, load: float, varies: bool) -> None:
    rng = np.random.default_rng(0)
    service = searching(rng.exponential(1, (50_000, 1)) if varies else np.ones((1, 1)))
    found = simulate(Cluster(1, cores=cores), service, load, 12_000, deadline=1e9, network=0)
    expected = erlang_wait(cores, load) * (1 if varies else 0.5)  # M/D/1 waits half as long as M/M/1
    assert found.latencies.mean() - service.search.mean() == pytest.approx(expected, rel=0.07)
    assert found.busy_shards == pytest.approx(load / cores, rel=0.05)


def test_a_lone_query_takes_the_sum_of_its_stages() -> None:
    service = searching(np.full((3, 2), 0.1), encode=0.01, read=0.06, rank=0.2)
    found = simulate(Cluster(2, fronts=2), service, 1e-3, 5, network=0.001)
    assert found.latencies == pytest.approx(0.01 + 0.1 + 0.03 + 0.2 + 0.002) and not found.partial


def test_the_slowest_shard_decides() -> None:
    service = searching(np.array([[0.1, 0.3]]))
    few, many = (simulate(Cluster(shards), service, 0.01, 200) for shards in (1, 20))
    assert few.latencies.mean() < many.latencies.mean() <= 0.4


@pytest.mark.parametrize("deadline", [0.5, 2.0])
def test_a_missing_shard_is_waited_for_until_the_deadline(deadline: float) -> None:
    service = searching(np.full((1, 4), 0.1), rank=0.2)
    found = simulate(Cluster(4), service, 1.0, 50, missing=1, deadline=deadline, network=0)
    assert found.partial == 1 and found.latencies.min() == pytest.approx(deadline + 0.2)


def test_late_shards_are_missing() -> None:
    found = simulate(Cluster(1), searching(np.full((1, 1), 0.4)), 0.01, 20, deadline=0.3, network=0)
    assert found.partial == 1


def test_load_slows_and_copies_help() -> None:
    service = searching(np.random.default_rng(0).exponential(0.1, (500, 4)), read=0.02, rank=0.05)
    options: dict[str, Any] = {"deadline": 1e9}
    means = [
        simulate(Cluster(4, cores=2), service, rate, 500, **options).latencies.mean() for rate in (1, 8, 16)
    ]
    assert means == sorted(means) and means[-1] > 1.2 * means[0]
    copied, halved = (
        simulate(Cluster(4, copies=2, cores=2), service, 16, 500, down=down, **options) for down in (0, 1)
    )
    assert means[0] < copied.latencies.mean() < halved.latencies.mean() < means[-1]
    again = simulate(Cluster(4, copies=2, cores=2), service, 16, 500, **options)
    assert np.array_equal(copied.latencies, again.latencies)


@given(papers=st.integers(1_000_000, 500_000_000), rate=st.floats(0.01, 500))
def test_a_plan_fits_memory_cores_and_disks(papers: int, rate: float) -> None:
    service, cluster = Service.measured(MEASURED["queries"]), plan(MEASURED, papers, rate)
    size = capacity.bytes_in_memory(MEASURED, cluster.on_disk) * PAPERS_PER_SHARD
    assert cluster.per_machine * size <= MACHINE.memory - RESERVED
    seconds = service.search.mean() * cluster.shards + service.read.mean()
    assert rate * seconds <= (BUSY + 1e-9) * MACHINE.cores * cluster.shard_machines * 1.0001
    assert not cluster.on_disk or rate * service.papers / cluster.shard_machines <= DISK_READS
    assert (
        rate * (service.encode.mean() + service.rank.mean()) <= BUSY * MACHINE.cores * cluster.fronts * 1.0001
    )


@pytest.mark.parametrize(
    ("name", "table"), [("constants", capacity.constants_table), ("sizes", capacity.size_table)]
)
def test_the_page_has_the_tables_of_what_was_measured(name: str, table: Any) -> None:
    assert f"<!-- {name} -->\n{table(MEASURED)}\n<!-- end -->" in PAGE.read_text("utf-8")


def test_tables_go_between_their_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before\n<!-- a -->\nold\n<!-- end -->\nafter\n<!-- b -->\n\n<!-- end -->\n")
    capacity.write_page(page, {"a": "new \\1", "b": "| x |"})
    assert (
        page.read_text()
        == "Before\n<!-- a -->\nnew \\1\n<!-- end -->\nafter\n<!-- b -->\n| x |\n<!-- end -->\n"
    )
    with pytest.raises(SystemExit, match="0 places <!-- c -->"):
        capacity.write_page(page, {"c": ""})


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("fincore"), reason="needs fincore of util-linux")
@pytest.mark.slow
def test_measuring_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = large_library.small_library(tmp_path, 1200)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    output = tmp_path / "measured.json"
    options = [
        "--library",
        str(folder),
        "--questions",
        "4",
        "--cold",
        "2",
        "--exact",
        "--output",
        str(output),
    ]
    monkeypatch.setattr(sys, "argv", ["large_library", *options])
    large_library.main()
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    found = json.loads(output.read_text())
    assert found["papers"] == found["build"]["papers"] == 1200
    assert found["bytes per paper"]["vectors, 8 bits"] == 200
    assert len(found["queries"]) == 4 and min(found["asking"]["cold"]["bytes read"]) >= 0
    assert found["asking"]["recall@200 of vectors"] > 0.9
    assert "250 million" in capacity.serving_tables(found, 5) + capacity.size_table(found)

    library = LargeLibrary.open(folder)
    asked = [request for request, _ in large_library.generated_requests(library, 1200, 4)]
    plain = [[one.id for one in found] for found in LargeRecommender(library).recommend_batch(asked)]
    measured = large_library.MeasuredRecommender(LargeLibrary.open(folder), lambda: 0.0)
    assert [measured.ask(request)[0] for request in asked] == plain
    large_library.evict(folder)
    assert [measured.ask(request)[0] for request in asked] == plain

    [number] = {path.parent.name for path in folder.rglob(VECTORS)}
    shard = Shard(next(folder.rglob(VECTORS)).parent)
    vectors = shard.vectors(np.arange(3))
    for row, exact in enumerate(large_library.exact_search(shard, vectors, 5)):
        scores = shard.vectors(np.arange(1200)) @ vectors[row]
        assert exact.rows[0] == row and number == "0"
        assert exact.scores == pytest.approx(np.sort(scores)[::-1][:5], abs=1e-5)
