"""Sources to deduplicated parts and word statistics: two workers over Ray against one process.

Papers are generated unless --source names files. Prints the seconds of each stage (on the clock, and of the
processor, which count on a busy machine), what one process does alone, the bytes that tasks hand to each
other, and the work of 2, 4 and 8 simulated workers: the tasks of each stage, in the processor's seconds that
one process measured, go to whichever worker is free. The ceiling is what as many processes gain that share
nothing, each preparing all papers by itself: two cores are often less than twice one. Reading and merging in
one process are also compared with Deduplicator, which libraries in memory use.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from citerec.datasets.generate import generate_corpus
from citerec.library.disk.build import GENERATION, PARTS, count
from citerec.library.disk.parts import Parts, prepare_parts
from citerec.library.disk.tasks import LocalRunner, TaskRunner, task_runner
from citerec.library.duplicates import Deduplicator
from citerec.library.sources.readers import read_source


class Timed:
    """A runner that notes the seconds of each task, and the bytes of the files that tasks exchange."""

    def __init__(self, run: TaskRunner, folder: Path) -> None:
        self._run, self._folder, self.workers = run, folder, run.workers
        self.tasks: dict[str, list[float]] = defaultdict(list)
        """The processor's seconds for each task, by stage."""
        self.wall: dict[str, float] = {}
        self.exchanged: dict[str, int] = {}

    def map(self, function: Callable[..., Any], items: Sequence[Any], what: str) -> Iterator[tuple[int, Any]]:
        before, started = self._bytes(), time.perf_counter()
        for number, (seconds, result) in self._run.map(partial(timed, function), items, what):
            self.tasks[what].append(seconds)
            yield number, result
        self.wall[what] = time.perf_counter() - started
        self.exchanged[what] = self._bytes() - before

    def _bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.rglob("*.npy"))

    def tell(self) -> None:
        for what, tasks in self.tasks.items():
            print(
                f"  {what:16} {self.wall[what]:7.2f} s, processor {sum(tasks):7.2f} s, {len(tasks):4} tasks, "
                f"{self.exchanged[what] / 1e6:8.1f} MB for other tasks"
            )


def timed(function: Callable[..., Any], item: Any) -> tuple[float, Any]:
    """Return the processor's seconds that a task took, and the result."""
    started = time.process_time()
    result = function(item)
    return time.process_time() - started, result


class Measured(NamedTuple):
    run: Timed
    parts: Parts
    wall: float
    alone: float
    """Processor's seconds of the first process, outside of tasks."""


def start(_: int) -> None:
    """Import what tasks need: Ray's processes start with their first task."""
    import citerec.library.disk.build  # noqa: F401

    time.sleep(0.5)  # so that each process gets a task


def measure(files: list[str], folder: Path, workers: int, piece_bytes: int) -> Measured:
    started = time.perf_counter()
    with task_runner(workers) as run:
        for _ in run.map(start, range(2 * workers), "processes"):
            pass
        print(f"start of {workers} workers, not counted below: {time.perf_counter() - started:.1f} s")
        timed_run, wall, processor = Timed(run, folder), time.perf_counter(), time.process_time()
        parts = prepare(files, folder, timed_run, piece_bytes)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        if workers == 1:
            processor -= sum(map(sum, timed_run.tasks.values()))
        return Measured(timed_run, parts, wall, processor)


def prepare(files: list[str], folder: Path, run: TaskRunner, piece_bytes: int) -> Parts:
    parts = prepare_parts(files, folder / PARTS, run=run, piece_bytes=piece_bytes)
    (folder / GENERATION).mkdir()
    count(parts, folder, run)
    return parts


def prepare_alone(files: list[str], piece_bytes: int, folder: Path) -> float:
    """Prepare the papers in this process; return the seconds, without those of imports and compilation."""
    prepare(files[:1], folder / "first", LocalRunner(), piece_bytes)
    started = time.perf_counter()
    prepare(files, folder / "all", LocalRunner(), piece_bytes)
    return time.perf_counter() - started


def simulate(tasks: Sequence[float], workers: int) -> list[float]:
    """Return the seconds of work of each worker, if each task goes to the one that is free first."""
    work = [0.0] * workers
    for seconds in tasks:
        work[work.index(min(work))] += seconds
    return work


def generate(papers: int, folder: Path) -> list[str]:
    """Write generated papers as JSON lines in five files; return their names."""
    generate_corpus(papers, 1000, folder / "corpus", seed=0, workers=1)
    records = orjson.loads((folder / "corpus" / "papers.json").read_bytes())
    lines = [orjson.dumps({"id": id, **record}) + b"\n" for id, record in records.items()]
    files = [folder / f"papers-{number}.jsonl" for number in range(5)]
    for number, file in enumerate(files):
        file.write_bytes(b"".join(lines[number::5]))
    return [*map(str, files)]


def one_process(file: str, folder: Path) -> tuple[int, float]:
    """Read and merge as `citerec build` does; return the number of papers and the processor's seconds."""
    started = time.process_time()
    with Deduplicator(folder) as records:
        for paper in read_source(file, lambda _: None):
            records.add(paper)
        records.finish()
        return sum(1 for _ in records.papers()), time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", nargs="*", help="files of papers, by default generated ones")
    parser.add_argument("--papers", type=int, default=100_000, help="number of generated papers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--piece", type=int, default=4, help="MB of JSON lines that a task reads")
    parser.add_argument("--folder", type=Path, help="for the parts, by default a temporary one")
    args = parser.parse_args()
    print(f"machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder, piece_bytes = Path(name), args.piece << 20
        files = args.source or generate(args.papers, folder)
        one = measure(files, folder / "one", 1, piece_bytes)
        parts, tasks = one.parts, one.run.tasks
        print(f"{parts.papers:,} papers in {parts.count} parts, {parts.duplicates:,} duplicates")
        print(f"one process: {one.wall:.1f} s, not shared {one.alone:.2f} s of the processor")
        one.run.tell()
        own = (one.alone + sum(map(sum, tasks.values()))) / parts.papers
        merged = sum(sum(tasks[what]) for what in tasks if "count" not in what) / parts.papers
        papers, peer = one_process(files[0], folder)
        print(
            f"processor's seconds a million papers: {own * 1e6:.1f}; reading and merging {merged * 1e6:.1f}, "
            f"{peer / papers / merged:.1f} times as fast as Deduplicator ({peer / papers * 1e6:.1f})"
        )
        for workers in (2, 4, 8):
            stages = [simulate(stage, workers) for stage in tasks.values()]
            total = one.alone + sum(map(max, stages))
            shares = " ".join(f"{sum(stage[worker] for stage in stages):.2f}" for worker in range(workers))
            gain = own * parts.papers / total
            print(f"simulated, {workers} workers: {gain:.2f} times one process; work of each: {shares} s")
        alone = partial(prepare_alone, files, piece_bytes)
        folders = [folder / f"alone-{number}" for number in range(args.workers + 1)]
        with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
            ceiling = args.workers * next(pool.map(alone, folders[:1])) / max(pool.map(alone, folders[1:]))
        many = measure(files, folder / "many", args.workers, piece_bytes)
        assert many.parts.sizes == parts.sizes
        gain = one.wall / many.wall
        print(
            f"{args.workers} workers over Ray: {many.wall:.1f} s, {gain:.2f} times one process; "
            f"the ceiling here: {ceiling:.2f}"
        )
        many.run.tell()


if __name__ == "__main__":
    main()
