"""Libraries on disk: bytes per paper, and the time and reading of queries (docs/results/large.md).

    python -m citerec.speed.large_library --library DIR

asks generated queries with nothing in the page cache before each, one after the other from an empty cache,
and with everything there. Without --library, a library of generated papers is built first, and the time of
its build is a row. The library is only read.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from citerec.datasets.generate import GenerationPlan, Generator, generate_corpus
from citerec.evaluation.report import markdown_table
from citerec.library.ask.question import Request
from citerec.library.ask.recommender import Recommender
from citerec.library.disk.build import build_library
from citerec.library.disk.library import DiskLibrary
from citerec.library.disk.shard import CODES, MADV_RANDOM, VECTORS, advise
from citerec.library.papers.library import Library
from citerec.library.settings import BuildSettings
from citerec.retrieval.queries import Query
from citerec.speed._common import make_parser, memory_gb, setup

KINDS = {
    ".idx": "postings",
    ".term": "term dictionary",
    ".store": "records",
    ".fast": "numbers",
    ".fieldnorm": "numbers",
    VECTORS: "vectors, 8 bits",
    CODES: "codes, 4 bits",
    "hashes.npy": "statistics",
    "counts.npy": "statistics",
}
"""What is in a file of a library, by the end of its name."""
MADV_NORMAL, MADV_DONTNEED = 0, 4


def bytes_per_paper(library: Library) -> dict[str, float]:
    """Add up the bytes of each kind of file, and divide by the papers."""
    sums: dict[str, float] = defaultdict(float)
    for path in library_files(library):
        kind = next((kind for end, kind in KINDS.items() if path.name.endswith(end)), "other")
        sums[kind] += path.stat().st_size / len(library)
    return dict(sorted(sums.items()))


def library_files(library: Library) -> list[Path]:
    return [path for path in library.folder.rglob("*") if path.is_file()]


def generated_requests(library: DiskLibrary, papers: int, count: int) -> Iterator[tuple[Request, str]]:
    """Yield requests and the id of the cited paper, for contexts of a generated corpus of this size."""
    raw = Generator(GenerationPlan(papers, max(1000, papers // 100))).block("contexts", 0)["contexts"]
    contexts = list(orjson.loads(raw + b"}").values())
    for number in np.random.default_rng(0).permutation(len(contexts))[:count].tolist():
        record = contexts[number]
        row = library.row(record["citing_id"])
        citing = None if row is None else library.paper(row)
        title, abstract = (citing.title, citing.abstract) if citing else ("", "")
        yield Request(Query(record["masked_text"], title, abstract)), record["refid"]


def evict(folder: Path, random: bool = True) -> None:
    """Take files out of the page cache, also where this process maps them; it sees the same bytes again.

    random: read single pages from now on, rather than as many at once as the device's setting says.
    """
    advise(folder, MADV_DONTNEED, MADV_RANDOM if random else MADV_NORMAL)
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def bytes_read() -> int:
    """Bytes that this process has fetched from the disk."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def ask(path: Path, requests: Sequence[Request], cache: str) -> dict[str, Any]:
    """Return seconds and bytes read of each request, the ids of its ten papers, and this process's memory.

    cache: cold (empty before each request), in turn (empty before the first), or warm (all files are read
    before, so that they are in the page cache if it can hold them).
    """
    library = DiskLibrary.open(path)
    recommender = Recommender(library)
    for file in library_files(library) if cache == "warm" else ():
        with file.open("rb") as opened:
            while opened.read(1 << 24):
                pass
    recommender.recommend_batch(requests[-1:])  # loads compiled code
    if cache == "in turn":
        evict(library.folder, random=False)
    found: dict[str, Any] = {"seconds": [], "bytes read": [], "ids": []}
    for request in requests:
        if cache == "cold":
            evict(library.folder)
        before, start = bytes_read(), time.perf_counter()
        [papers] = recommender.recommend_batch([request])
        found["seconds"].append(time.perf_counter() - start)
        found["bytes read"].append(bytes_read() - before)
        found["ids"].append([paper.id for paper in papers])
    return found | {"private GB": memory_gb("RssAnon"), "mapped GB": memory_gb("RssFile")}


def measure(args: argparse.Namespace) -> list[list[str]]:
    """Return the rows of the table: bytes per paper, then times of a query."""
    library = DiskLibrary.open(args.library)
    sizes = bytes_per_paper(library)
    rows = [[f"{kind}, bytes a paper", f"{size:,.1f}"] for kind, size in sizes.items()]
    rows += [["all files, bytes a paper", f"{sum(sizes.values()):,.0f}"]]
    asked = list(generated_requests(library, args.papers or len(library), args.questions))
    requests = [request for request, _ in asked]
    for cache in ("cold", "in turn", "warm"):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            some = requests[: args.cold] if cache == "cold" else requests
            found = pool.submit(ask, args.library, some, cache).result()
        rows.append([f"{cache}: MB read a query", f"{np.mean(found['bytes read']) / 1e6:,.1f}"])
        milliseconds = 1000 * np.percentile(found["seconds"], [50, 95, 99])
        rows.append([f"{cache}: ms, p50, p95, p99", ", ".join(f"{value:,.0f}" for value in milliseconds)])
    rows += [[f"memory, {kind}", f"{found[f'{kind} GB']:.1f} GB"] for kind in ("private", "mapped")]
    hits = [target in ids for (_, target), ids in zip(asked, found["ids"], strict=True)]
    return [*rows, ["R@10", f"{np.mean(hits):.3f}"]]


def small_library(folder: Path, papers: int) -> Path:
    """Build a library of generated papers."""
    generate_corpus(papers, max(1000, papers // 100), folder / "corpus", seed=0, workers=1)
    source = str(folder / "corpus" / "papers.json")
    settings = BuildSettings(library=str(folder / "library"), source=(source,), storage="disk", workers=1)
    build_library(settings, "", "")
    return folder / "library"


def main() -> None:
    parser = make_parser(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--library", type=Path, help="folder of a library on disk; without it, one is built")
    parser.add_argument(
        "--papers",
        type=int,
        default=0,
        help="papers that the corpus was generated with; default: as many as the library has",
    )
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--cold", type=int, default=20, help="queries with nothing in the page cache")
    args = parser.parse_args()
    setup(args)
    with tempfile.TemporaryDirectory() as scratch:
        built = []
        if args.library is None:
            args.papers = args.papers or 10_000
            start = time.perf_counter()
            args.library = small_library(Path(scratch), args.papers)
            built = [["building, µs a paper", f"{1e6 * (time.perf_counter() - start) / args.papers:,.0f}"]]
        print(markdown_table(["", "measured"], [*built, *measure(args)]))


if __name__ == "__main__":
    main()
