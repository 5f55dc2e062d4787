"""Embeddings of millions of papers: written, mapped and searched in bounded memory.

Vectors are generated: random directions, of unit length. Writing is compared with bringing the same bytes to
the disk and nothing else, exact search of pools with the bare matrix product of as many numbers. Queries are
papers with some noise, so that what is to be found first is known.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._common import arguments, begin, seconds
from retrieval.embeddings import SHARD, EmbeddingFolder, Layout
from retrieval.index import PaperIndex, build_index, faiss
from retrieval.settings import IndexConfig
from retrieval.vectors import BLOCK, VectorTable, as_dtype

COPIED = 8
"""Of so many shards one is also written plainly."""


class Memory:
    """The most memory that the process has held while this was open: its own, and of mapped files."""

    def __enter__(self) -> Self:
        self.own = self.mapped = 0
        self.before = self._now()[0]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._note()

    def __str__(self) -> str:
        return (
            f"{self.own / 1e6:,.0f} MB at most ({self.before / 1e6:,.0f} MB before), and "
            f"{self.mapped / 1e6:,.0f} MB of mapped files, which the system may drop"
        )

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self._note()

    def _note(self) -> None:
        own, mapped = self._now()
        self.own, self.mapped = max(self.own, own), max(self.mapped, mapped)

    @staticmethod
    def _now() -> tuple[int, int]:
        """Bytes, on Linux."""
        status = Path("/proc/self/status").read_text()
        found = dict(re.findall(r"^(Rss(?:Anon|File)):\s+(\d+) kB", status, re.MULTILINE))
        return 1024 * int(found["RssAnon"]), 1024 * int(found["RssFile"])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--papers", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--shard", type=int, default=SHARD, help="papers of a shard")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=500, help="papers a query")
    parser.add_argument("--pools", type=float, nargs="*", default=[1.0, 0.1], help="shares of the papers")
    parser.add_argument("--folder", type=Path, help="where the vectors are written; removed at the end")
    args = parser.parse_args()
    begin(args)
    faiss.omp_set_num_threads(args.threads)
    size = args.papers * args.dim
    print(
        f"{args.papers:,} papers in {args.dim} dimensions: {2 * size / 1e9:.2f} GB on the disk, "
        f"{4 * size / 1e9:.2f} GB as float32"
    )
    with tempfile.TemporaryDirectory(dir=args.folder) as place, Memory() as memory:
        folder = written(args, Path(place))
        started = time.perf_counter()
        papers, _ = folder.open()
        index = build_index(IndexConfig(device="cpu"), papers)
        taken = time.perf_counter() - started
        print(f"opened and all numbers checked in {taken:.1f} s, {2 * size / taken / 1e9:.2f} GB/s")
        for share in args.pools:
            searched(args, papers, index, share)
    print(f"memory: {memory}")


def shard_of(args: argparse.Namespace, number: int, papers: int) -> NDArray[np.float32]:
    """The vectors of a shard."""
    drawn = torch.Generator().manual_seed(number)
    vectors = torch.randn((papers, args.dim), generator=drawn)
    found: NDArray[np.float32] = torch.nn.functional.normalize(vectors, dim=1).numpy()
    return found


def written(args: argparse.Namespace, place: Path) -> EmbeddingFolder:
    """All shards; prints how fast they were."""
    layout = Layout({"weights": "none"}, "generated", args.papers, args.dim, shard=args.shard)
    folder = EmbeddingFolder.begin(place / "embeddings", layout)
    ours: list[float] = []
    plain: list[float] = []
    for number, part in enumerate(folder.parts()):
        vectors = shard_of(args, number, part.stop - part.start)
        if number % COPIED == 0:
            content = as_dtype(vectors, "float16").tobytes()
            started = time.perf_counter()
            with (place / "plain").open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            plain.append(time.perf_counter() - started)
            (place / "plain").unlink()
        started = time.perf_counter()
        folder.write(number, vectors)
        ours.append(time.perf_counter() - started)
    taken, copied = statistics.median(ours), statistics.median(plain)
    rate = args.shard * args.dim * 2 / taken / 1e9
    print(
        f"written: {args.shard / taken:,.0f} papers/s ({rate:.2f} GB/s), rounded and checked; "
        f"{copied / taken:.2f} of the speed of bringing the same bytes to the disk"
    )
    return folder


def searched(args: argparse.Namespace, papers: VectorTable, index: PaperIndex, share: float) -> None:
    """Queries in a pool of this share of the papers, against the product; prints the ratio."""
    rng = np.random.default_rng(0)
    allowed = rng.random(len(index)) < share if share < 1 else np.ones(len(index), np.bool_)
    pool = np.flatnonzero(allowed)
    wanted = np.sort(rng.choice(pool, args.queries, replace=args.queries > len(pool)))
    noise = rng.standard_normal((len(wanted), args.dim)).astype(np.float32) / args.dim**0.5
    vectors = papers[wanted] + 0.5 * noise
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found: list[NDArray[np.int32]] = []
    taken = seconds(args, lambda: found.append(index.search(vectors, args.depth, allowed).papers))
    first = np.mean(found[0][:, 0] == wanted)
    product = product_seconds(args, vectors, len(pool))
    print(
        f"pool of {len(pool):,}: {len(wanted) / taken:,.1f} queries/s to depth {args.depth}, "
        f"{product / taken:.2f} of the speed of the matrix product alone; {first:.1%} found their paper first"
    )


def product_seconds(args: argparse.Namespace, queries: NDArray[np.float32], papers: int) -> float:
    """Of as many products as a search has, of vectors that are in memory: in whatever blocks are fastest."""
    left, rates = torch.from_numpy(queries), []
    for step in (1024, 4096, 16384):
        blocks = max(1, min(BLOCK // args.dim, papers) // step)
        right, out = torch.randn(step * blocks, args.dim), torch.empty(len(queries), step)

        def multiply(right: torch.Tensor = right, out: torch.Tensor = out, step: int = step) -> None:
            for start in range(0, len(right), step):
                torch.mm(left, right[start : start + step].T, out=out)

        multiply()
        rates.append(len(right) / min(seconds(args, multiply) for _ in range(3)))
    return papers / max(rates)


if __name__ == "__main__":
    main()
