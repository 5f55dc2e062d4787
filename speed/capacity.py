"""Machines, hours, money and latency of libraries on disk, from what speed.large_library measured.

    python -m citerec.speed.capacity --page docs/results/large.md

prints the tables, and with --page writes them between the marks of that page. Latency comes from a simulation
of queues: queries arrive at random, a front end encodes each, all shards search and then read what the
ranker needs, and a front end ranks. Service times are measured CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from citerec.base.files import write_text
from citerec.evaluation.report import markdown_table
from citerec.library.disk.build import PAPERS_PER_SHARD
from citerec.library.disk.counts import RANGES
from citerec.library.settings import ServeSettings

SIZES = (10_000_000, 50_000_000, 250_000_000)
RATES = (1, 10, 100)
MEASURED = Path(__file__).parents[1] / "docs" / "results" / "large.json"


@dataclass(frozen=True)
class Machine:
    """A kind of machine, by its list price."""

    name: str
    cores: int
    memory: float
    """bytes"""
    hour: float
    """US dollars"""
    disk_month: float
    """US dollars for a byte"""


MACHINE = Machine("AWS m7i.2xlarge", cores=8, memory=32 * 2**30, hour=0.4032, disk_month=0.08 / 1e9)
"""Assumed: on demand, Linux, us-east-1, gp3 disks, list price of 2026; an Intel Xeon, as measured on."""
HOURS_OF_MONTH = 730
RESERVED = 4e9
"""Bytes of a machine for the system and the processes of shards or front ends."""
BUSY = 0.5
"""Highest planned share of busy cores."""
BUILDERS = {10_000_000: 1, 50_000_000: 4, 250_000_000: 16}
"""Machines that build, by papers."""
NETWORK = 0.001
"""Seconds of a call to another machine and back, assumed."""
DISK_READ, DISK_READS = 0.001, 3000
"""Seconds of a random read, assumed, and reads per second that a gp3 disk's price includes."""
HOT = ("postings", "term dictionary", "vectors, 8 bits", "codes, 4 bits", "numbers")
"""Kinds of files that a shard keeps in memory; its records are there or on disk."""


@dataclass(frozen=True)
class Service:
    """CPU seconds of Q measured queries."""

    encode: NDArray[np.float64]
    search: NDArray[np.float64]
    """[Q, shards] of each shard"""
    read: NDArray[np.float64]
    """of all shards together"""
    rank: NDArray[np.float64]
    papers: float = 0.0
    """mean number of papers read"""

    @classmethod
    def measured(cls, queries: list[dict[str, Any]]) -> Service:
        def column(name: str) -> NDArray[np.float64]:
            return np.array([query[name] for query in queries], float)

        search = column("words") + column("vectors") + column("names")
        papers = float(column("papers").mean())
        return cls(column("encode"), search, column("read"), column("rank"), papers)

    def draw(self, shards: int, rng: np.random.Generator) -> tuple[float, NDArray[np.float64], float, float]:
        """Draw a measured query: seconds to encode, to search in each shard, to read in each, to rank.

        A shard's time is the query's mean by the ratio of some query's shard to its mean: what makes a query
        slow makes it slow in all shards.
        """
        row = rng.integers(len(self.rank))
        search = self._mean[row] * rng.choice(self._ratios, shards)
        return self.encode[row], search, self.read[row] / shards, self.rank[row]

    @cached_property
    def _mean(self) -> NDArray[np.float64]:
        return np.asarray(self.search.mean(axis=1))

    @cached_property
    def _ratios(self) -> NDArray[np.float64]:
        return (self.search / self._mean[:, None]).ravel()


@dataclass(frozen=True)
class Cluster:
    """Shards on machines, and front ends. Each shard has `copies`, on different machines."""

    shards: int
    per_machine: int = 1
    copies: int = 1
    fronts: int = 1
    cores: int = MACHINE.cores
    on_disk: bool = False
    """records are read from disk, one after the other"""

    @property
    def shard_machines(self) -> int:
        return ceil(self.shards / self.per_machine) * self.copies

    @property
    def machines(self) -> int:
        return self.shard_machines + self.fronts


@dataclass(frozen=True)
class Simulated:
    """Latencies [queries] in seconds, share of partial answers, and shares of busy cores."""

    latencies: NDArray[np.float64]
    partial: float
    busy_shards: float
    busy_fronts: float


def simulate(
    cluster: Cluster,
    service: Service,
    rate: float,
    queries: int = 2000,
    *,
    missing: int = 0,
    down: int = 0,
    deadline: float = ServeSettings.deadline,
    network: float = NETWORK,
    seed: int = 0,
) -> Simulated:
    """Simulate queries that arrive as a Poisson process with a rate per second.

    A call goes to the copy whose machine has the shortest queue, first come first served. missing: shards
    that do not answer; they are waited for until the deadline. down: machines that are not asked, of those
    that have copies of the first shards.
    """
    environment, rng = simpy.Environment(), np.random.default_rng(seed)
    groups = ceil(cluster.shards / cluster.per_machine)
    machines = [
        [simpy.Resource(environment, cluster.cores) for _ in range(cluster.copies)] for _ in range(groups)
    ]
    del machines[0][:down]
    fronts = [simpy.Resource(environment, cluster.cores) for _ in range(cluster.fronts)]
    disk = DISK_READ * service.papers / cluster.shards if cluster.on_disk else 0.0
    starts, ends, partial = np.zeros(queries), np.zeros(queries), np.zeros(queries, bool)
    busy = {"shards": 0.0, "fronts": 0.0}

    def serve(
        choices: list[simpy.Resource], seconds: float, kind: str, idle: float = 0.0
    ) -> Generator[simpy.Event, None, None]:
        if seconds:
            resource = min(choices, key=lambda one: one.count + len(one.queue))
            with resource.request() as core:
                yield core
                busy[kind] += seconds
                yield environment.timeout(seconds)
        if idle:
            yield environment.timeout(idle)

    def call(seconds: NDArray[np.float64], idle: float = 0.0) -> simpy.Event:
        running = [
            environment.process(serve(machines[shard // cluster.per_machine], seconds[shard], "shards", idle))
            for shard in range(missing, cluster.shards)
        ]
        return simpy.AllOf(environment, running)

    def query(number: int) -> Generator[simpy.Event, None, None]:
        starts[number] = environment.now
        encode, search, read, rank = service.draw(cluster.shards, rng)
        yield environment.process(serve(fronts, encode, "fronts"))
        answers, late = call(search), environment.timeout(deadline)
        yield late if missing else simpy.AnyOf(environment, [answers, late])
        partial[number] = missing > 0 or not answers.triggered
        yield call(np.full(cluster.shards, read), disk)
        yield environment.process(serve(fronts, rank, "fronts"))
        ends[number] = environment.now

    def arrive() -> Generator[simpy.Event, None, None]:
        for number, wait in enumerate(rng.exponential(1 / rate, queries)):
            yield environment.timeout(wait)
            environment.process(query(number))

    environment.process(arrive())
    environment.run()
    cores = ends.max() * cluster.cores
    up = cluster.shard_machines - down
    return Simulated(
        ends - starts + 2 * network,
        float(partial.mean()),
        busy["shards"] / cores / up,
        busy["fronts"] / cores / cluster.fronts,
    )


def plan(measured: dict[str, Any], papers: int, rate: float) -> Cluster:
    """Return the smallest cluster with what is hot in memory, whose cores are busy for at most BUSY.

    Records are on disk if that needs fewer machines, and their disks are fast enough.
    """
    service, shards = Service.measured(measured["queries"]), ceil(papers / PAPERS_PER_SHARD)
    capacity = BUSY * MACHINE.cores
    load = rate * (service.search.mean() + service.read.mean() / shards)  # of a shard, in cores
    fronts = ceil(rate * (service.encode.mean() + service.rank.mean()) / capacity)

    def cluster(on_disk: bool) -> Cluster:
        size = bytes_in_memory(measured, on_disk) * PAPERS_PER_SHARD
        fitting = int((MACHINE.memory - RESERVED) // size)
        per_machine = max(1, min(fitting, shards, int(capacity / load)))
        return Cluster(shards, per_machine, ceil(per_machine * load / capacity), fronts, on_disk=on_disk)

    whole, light = cluster(False), cluster(True)
    reads = rate * service.papers / light.shard_machines
    return light if light.machines < whole.machines and reads <= DISK_READS else whole


def bytes_in_memory(measured: dict[str, Any], on_disk: bool) -> float:
    """Bytes per paper that a shard keeps in memory. on_disk: without records."""
    sizes = measured["bytes per paper"]
    return float(sum(sizes[kind] for kind in (*HOT, *["records"] * (not on_disk))))


# Tables.


def constants_table(measured: dict[str, Any]) -> str:
    """Bytes and CPU seconds."""
    sizes, build, asked = measured["bytes per paper"], measured["build"], measured["asking"]
    rows = [[f"{kind}, bytes a paper", f"{size:,.1f}"] for kind, size in sizes.items()]
    rows += [["all files, bytes a paper", f"{sum(sizes.values()):,.0f}"]]
    rows += [
        [f"while building: {name}, bytes a paper", f"{size:,.0f}"]
        for name, size in build["scratch bytes"].items()
    ]
    rows += [[f"{stage}, CPU µs a paper", f"{1e6 * value:,.1f}"] for stage, value in build["seconds"].items()]
    for stage, of in (
        ("encode", "front end"), ("words", "a shard"), ("vectors", "a shard"), ("names", "a shard"),
        ("read", "all shards"), ("rank", "front end"),
    ):  # fmt: skip
        times = 1000 * np.array([query[stage] for query in measured["queries"]]).ravel()
        rows.append(
            [
                f"{stage} ({of}), CPU ms a query: mean, p95",
                f"{times.mean():.1f}, {np.percentile(times, 95):.1f}",
            ]
        )
    papers = np.mean([query["papers"] for query in measured["queries"]])
    rows.append(["papers read a query", f"{papers:,.0f}"])
    for name in ("cold", "cold, read ahead", "in turn", "warm"):
        size = np.mean(asked[name]["bytes read"]) / 1e6
        rows.append([f"{name}: MB read a query", f"{size:,.1f}"])
        milliseconds = 1000 * np.percentile(asked[name]["seconds"], [50, 95, 99])
        rows.append([f"{name}: ms, p50, p95, p99", ", ".join(f"{value:,.0f}" for value in milliseconds)])
    touched = asked["touched bytes per paper"]
    rows.append([
        f"touched by {asked['questions']} queries from cold, bytes a paper, without records",
        f"{sum(size for kind, size in touched.items() if kind != 'records'):,.0f}",
    ])  # fmt: skip
    return markdown_table(["constant", "measured"], rows)


def build_hours(measured: dict[str, Any], papers: int) -> tuple[float, float]:
    """Return the hours of a build on BUILDERS machines, and those of them that one process takes."""
    seconds = dict(measured["build"]["seconds"])
    alone = papers * seconds.pop("write statistics (one process)")
    of_shard = sum(seconds.pop(stage) for stage in ("encode", "index words", "codes"))
    workers, shards = BUILDERS[papers] * MACHINE.cores, ceil(papers / PAPERS_PER_SHARD)
    shards = max(shards, workers)  # a build makes at least one shard for each worker
    shared = papers * (sum(seconds.values()) / workers + of_shard * ceil(shards / workers) / shards)
    return (alone + shared) / 3600, alone / 3600


def size_table(measured: dict[str, Any]) -> str:
    """Disk, memory, building."""
    sizes, scratch = measured["bytes per paper"], measured["build"]["scratch bytes"]
    head = ["", *(f"{papers // 1_000_000} million" for papers in SIZES)]
    rows: dict[str, list[str]] = {}

    def add(name: str, value: str) -> None:
        rows.setdefault(name, []).append(value)

    for papers in SIZES:
        hours, alone = build_hours(measured, papers)
        size = sum(sizes.values()) * papers
        add("shards of 5 million", f"{ceil(papers / PAPERS_PER_SHARD)}")
        add("disk, one copy, GB", f"{size / 1e9:,.0f}")
        add(
            "... while building, GB", f"{(size + (scratch['parts'] + scratch['counts']) * papers) / 1e9:,.0f}"
        )
        for on_disk, name in ((True, "without"), (False, "with")):
            inside = bytes_in_memory(measured, on_disk) * papers / 1e9
            add(f"in memory of all shards, {name} records, GB", f"{inside:,.1f}")
        add("... of it codes, GB", f"{sizes['codes, 4 bits'] * papers / 1e9:,.1f}")
        add("statistics, on each front end and builder, GB", f"{sizes['statistics'] * papers / 1e9:,.1f}")
        add(
            "memory of a task that adds counts up, GB",
            f"{3 * scratch['counts'] * papers / RANGES / 1e9:,.1f}",
        )
        add(f"machines that build ({MACHINE.cores} workers each)", f"{BUILDERS[papers]}")
        add("build, hours", f"{hours:.2f}")
        add("... of them in one process", f"{alone:.2f}")
        add("a build, $", f"{hours * BUILDERS[papers] * MACHINE.hour:,.2f}")
    return markdown_table(head, [[name, *values] for name, values in rows.items()])


def serving_tables(measured: dict[str, Any], queries: int) -> str:
    """Machines and latency for each size and rate."""
    service = Service.measured(measured["queries"])
    size = sum(measured["bytes per paper"].values())
    rows = []
    for papers in SIZES:
        for rate in RATES:
            cluster = plan(measured, papers, rate)
            doubled = replace(cluster, copies=2 * cluster.copies)
            up = simulate(cluster, service, rate, queries)
            down = simulate(cluster, service, rate, queries, missing=1)
            twice = simulate(doubled, service, rate, queries, down=1)
            month = cluster.machines * MACHINE.hour * HOURS_OF_MONTH
            month += size * papers * cluster.copies * MACHINE.disk_month
            rows.append([
                f"{papers // 1_000_000} million, {rate}/s",
                f"{cluster.shard_machines} + {cluster.fronts}",
                    "disk" if cluster.on_disk else "memory",
                f"{up.busy_shards:.0%}, {up.busy_fronts:.0%}",
                f"{month:,.0f}",
                *(
                    ", ".join(f"{value:,.2f}" for value in np.percentile(one.latencies, [50, 99]))
                    for one in (up, down, twice)
                ),
            ])  # fmt: skip
    head = [
        "papers, queries", "machines: shards + front ends",
        "records", "busy", "$ a month", "p50, p99 in s: all up",
        "a shard down", "two copies, a machine down",
    ]  # fmt: skip
    return markdown_table(head, rows)


def write_page(page: Path, tables: dict[str, str]) -> None:
    """Put the tables between the marks <!-- NAME --> and <!-- end --> of a page."""
    text = page.read_text("utf-8")
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        text, times = pattern.subn(lambda match, table=table: match[1] + table + match[2], text)  # type: ignore[misc]
        if times != 1:
            raise SystemExit(f"{page}: has {times} places <!-- {name} --> ... <!-- end -->; it needs one")
    write_text(page, text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measured", type=Path, default=MEASURED, help="file of speed.large_library")
    parser.add_argument("--queries", type=int, default=2000, help="simulated queries of each case")
    parser.add_argument("--page", type=Path, help="Markdown page to write the tables into")
    args = parser.parse_args()
    measured = json.loads(args.measured.read_text("utf-8"))
    tables = {
        "constants": constants_table(measured),
        "sizes": size_table(measured),
        "serving": serving_tables(measured, args.queries),
    }
    print(*tables.values(), sep="\n\n")
    if args.page:
        write_page(args.page, tables)


if __name__ == "__main__":
    main()
