"""Writing and searching embeddings of millions of papers in bounded memory; padding of article encoders.

Vectors are random directions. Writing is compared with a plain write of the same bytes, and searching a pool
with a matrix product of the same size. Queries are papers plus noise, so that the first result is known.
--padding FILE measures the padding of article encoders by the number of papers sorted by length together.
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

from citerec.benchmarks._common import make_parser, memory_gb, setup, time_call
from citerec.datasets.citations.graph import read_paper_lines
from citerec.retrieval.cpu_index import PaperIndex, faiss
from citerec.retrieval.embeddings import SHARD, EmbeddingFolder, Layout
from citerec.retrieval.encoder import load_pretrained
from citerec.retrieval.index import build_index
from citerec.retrieval.settings import ArticleConfig, IndexConfig
from citerec.retrieval.vectors import BLOCK, VectorTable, as_dtype, chunks, padded_length


def write_shards(args: argparse.Namespace, root: Path) -> EmbeddingFolder:
    """Write all shards; every eighth is also written with a plain write."""
    layout = Layout({"weights": "none"}, "generated", args.papers, args.dim)
    folder = EmbeddingFolder.create(root / "embeddings", layout)
    ours: list[float] = []
    plain: list[float] = []
    for number, part in enumerate(folder.shards()):
        drawn = torch.randn(
            (part.stop - part.start, args.dim), generator=torch.Generator().manual_seed(number)
        )
        vectors = torch.nn.functional.normalize(drawn, dim=1).numpy()
        if number % 8 == 0:
            content = as_dtype(vectors, "float16").tobytes()

            def write_plainly(content: bytes = content) -> None:
                with (root / "plain").open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())

            plain.append(time_call(args, write_plainly))
        ours.append(time_call(args, lambda n=number, v=vectors: folder.write(n, v)))  # type: ignore[misc]
    time = statistics.median(ours)
    print(f"written: {SHARD / time:,.0f} papers/s; {statistics.median(plain) / time:.2f} of a plain write")
    return folder


def measure_search(args: argparse.Namespace, papers: VectorTable, index: PaperIndex, share: float) -> None:
    rng = np.random.default_rng(0)
    allowed = rng.random(len(index)) < share
    pool = np.flatnonzero(allowed)
    wanted = np.sort(rng.choice(pool, args.queries))
    noise = rng.standard_normal((len(wanted), args.dim)).astype(np.float32) / args.dim**0.5
    queries = papers[wanted] + 0.5 * noise
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    found: list[NDArray[np.int32]] = []
    time = time_call(args, lambda: found.append(index.search(queries, args.depth, allowed).papers))
    product = product_time(args, queries, len(pool))
    print(
        f"pool of {len(pool):,}: {len(wanted) / time:,.1f} queries/s to depth {args.depth}, "
        f"{product / time:.2f} of the speed of the product; "
        f"{np.mean(found[0][:, 0] == wanted):.1%} ranked first"
    )


def product_time(args: argparse.Namespace, queries: NDArray[np.float32], papers: int) -> float:
    """Return the time of the matrix product with vectors in memory, at the fastest block size."""
    left, rates = torch.from_numpy(queries), []
    for step in (1024, 4096, 16384):
        blocks = max(1, min(BLOCK // args.dim, papers) // step)
        right, out = torch.randn(step * blocks, args.dim), torch.empty(len(queries), step)

        def multiply(right: torch.Tensor = right, out: torch.Tensor = out, step: int = step) -> None:
            for block in right.split(step):
                torch.mm(left, block.T, out=out)

        multiply()
        rates.append(len(right) / min(time_call(args, multiply) for _ in range(3)))
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
        f"batches of 32, unsorted: {plain / read.sum() - 1:.1%} padding"
    )
    for together in (1024, SHARD, len(read)):
        total = 0
        for part in np.split(read, range(together, len(read), together)):
            falling = -np.sort(-part)
            for rows in chunks(falling, chunk_tokens):  # as in ArticleEncoder
                some = falling[rows]
                width = int(some[0])
                total += len(some) * (width if some[-1] == width else min(padded_length(width), max_tokens))
        print(f"{together:,} sorted by length: {total / read.sum() - 1:.1%} padding")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--papers", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=500, help="papers per query")
    parser.add_argument("--folder", type=Path, help="parent of the temporary folder of vectors")
    parser.add_argument("--padding", type=Path, help="file of papers (docs/data.md); measure only padding")
    args = parser.parse_args()
    if args.padding:
        padding(args.padding)
        return
    setup(args)
    faiss.omp_set_num_threads(args.threads)
    before, peak, over = memory_gb("RssAnon"), [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], memory_gb("RssAnon"))

    threading.Thread(target=watch, daemon=True).start()
    with tempfile.TemporaryDirectory(dir=args.folder) as root:
        folder = write_shards(args, Path(root))
        found: list[tuple[VectorTable, PaperIndex]] = []

        def open_all() -> None:
            papers, _ = folder.read()
            found.append((papers, build_index(IndexConfig(device="cpu"), papers)))

        print(f"opened and checked in {time_call(args, open_all):.1f} s")
        for share in (1.0, 0.1):
            measure_search(args, *found[0], share)
    over.set()
    print(f"peak memory: {1000 * peak[0]:,.0f} MB, {1000 * before:,.0f} MB before; without mapped files")


if __name__ == "__main__":
    main()
