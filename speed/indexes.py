"""Vector indexes: recall, speed and size compared with exact search; exact search compared with its product.

The vectors are HAtten's (--checkpoint) or sums of random word vectors. --vectors N samples N papers from the
distribution of the real ones: a real paper plus Gaussian noise with 0.36 of the covariance of its 64 nearest
papers. Queries stay real; the cosines to the nearest papers are printed for both.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from citerec.hatten.model import HAttenRetriever
from citerec.retrieval.base import folder_bytes
from citerec.retrieval.indexes.cpu import FEW_QUERIES, PaperIndex, faiss
from citerec.retrieval.indexes.index import build_index, load_index, search_exact
from citerec.retrieval.settings import IndexConfig
from citerec.speed._common import (
    Tasks,
    load_corpus,
    make_parser,
    median_seconds,
    setup,
    time_call,
    word_sums,
)

INDEXES = "half ivf ivf:probes=20 ivf:probes=256 hnsw hnsw:ef_search=512 pq pq:subvectors=50 ivfpq"
NEIGHBOURS, SPREAD = 64, 0.6
Vectors = NDArray[np.float32]


def load_vectors(args: argparse.Namespace) -> tuple[Vectors, Vectors]:
    """Return vectors of the candidates and of the contexts of the test split."""
    corpus = load_corpus(args)
    rows, contexts = np.flatnonzero(corpus.is_candidate), corpus.split("test").contexts
    if args.checkpoint is None:
        sums = word_sums(corpus)
        return sums(rows, "abstract_tokens"), sums(contexts, "context_tokens")
    retriever = HAttenRetriever(args.checkpoint)
    retriever.prepare(corpus)
    return retriever.encode_papers(rows), retriever.encode_queries(contexts)


def generate_vectors(real: Vectors, queries: Vectors, count: int) -> Vectors:
    rng = np.random.default_rng(0)
    near = search_exact(real, real, NEIGHBOURS + 1).papers[:, 1:]

    def sample(count: int) -> Vectors:
        out = np.empty((count, real.shape[1]), np.float32)
        parents = np.concatenate([rng.permutation(len(real)) for _ in range(-(-count // len(real)))])[:count]
        for start in range(0, count, 4096):
            rows = parents[start : start + 4096]
            weights = rng.standard_normal((len(rows), NEIGHBOURS), np.float32) * (SPREAD / NEIGHBOURS**0.5)
            noise = np.einsum("bn,bnd->bd", weights, real[near[rows]])
            noisy = real[rows] + noise - weights.sum(1, keepdims=True) * real[rows]
            out[start : start + 4096] = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
        return out

    for name, papers in (("real", real), ("generated", sample(len(real)))):
        scores = search_exact(queries[:500], papers, 100).scores
        print(
            f"{name}: median cosine to the 1st, 10th, 100th paper "
            f"{np.median(scores[:, [0, 9, 99]], 0).round(2)}"
        )
    return sample(count)


def compare_with_product(args: argparse.Namespace, papers: Vectors, queries: Vectors) -> None:
    """Compare exact search in batches with the matrix product alone."""
    papers = papers[:50_000]
    right = torch.from_numpy(papers).T
    for batch in (1, 8, 64, 256, 1000):
        part, out = queries[:batch], torch.empty(min(batch, len(queries)), len(papers))
        tasks: Tasks = {
            "search": partial(search_exact, part, papers, args.depth),
            "product": partial(torch.mm, torch.from_numpy(part), right, out=out),
        }
        times = median_seconds(args, tasks)
        print(
            f"exact, {len(part):,} queries: {times['product'] / times['search']:.2f} of the product's speed"
        )


def parse_index(text: str) -> IndexConfig:
    """Parse `KIND:SETTING=NUMBER,...` to an index on the CPU."""
    kind, _, settings = text.partition(":")
    options: dict[str, Any] = {"device": "cpu"} if kind in ("exact", "half") else {}
    for setting in settings.split(",") if settings else ():
        name, value = setting.split("=")
        options[name] = int(value)
    return IndexConfig(kind, **options)


def compare_indexes(args: argparse.Namespace, papers: Vectors, queries: Vectors, folder: Path) -> None:
    indexes: dict[str, PaperIndex] = {}
    folders: dict[str, Path] = {}
    build: dict[str, float] = {}
    for name in ["exact", *args.indexes.split()]:
        config = parse_index(name)
        shape = str(config.asdict())
        if shape not in folders:  # configurations of the same shape differ only in search settings
            path = folders[shape] = folder / str(len(folders))
            path.mkdir()
            build[shape] = time_call(args, lambda c=config, p=path: build_index(c, papers).save(p))  # type: ignore[misc]
        indexes[name] = load_index(config, folders[shape])

    def singly(index: PaperIndex) -> None:
        for row in range(min(100, len(queries))):
            index.search(queries[row : row + 1], args.depth)

    parts = np.array_split(queries, -(-len(queries) // FEW_QUERIES))  # larger batches may be searched fully
    found = {
        name: np.concatenate([index.search(part, args.depth).papers for part in parts])
        for name, index in indexes.items()
    }
    many = median_seconds(args, {n: partial(i.search, queries, args.depth) for n, i in indexes.items()})
    one = median_seconds(args, {n: partial(singly, i) for n, i in indexes.items()})
    print(
        f"\n| index | R@10 | R@{args.depth} | batch: times exact | single: times exact | bytes/vector | "
        "build, s | MB |"
    )
    print("| --- |" + " ---: |" * 7)
    for name, index in indexes.items():
        shape = str(parse_index(name).asdict())
        print(
            f"| {name} | {recall(found['exact'][:, :10], found[name][:, :10]):.3f} "
            f"| {recall(found['exact'], found[name]):.3f} | {many['exact'] / many[name]:.2f} "
            f"| {one['exact'] / one[name]:.2f} | {index.nbytes / len(papers):,.0f} | {build[shape]:,.1f} "
            f"| {folder_bytes(folders[shape]) / 1e6:,.1f} |"
        )
    print(f"exact: {len(queries) / many['exact']:,.0f} queries/s, singly {100 / one['exact']:,.0f}")
    print(f"\n| papers allowed | index | R@{args.depth} | times exact |\n| ---: | --- | ---: | ---: |")
    plain = {name: index for name, index in indexes.items() if ":" not in name}
    for share in args.allowed:
        allowed = np.random.default_rng(0).random(len(papers)) < share
        tasks: Tasks = {n: partial(i.search, queries, args.depth, allowed) for n, i in plain.items()}
        some = {name: index.search(queries, args.depth, allowed).papers for name, index in plain.items()}
        times = median_seconds(args, tasks, repeats=1)
        for name in plain:
            ratio = times["exact"] / times[name]
            print(f"| {share:.0%} | {name} | {recall(some['exact'], some[name]):.3f} | {ratio:.2f} |")


def recall(exact: NDArray[np.int32], found: NDArray[np.int32]) -> float:
    """Share of the exact results among those found; both [Q, n]."""
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--checkpoint", type=Path, help="HAtten model; default: random word vectors")
    parser.add_argument("--vectors", type=int, help="number of papers to generate; default: real ones")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=100, help="papers per query")
    parser.add_argument(
        "--indexes", default=INDEXES, help="KIND or KIND:SETTING=NUMBER,..., separated by spaces"
    )
    parser.add_argument(
        "--allowed",
        type=float,
        nargs="*",
        default=[0.5, 0.1, 0.01],
        help="shares of papers passing filters",
    )
    args = parser.parse_args()
    setup(args)
    faiss.omp_set_num_threads(args.threads)
    papers, queries = load_vectors(args)
    queries = queries[np.random.default_rng(0).permutation(len(queries))[: args.queries]]
    if args.vectors is not None:
        papers = generate_vectors(papers, queries, args.vectors)
    print(f"{len(papers):,} papers, {len(queries):,} queries, {papers.shape[1]} dimensions")
    compare_with_product(args, papers, queries)
    with tempfile.TemporaryDirectory() as folder:
        compare_indexes(args, papers, queries, Path(folder))


if __name__ == "__main__":
    main()
