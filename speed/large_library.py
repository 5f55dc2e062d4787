"""Libraries on disk: what papers, build stages and queries cost (docs/results/large.md).

    python -m citerec.speed.large_library --library DIR --sources FILE --exact

measures bytes per paper; CPU seconds per paper of each build stage, in a temporary folder, by the papers of
FILE; the time of generated queries with everything in the page cache, and with nothing there, one shard
after the other, together with the bytes read; and CPU seconds of each stage of a query. --exact also measures
recall against exact search; --checks measures only what share of a query's time goes into checksums. Without
--library, a library of generated papers is built first. The library is only read.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import orjson
from numpy.typing import NDArray

from citerec.datasets.generate import GenerationPlan, Generator, generate_corpus
from citerec.datasets.word_statistics import WordStatistics
from citerec.evaluation.report import markdown_table
from citerec.library.disk import shard as shard_module
from citerec.library.disk.build import (
    EMPTY_CODES,
    MODEL,
    STATISTICS,
    build_library,
    dense_part,
    paper_batches,
)
from citerec.library.disk.counts import RANGES, add_up_range, count_part, write_statistics
from citerec.library.disk.deduplicate import deduplicate, kept_batches
from citerec.library.disk.entries import entries, records_of
from citerec.library.disk.library import DiskLibrary, Shards
from citerec.library.disk.parts import plan_pieces
from citerec.library.disk.reading import PART_FILES, part_path, read_piece
from citerec.library.disk.shard import (
    CODES,
    MADV_RANDOM,
    NOTHING,
    SUM,
    VECTORS,
    Found,
    Shard,
    ShardAnswer,
    ShardQuery,
    advise,
)
from citerec.library.disk.shard_writer import ShardWriter, encode_rows
from citerec.library.disk.tasks import LocalRunner
from citerec.library.library import Library
from citerec.library.papers import LibraryPaper
from citerec.library.question import Request
from citerec.library.recommender import Recommender
from citerec.library.settings import BuildSettings
from citerec.retrieval.arrays import Floats
from citerec.retrieval.indexes.cpu import faiss
from citerec.retrieval.queries import Query
from citerec.retrieval.vectors import to_unit_length
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
NEAREST = 1000
"""Neighbours that exact search finds, more than any query asks for."""
STAGES = {
    **{"encode": "front end", "words": "a shard", "vectors": "a shard", "names": "a shard"},
    **{"read": "all shards", "rank": "front end"},
}
"""Stages of a query, and who takes them."""
BLOCK = 1 << 16
"""Vectors that exact search compares at a time."""


def kind_of(path: Path) -> str:
    return next((kind for end, kind in KINDS.items() if path.name.endswith(end)), "other")


def per_paper(files: Sequence[tuple[Path, int]], papers: int) -> dict[str, float]:
    """Add up bytes by kind of file, and divide by the papers."""
    sums: dict[str, float] = defaultdict(float)
    for path, size in files:
        sums[kind_of(path)] += size / papers
    return {kind: round(value, 2) for kind, value in sorted(sums.items())}


def library_files(library: Library) -> list[Path]:
    return [path for path in library.folder.rglob("*") if path.is_file()]


# Building.


def build_stages(library: DiskLibrary, sources: Sequence[str]) -> dict[str, Any]:
    """Run each build stage on the papers of sources, in this process; CPU seconds and bytes per paper."""
    seconds: dict[str, float] = {}
    scratch: dict[str, float] = {}

    @contextmanager
    def timed(stage: str) -> Iterator[None]:
        start = time.process_time()
        yield
        seconds[stage] = seconds.get(stage, 0) + time.process_time() - start

    with tempfile.TemporaryDirectory(prefix=".stages-", dir=os.environ.get("TMPDIR")) as temporary:
        parts, shard_folder = Path(temporary) / "parts", Path(temporary) / "shard"
        parts.mkdir()
        with timed("read"):
            read = [read_piece((str(parts), n, piece)) for n, piece in enumerate(plan_pieces(sources))]
        sizes = [part.papers for part in read]
        records = sum(sizes)
        with timed("merge duplicates"):
            kept, _ = deduplicate(parts, sizes, LocalRunner())
        counts = [parts / f"counts-{number}.npy" for number in range(len(kept))]
        with timed("count words"):
            for number, file in enumerate(counts):
                count_part(chain.from_iterable(map(records_of, kept_batches(parts, number))), file)
        ranges = [parts / f"range-{number}.npy" for number in range(RANGES)]
        with timed("add counts up"):
            for number, file in enumerate(ranges):
                add_up_range(counts, number, file)
        with timed("write statistics (one process)"):
            write_statistics(ranges, counts, parts)
        dense = dense_part(library.folder / MODEL)
        whole = WordStatistics.open(library.folder / STATISTICS)
        writer = ShardWriter.create(shard_folder, faiss.read_index(str(library.folder / EMPTY_CODES)))
        for number in range(len(kept)):
            for papers in paper_batches(parts, number):
                with timed("encode"):
                    found, vectors, _ = entries(papers, dense, whole)
                with timed("index words"):
                    writer.append(found, vectors)
            with timed("index words"):
                writer.commit()
        with timed("index words"):
            writer.close()
        with timed("codes"):
            encode_rows(shard_folder)
        names = [part_path(parts, number, name) for number in range(len(kept)) for name in PART_FILES]
        scratch["parts"] = sum(path.stat().st_size for path in names) / records
        scratch["counts"] = sum(path.stat().st_size for path in counts) / records
    return {
        "papers": records,
        "seconds": {stage: value / records for stage, value in seconds.items()},
        "scratch bytes": {name: round(value, 1) for name, value in scratch.items()},
    }


# Asking.


class MeasuredShards(Shards):
    """Asks one shard after the other, and notes the seconds of each stage and the vectors of the queries."""

    def __init__(self, shards: Sequence[Shard], clock: Callable[[], float]) -> None:
        self.all, self.clock = list(shards), clock
        self.stages: dict[str, list[float]] = defaultdict(list)
        self.read_papers = self.by_vector = 0
        self.vectors: list[Floats] = []
        self.nearest: list[dict[bytes, Found]] = []
        """Exact neighbours by query vector for each shard; empty to search them by codes."""

    def _time(self, stage: str, call: Callable[[], Found]) -> Found:
        start = self.clock()
        found = call()
        self.stages[stage].append(self.clock() - start)
        return found

    def ask(self, query: ShardQuery) -> list[ShardAnswer]:
        return [self._ask(number, shard, query) for number, shard in enumerate(self.all)]

    def _ask(self, number: int, shard: Shard, query: ShardQuery) -> ShardAnswer:
        """What Shard.ask does."""
        near = NOTHING
        words = self._time("words", lambda: shard.search_terms(query.terms, query.by_words, query.between))
        if (vector := query.vector) is not None:
            self.vectors.append(vector)
            self.by_vector = query.by_vector
            if self.nearest:
                exact = self.nearest[number][vector.tobytes()]
                near = Found(exact.rows[: query.by_vector], exact.scores[: query.by_vector])
            else:
                near = self._time("vectors", lambda: shard.search_vector(vector, query.by_vector))
        named = self._time("names", lambda: shard.search_names(query.names, query.by_name, query.years))
        called = shard.search_names(query.called, query.by_name)
        return ShardAnswer(words, near, named, called)

    def read(self, rows: Sequence[Sequence[int]]) -> list[dict[int, LibraryPaper]]:
        self.read_papers = sum(map(len, rows))
        start = self.clock()
        found = [shard.read(own) for shard, own in zip(self.all, rows, strict=True)]
        self.stages["read"].append(self.clock() - start)
        return found


class MeasuredRecommender(Recommender):
    """Answers in one thread, and notes the seconds of each stage of the last request."""

    def __init__(self, library: DiskLibrary, clock: Callable[[], float]) -> None:
        super().__init__(library)
        self.shards, self.clock = MeasuredShards(library.shards.all, clock), clock
        library.shards = self.shards
        self._encode = library.encode
        library.encode = self.encode  # type: ignore[method-assign]
        self.encoding = 0.0

    def encode(self, query: Query) -> Floats:
        start = self.clock()
        vector = self._encode(query)
        self.encoding = self.clock() - start
        return vector

    def ask(self, request: Request) -> tuple[list[str], dict[str, Any]]:
        """Return the ids of ten papers, and seconds: those of each shard for words, vectors and names."""
        self.shards.stages.clear()
        start = self.clock()
        [found] = self.recommend_batch([request])
        whole, stages = self.clock() - start, dict(self.shards.stages)
        [read] = stages.pop("read")
        times: dict[str, Any] = {"encode": self.encoding, **stages, "read": read}
        times["rank"] = whole - self.encoding - sum(map(sum, stages.values())) - read
        times["papers"] = self.shards.read_papers
        return [one.id for one in found], times


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


def cached_files(files: Sequence[Path]) -> list[tuple[Path, int]]:
    """Return the bytes of each file that are in the page cache."""
    command = ["fincore", "--bytes", "--noheadings", "--raw", "--output", "res", *map(str, files)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return list(zip(files, map(int, lines), strict=True))


def ask_queries(
    args: argparse.Namespace, library: DiskLibrary
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Ask with cold and warm cache; returns figures of all queries, and the CPU seconds of each."""
    papers, files = len(library), library_files(library)
    asked = list(generated_requests(library, args.papers or papers, args.questions))

    def opened(clock: Callable[[], float]) -> MeasuredRecommender:
        made = MeasuredRecommender(DiskLibrary.open(library.path), clock)
        made.ask(asked[0][0])  # loads compiled code
        return made

    def ask_cold(random: bool) -> dict[str, Sequence[float]]:
        recommender, costs = opened(time.perf_counter), []
        for request, _ in asked[: args.cold]:
            evict(library.folder, random)
            before, start = bytes_read(), time.perf_counter()
            recommender.ask(request)
            costs.append((time.perf_counter() - start, bytes_read() - before))
        return dict(zip(("seconds", "bytes read"), zip(*costs, strict=True), strict=True))

    found: dict[str, Any] = {
        "questions": len(asked),
        "cold": ask_cold(random=True),
        "cold, read ahead": ask_cold(random=False),
    }
    requests = [request for request, _ in asked]
    for name, read_first in (("in turn", False), ("warm", True)):
        evict(library.folder)
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            measured = pool.submit(ask_in_turn, library.path, requests, read_first).result()
        found[name], found["resident GB"] = measured
        if not read_first:
            found["touched bytes per paper"] = per_paper(cached_files(files), papers)
    recommender = opened(time.process_time)
    answers = [recommender.ask(request) for request, _ in asked]
    targets = [target for _, target in asked]
    found["R@10"] = share_found(answers, targets)
    if args.exact:
        found |= exact_recall(recommender, requests, targets)
    return found, [times for _, times in answers]


def ask_in_turn(
    path: Path, requests: Sequence[Request], read_first: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    """Ask as users do; return times, and the memory of this process.

    read_first: all files, so that they are in the page cache if it can hold them.
    """
    recommender = Recommender(DiskLibrary.open(path))
    for file in library_files(recommender.library) if read_first else ():
        with file.open("rb") as opened:
            while opened.read(1 << 24):
                pass
    recommender.recommend_batch(requests[-1:])  # loads compiled code
    seconds, before = [], bytes_read()
    for request in requests:
        start = time.perf_counter()
        recommender.recommend_batch([request])
        seconds.append(time.perf_counter() - start)
    read = [(bytes_read() - before) // len(requests)] * len(requests)
    resident = {"private": memory_gb("RssAnon"), "mapped": memory_gb("RssFile")}
    return {"seconds": seconds, "bytes read": read}, resident


@contextmanager
def without_checks() -> Iterator[None]:
    """Read vectors, records and word statistics without comparing them with their checksums."""
    with (
        patch.object(shard_module, "is_whole_vector", lambda *_: True),
        patch.object(shard_module, "is_whole_record", lambda *_: True),
        patch.object(WordStatistics, "_check", lambda *_: None),
    ):
        yield


def cost_of_checks(path: Path, requests: Sequence[Request]) -> dict[str, float]:
    """Ask each question with and without checks in turn, in this process: CPU seconds, and their ratio - 1.

    first: the first time, when blocks of the statistics are checked, too; again: afterwards.
    """
    seconds: dict[str, list[list[float]]] = {"first": [[], []], "again": [[], []]}
    recommenders = [Recommender(DiskLibrary.open(path)) for _ in range(2)]
    for which, recommender in enumerate(recommenders):
        with without_checks() if which else nullcontext():
            recommender.recommend_batch(requests[-1:])  # loads compiled code
    for name, repeats in (("first", 1), ("again", 5)):
        for number, request in enumerate(requests[:-1]):
            best = [float("inf")] * 2
            for turn in range(2 * repeats):
                which = (number + turn) % 2
                with without_checks() if which else nullcontext():
                    start = time.process_time()
                    recommenders[which].recommend_batch([request])
                    best[which] = min(best[which], time.process_time() - start)
            for own, value in zip(seconds[name], best, strict=True):
                own.append(value)
    sums = {name: [sum(own) for own in both] for name, both in seconds.items()}
    found = {f"{name}, share": with_checks / plain - 1 for name, (with_checks, plain) in sums.items()}
    return found | {"seconds a question": sums["again"][1] / len(requests[:-1])}


def share_found(answers: Sequence[tuple[list[str], Any]], targets: Sequence[str]) -> float:
    return float(np.mean([target in ids for (ids, _), target in zip(answers, targets, strict=True)]))


def exact_recall(
    recommender: MeasuredRecommender, requests: Sequence[Request], targets: Sequence[str]
) -> dict[str, float]:
    """Compare the search by vectors with exact search over the 8-bit vectors, and the answers with both."""
    shards = recommender.shards
    vectors = np.stack(shards.vectors[-len(requests) * len(shards.all) :: len(shards.all)])
    shards.nearest = [
        {
            vector.tobytes(): found
            for vector, found in zip(vectors, exact_search(shard, vectors, NEAREST), strict=True)
        }
        for shard in shards.all
    ]
    result: dict[str, float] = {}
    found = [
        [shard.search_vector(vector, shards.by_vector).rows for vector in vectors] for shard in shards.all
    ]
    for k in (10, 100, 200):
        shares = [
            np.isin(exact.rows[:k], rows).mean()
            for nearest, own in zip(shards.nearest, found, strict=True)
            for exact, rows in zip(nearest.values(), own, strict=True)
        ]
        result[f"recall@{k} of vectors"] = float(np.mean(shares))
    answers = [
        target in recommender.ask(request)[0] for request, target in zip(requests, targets, strict=True)
    ]
    return result | {"R@10, exact vectors": float(np.mean(answers))}


def exact_search(shard: Shard, vectors: Floats, k: int) -> list[Found]:
    """Return the k papers of a shard with the highest cosine with each vector of unit length [Q, D]."""
    raw = np.memmap(shard.folder / VECTORS, np.int8, "r").reshape(-1, vectors.shape[1] + SUM)[:, :-SUM]
    rows: NDArray[np.int64] = np.empty((len(vectors), 0), np.int64)
    scores: Floats = np.empty((len(vectors), 0), np.float32)
    for start in range(0, len(raw), BLOCK):
        block = vectors @ to_unit_length(raw[start : start + BLOCK].astype(np.float32)).T
        numbers = np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)
        rows, scores = np.hstack([rows, numbers]), np.hstack([scores, block])
        best = np.argpartition(-scores, min(k, scores.shape[1]) - 1)[:, :k]
        rows, scores = np.take_along_axis(rows, best, 1), np.take_along_axis(scores, best, 1)
    order = np.argsort(-scores, kind="stable")
    pairs = (np.take_along_axis(values, order, 1) for values in (rows, scores))
    return [Found(*pair) for pair in zip(*pairs, strict=True)]


# Reporting.


def measured_table(found: dict[str, Any]) -> str:
    """Return what was measured as Markdown: bytes and CPU seconds per paper, then times of a query."""
    sizes, build, asked = found["bytes per paper"], found["build"], found["asking"]
    rows = [[f"{kind}, bytes a paper", f"{size:,.1f}"] for kind, size in sizes.items()]
    rows += [["all files, bytes a paper", f"{sum(sizes.values()):,.0f}"]]
    scratch = build["scratch bytes"].items()
    rows += [[f"while building: {name}, bytes a paper", f"{size:,.0f}"] for name, size in scratch]
    rows += [[f"{stage}, CPU µs a paper", f"{1e6 * value:,.1f}"] for stage, value in build["seconds"].items()]
    for stage, of in STAGES.items():
        times = 1000 * np.array([query[stage] for query in found["queries"]]).ravel()
        cell = f"{times.mean():.1f}, {np.percentile(times, 95):.1f}"
        rows.append([f"{stage} ({of}), CPU ms a query: mean, p95", cell])
    papers = np.mean([query["papers"] for query in found["queries"]])
    rows.append(["papers read a query", f"{papers:,.0f}"])
    for name in ("cold", "cold, read ahead", "in turn", "warm"):
        rows.append([f"{name}: MB read a query", f"{np.mean(asked[name]['bytes read']) / 1e6:,.1f}"])
        milliseconds = 1000 * np.percentile(asked[name]["seconds"], [50, 95, 99])
        rows.append([f"{name}: ms, p50, p95, p99", ", ".join(f"{value:,.0f}" for value in milliseconds)])
    touched = sum(size for kind, size in asked["touched bytes per paper"].items() if kind != "records")
    label = f"touched by {asked['questions']} queries from cold, bytes a paper, without records"
    return markdown_table(["constant", "measured"], [*rows, [label, f"{touched:,.0f}"]])


def small_library(folder: Path, papers: int) -> tuple[Path, list[str]]:
    """Build a library of generated papers."""
    generate_corpus(papers, max(1000, papers // 100), folder / "corpus", seed=0, workers=1)
    source = str(folder / "corpus" / "papers.json")
    settings = BuildSettings(library=str(folder / "library"), source=(source,), storage="disk", workers=1)
    build_library(settings, "", "")
    return folder / "library", [source]


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the library; asks first, while memory is free."""
    library = DiskLibrary.open(args.library)
    sizes = [(path, path.stat().st_size) for path in library_files(library)]
    asking, queries = ask_queries(args, library)
    return {
        "papers": len(library),
        "shards": library.manifest.shards,
        "bytes per paper": per_paper(sizes, len(library)),
        "asking": asking,
        "queries": queries,
        "build": build_stages(library, args.sources or library.manifest.named),
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--library", type=Path, help="folder of a library on disk; without it, one is built")
    parser.add_argument("--sources", nargs="+", default=[], help="files of papers for the build stages")
    parser.add_argument(
        "--papers",
        type=int,
        default=0,
        help="papers that the corpus was generated with; default: as many as the library has",
    )
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--cold", type=int, default=20, help="queries with nothing in the page cache")
    parser.add_argument("--exact", action="store_true", help="also compare with exact search")
    parser.add_argument(
        "--checks", action="store_true", help="only the share of a query's time for checksums"
    )
    args = parser.parse_args()
    setup(args)
    with tempfile.TemporaryDirectory() as scratch:
        if args.library is None:
            args.papers = args.papers or 10_000
            args.library, args.sources = small_library(Path(scratch), args.papers)
        if args.checks:
            library = DiskLibrary.open(args.library)
            asked = generated_requests(library, args.papers or len(library), args.questions)
            costs = cost_of_checks(library.path, [request for request, _ in asked])
            print(", ".join(f"{name} {value:.3f}" for name, value in costs.items()))
            return
        found = measure(args)
    resident = ", ".join(f"{kind} {size:.1f}" for kind, size in found["asking"]["resident GB"].items())
    print(f"{found['papers']:,} papers in {found['shards']} shards; resident while asked, GB: {resident}")
    print(measured_table(found))
    print(", ".join(f"{name} {value:.3f}" for name, value in found["asking"].items() if "@" in name))


if __name__ == "__main__":
    main()
