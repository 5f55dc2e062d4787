"""Embeddings of millions of papers, written and searched in bounded memory; padding of article encoders.

Vectors are random directions. Writing is compared with writing the same bytes alone, search of pools with the
matrix product of as many numbers. Queries are papers with noise, so that the first result is known. --padding
FILE counts the subwords that article encoders multiply, by how many papers are sorted by length.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._common import arguments, begin, memory, seconds
from datasets.citations.graph import read_paper_lines
from retrieval.embeddings import SHARD, EmbeddingFolder, Layout
from retrieval.encoder import load_pretrained
from retrieval.index import PaperIndex, build_index, faiss
from retrieval.settings import ArticleConfig, IndexConfig
from retrieval.vectors import BLOCK, VectorTable, as_dtype, chunks, padded_length


def written(args: argparse.Namespace, place: Path) -> EmbeddingFolder:
    """All shards; every eighth is also written plainly."""
    layout = Layout({"weights": "none"}, "generated", args.papers, args.dim)
    folder = EmbeddingFolder.begin(place / "embeddings", layout)
    ours: list[float] = []
    plain: list[float] = []
    for number, part in enumerate(folder.parts()):
        drawn = torch.randn(
            (part.stop - part.start, args.dim), generator=torch.Generator().manual_seed(number)
        )
        vectors = torch.nn.functional.normalize(drawn, dim=1).numpy()
        if number % 8 == 0:
            content = as_dtype(vectors, "float16").tobytes()

            def write_plainly(content: bytes = content) -> None:
                with (place / "plain").open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())

            plain.append(seconds(args, write_plainly))
        ours.append(seconds(args, lambda n=number, v=vectors: folder.write(n, v)))  # type: ignore[misc]
    taken = statistics.median(ours)
    print(f"written: {SHARD / taken:,.0f} papers/s; {statistics.median(plain) / taken:.2f} of writing alone")
    return folder


def searched(args: argparse.Namespace, papers: VectorTable, index: PaperIndex, share: float) -> None:
    rng = np.random.default_rng(0)
    allowed = rng.random(len(index)) < share
    pool = np.flatnonzero(allowed)
    wanted = np.sort(rng.choice(pool, args.queries))
    noise = rng.standard_normal((len(wanted), args.dim)).astype(np.float32) / args.dim**0.5
    queries = papers[wanted] + 0.5 * noise
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    found: list[NDArray[np.int32]] = []
    taken = seconds(args, lambda: found.append(index.search(queries, args.depth, allowed).papers))
    product = product_seconds(args, queries, len(pool))
    print(
        f"pool of {len(pool):,}: {len(wanted) / taken:,.1f} queries/s to depth {args.depth}, "
        f"{product / taken:.2f} of the speed of the product; "
        f"{np.mean(found[0][:, 0] == wanted):.1%} found first"
    )


def product_seconds(args: argparse.Namespace, queries: NDArray[np.float32], papers: int) -> float:
    """Of the product alone with vectors in memory, in whatever blocks are fastest."""
    left, rates = torch.from_numpy(queries), []
    for step in (1024, 4096, 16384):
        blocks = max(1, min(BLOCK // args.dim, papers) // step)
        right, out = torch.randn(step * blocks, args.dim), torch.empty(len(queries), step)

        def multiply(right: torch.Tensor = right, out: torch.Tensor = out, step: int = step) -> None:
            for block in right.split(step):
                torch.mm(left, block.T, out=out)

        multiply()
        rates.append(len(right) / min(seconds(args, multiply) for _ in range(3)))
    return papers / max(rates)


def padding(path: Path, max_tokens: int = 512, chunk_tokens: int = 4096) -> None:
    _, tokenizer = load_pretrained(ArticleConfig("minilm", hub="sentence-transformers/all-MiniLM-L6-v2"))
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    texts = [f"{paper.title}. {paper.abstract}" for paper in read_paper_lines(path)]
    read = np.minimum([len(encoding.ids) for encoding in backend.encode_batch_fast(texts)], max_tokens)
    plain = sum(len(part) * int(part.max()) for part in np.split(read, range(32, len(read), 32)))
    print(
        f"{len(read):,} papers of {read.mean():.0f} subwords\n"
        f"32 as they come: {plain / read.sum() - 1:.1%} padding"
    )
    for together in (1024, SHARD, len(read)):
        total = 0
        for part in np.split(read, range(together, len(read), together)):
            falling = -np.sort(-part)
            for rows in chunks(falling, chunk_tokens):  # as ArticleEncoder cuts papers
                some = falling[rows]
                width = int(some[0])
                total += len(some) * (width if some[-1] == width else min(padded_length(width), max_tokens))
        print(f"{together:,} sorted by length: {total / read.sum() - 1:.1%} padding")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--papers", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=500, help="papers a query")
    parser.add_argument("--folder", type=Path, help="for the vectors, removed at the end")
    parser.add_argument("--padding", type=Path, help="a file of papers (docs/data.md): count padding only")
    args = parser.parse_args()
    if args.padding:
        padding(args.padding)
        return
    begin(args)
    faiss.omp_set_num_threads(args.threads)
    before, peak, over = memory("RssAnon"), [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], memory("RssAnon"))

    threading.Thread(target=watch, daemon=True).start()
    with tempfile.TemporaryDirectory(dir=args.folder) as place:
        folder = written(args, Path(place))
        found: list[tuple[VectorTable, PaperIndex]] = []

        def open_all() -> None:
            papers, _ = folder.open()
            found.append((papers, build_index(IndexConfig(device="cpu"), papers)))

        print(f"opened and checked in {seconds(args, open_all):.1f} s")
        for share in (1.0, 0.1):
            searched(args, *found[0], share)
    over.set()
    print(f"memory: {1000 * peak[0]:,.0f} MB at most, {1000 * before:,.0f} MB before; mapped files aside")


if __name__ == "__main__":
    main()
