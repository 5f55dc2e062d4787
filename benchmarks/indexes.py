"""Indexes of paper vectors: recall against exact search, speed, size; exact search against a matrix product.

The vectors are those of HAtten (--checkpoint), or else sums of random vectors of a text's words. --vectors N
draws N papers from the distribution of the real ones: each paper as often as any other, plus Gaussian noise
whose covariance is 0.36 of that of its 64 nearest papers about it. Queries stay the real ones. The first
lines say how close neighbours are among the real papers, and among as many generated ones.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._common import arguments, begin, corpus, median_seconds, seconds, word_sums
from datasets.corpus import Corpus
from hatten.retriever import HAttenRetriever
from retrieval.base import folder_bytes
from retrieval.index import FEW, PaperIndex, build_index, faiss, load_index, search_exact
from retrieval.settings import IndexConfig

INDEXES = (
    "half ivf ivf:probes=20 ivf:probes=256 hnsw hnsw:ef_search=512 pq pq:subvectors=50 "
    "ivfpq ivfpq:subvectors=50"
)
NEIGHBOURS, SPREAD = 64, 0.6
Works = dict[str, Callable[[], object]]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--checkpoint", type=Path, help="of HAtten; random word vectors when absent")
    parser.add_argument(
        "--keep", type=Path, help="file (.npz) for the real vectors: read if it is there, else written"
    )
    parser.add_argument("--vectors", type=int, help="generate so many; the real ones when absent")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=100, help="papers a query")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--indexes", default=INDEXES, help="KIND or KIND:SETTING=NUMBER,..., separated by blanks"
    )
    parser.add_argument(
        "--allowed", type=float, nargs="*", default=[0.5, 0.1, 0.01], help="shares, for filters"
    )
    args = parser.parse_args()
    begin(args)
    faiss.omp_set_num_threads(args.threads)
    papers, queries = real_vectors(args)
    queries = queries[np.random.default_rng(0).permutation(len(queries))[: args.queries]]
    if args.vectors is not None:
        papers = generated(papers, queries, args.vectors)
    print(f"{len(papers):,} papers, {len(queries):,} queries, {papers.shape[1]} dimensions")
    against_product(args, papers, queries)
    with tempfile.TemporaryDirectory() as folder:
        compare(args, papers, queries, Path(folder))


def real_vectors(args: argparse.Namespace) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Of the candidates and of the contexts of the test split."""
    if args.keep and args.keep.is_file():
        with np.load(args.keep, allow_pickle=False) as file:
            return file["papers"], file["queries"]
    opened: Corpus = corpus(args)
    rows, contexts = np.flatnonzero(opened.is_candidate), opened.split("test").contexts
    if args.checkpoint is None:
        sums = word_sums(opened)
        papers, queries = sums(rows, "abstract_tokens"), sums(contexts, "context_tokens")
    else:
        retriever = HAttenRetriever(args.checkpoint)
        retriever.prepare(opened)
        papers, queries = retriever.encode_papers(rows), retriever.encode_queries(contexts)
    if args.keep:
        np.savez(args.keep, papers=papers, queries=queries)
    return papers, queries


def generated(real: NDArray[np.float32], queries: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """`count` vectors like the real ones; prints how alike."""
    rng = np.random.default_rng(0)
    near = search_exact(real, real, NEIGHBOURS + 1).papers[:, 1:]

    def drawn(count: int) -> NDArray[np.float32]:
        out = np.empty((count, real.shape[1]), np.float32)
        rounds = [rng.permutation(len(real)) for _ in range(-(-count // len(real)))]
        parents = np.concatenate(rounds)[:count]
        for start in range(0, count, 4096):
            of = parents[start : start + 4096]
            weights = rng.standard_normal((len(of), NEIGHBOURS), np.float32) * (SPREAD / NEIGHBOURS**0.5)
            noise = (
                np.einsum("bn,bnd->bd", weights, real[near[of]]) - weights.sum(1, keepdims=True) * real[of]
            )
            moved = real[of] + noise
            out[start : start + 4096] = moved / np.linalg.norm(moved, axis=1, keepdims=True)
        return out

    print("cosines to the 1st, 10th and 100th nearest paper (quantiles .1 .5 .9)   of queries / of papers")
    for name, papers in (("real", real), (f"generated, {len(real):,}", drawn(len(real)))):
        some = papers[rng.permutation(len(papers))[:500]]
        of = [search_exact(queries[:500], papers, 100).scores, search_exact(some, papers, 101).scores[:, 1:]]
        print(
            f"{name}: " + " / ".join(", ".join(quantiles(scores[:, n]) for n in (0, 9, 99)) for scores in of)
        )
    return drawn(count)


def quantiles(values: NDArray[np.float32]) -> str:
    return " ".join(f"{value:.2f}" for value in np.quantile(values, [0.1, 0.5, 0.9]))


def against_product(
    args: argparse.Namespace, papers: NDArray[np.float32], queries: NDArray[np.float32]
) -> None:
    """Exact search in batches against the bare product, and against Faiss's own choice of when it pays."""
    papers = papers[:50_000]
    ours, right = faiss.cvar.distance_compute_blas_threshold, torch.from_numpy(papers).T

    def search(threshold: int, part: NDArray[np.float32]) -> None:
        faiss.cvar.distance_compute_blas_threshold = threshold
        faiss.knn(part, papers, args.depth, metric=faiss.METRIC_INNER_PRODUCT)

    for batch in (1, 8, 64, 256, 1000):
        part, out = queries[:batch], torch.empty(min(batch, len(queries)), len(papers))
        works: Works = {
            "ours": partial(search, ours, part),
            "faiss": partial(search, 128_000, part),
            "product": partial(torch.mm, torch.from_numpy(part), right, out=out),
        }
        taken = median_seconds(args, works, args.repeats)
        print(
            f"exact, {len(part):,} queries at a time: {taken['product'] / taken['ours']:.2f} of the speed of "
            f"the product, {taken['faiss'] / taken['ours']:.1f} times that with Faiss's own threshold"
        )
    faiss.cvar.distance_compute_blas_threshold = ours


def parsed(text: str) -> IndexConfig:
    """`KIND:SETTING=NUMBER,...`, searched on the CPU."""
    kind, _, settings = text.partition(":")
    given: dict[str, Any] = {"device": "cpu"} if kind in ("exact", "half") else {}
    for setting in settings.split(",") if settings else ():
        name, value = setting.split("=")
        given[name] = int(value)
    return IndexConfig(kind, **given)


def compare(
    args: argparse.Namespace, papers: NDArray[np.float32], queries: NDArray[np.float32], folder: Path
) -> None:
    """The tables."""
    configs = {name: parsed(name) for name in ["exact", *args.indexes.split()]}
    indexes: dict[str, PaperIndex] = {}
    folders: dict[str, Path] = {}
    build: dict[str, float] = {}
    for name, config in configs.items():
        made = str(config.asdict())
        if made not in folders:  # else it differs in its search alone
            folders[made] = folder / str(len(folders))
            folders[made].mkdir()
            build[made] = seconds(args, partial(make, config, papers, folders[made]))
        indexes[name] = load_index(config, folders[made])

    # Many queries at a time may be compared with all papers where one would not.
    parts = np.array_split(queries, -(-len(queries) // FEW))
    found = {
        name: np.concatenate([index.search(part, args.depth).papers for part in parts])
        for name, index in indexes.items()
    }
    works: Works = {name: partial(index.search, queries, args.depth) for name, index in indexes.items()}
    many = median_seconds(args, works, args.repeats)
    works = {name: partial(alone, index, queries[:100], args.depth) for name, index in indexes.items()}
    one = median_seconds(args, works, args.repeats)
    print(
        f"\n| index | recall@10 | recall@{args.depth} | queries/s, {len(queries):,} at a time | to exact "
        "| queries/s, one at a time | to exact | bytes a vector | build, s | file, MB |"
    )
    print("| --- |" + " ---: |" * 9)
    for name, index in indexes.items():
        made = str(configs[name].asdict())
        row = [
            name,
            f"{recall(found['exact'][:, :10], found[name][:, :10]):.3f}",
            f"{recall(found['exact'], found[name]):.3f}",
            f"{len(queries) / many[name]:,.0f}",
            f"{many['exact'] / many[name]:.2f}",
            f"{100 / one[name]:,.0f}",
            f"{one['exact'] / one[name]:.2f}",
            f"{index.nbytes / len(papers):,.0f}",
            f"{build[made]:,.1f}",
            f"{folder_bytes(folders[made]) / 1e6:,.1f}",
        ]
        print(f"| {' | '.join(row)} |", flush=True)

    first = {config.kind: name for name, config in reversed(configs.items())}
    plain = {name: index for name, index in indexes.items() if name in first.values()}
    head = f"papers allowed | index | recall@{args.depth} | queries/s, {len(queries):,} at a time | to exact"
    print(f"\n| {head} |")
    print("| ---: | --- |" + " ---: |" * 3)
    for share in args.allowed:
        allowed = np.random.default_rng(0).random(len(papers)) < share
        found = {name: index.search(queries, args.depth, allowed).papers for name, index in plain.items()}
        works = {name: partial(index.search, queries, args.depth, allowed) for name, index in plain.items()}
        many = median_seconds(args, works, 1)
        for name in plain:
            print(
                f"| {share:.0%} | {name} | {recall(found['exact'], found[name]):.3f} "
                f"| {len(queries) / many[name]:,.0f} | {many['exact'] / many[name]:.2f} |",
                flush=True,
            )


def make(config: IndexConfig, papers: NDArray[np.float32], folder: Path) -> None:
    """Build and write an index."""
    build_index(config, papers).save(folder)


def alone(index: PaperIndex, queries: NDArray[np.float32], depth: int) -> None:
    """Search one query after the other."""
    for row in range(len(queries)):
        index.search(queries[row : row + 1], depth)


def recall(exact: NDArray[np.int32], found: NDArray[np.int32]) -> float:
    """Share of the papers of exact search that are among those found; both [Q, n]."""
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))


if __name__ == "__main__":
    main()
