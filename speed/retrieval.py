"""BM25 compared with bm25s, and indexes of vectors compared with exact search.

BM25: papers indexed and queries answered per second; bm25s has its own tokeniser. Indexes: recall of the
exact results, and speed as multiples of `exact`, in batches and query by query. The vectors are means of
random word vectors, whose distribution is similar to that of HAtten.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.hatten.nnselect.model import AverageRetriever
from citerec.retrieval.indexes.cpu import FEW_QUERIES, PaperIndex, load_faiss
from citerec.retrieval.indexes.index import build_index, load_index
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.lexical.terms import strip_markers
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import IndexConfig
from citerec.speed._common import Tasks, load_corpus, make_parser, median_seconds, setup, time_call
from citerec.speed.gpu import RandomVectors

FIELDS = (("context", "title"), ("context", "title", "abstract"))
DEPTHS = (100, 2000)
DIM = 200
Vectors = NDArray[np.float32]


def tokens(texts: list[str]) -> Any:
    return bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)


def retrieve(peer: bm25s.BM25, texts: list[str], k: int, threads: int) -> Any:
    return peer.retrieve(tokens(texts), k=k, show_progress=False, n_threads=threads).documents


def compare_bm25(args: argparse.Namespace, corpus: Corpus, contexts: NDArray[np.int64]) -> None:
    rows = np.flatnonzero(corpus.is_candidate)
    papers = [f"{corpus.titles[row]} {corpus.abstracts[row]}" for row in rows.tolist()]
    peer = bm25s.BM25(k1=1.2, b=0.75, backend="auto")  # numba's where it is installed
    direct = time_call(args, lambda: peer.index(tokens(papers), show_progress=False))
    for fields in FIELDS:
        ours = BM25(k1=1.2, b=0.75, threads=args.threads, query=fields)
        own = time_call(args, partial(ours.index, corpus))
        if fields is FIELDS[0]:
            print(
                f"BM25: indexed {len(papers) / own:,.0f} papers/s from counted words, bm25s "
                f"{len(papers) / direct:,.0f} from texts; {direct / own:.1f} times"
            )
        columns = map(Queries.from_contexts(corpus, contexts).texts, fields)
        texts = [" ".join(map(strip_markers, parts)) for parts in zip(*columns, strict=True)]
        threads = args.threads if args.threads > 1 else 0
        for k in DEPTHS:
            tasks: Tasks = {
                "ours": partial(ours.search, contexts, k),
                "peer": partial(retrieve, peer, texts, k, threads),
            }
            rates = {name: len(texts) / time for name, time in median_seconds(args, tasks).items()}
            print(
                f"  {', '.join(fields)}, {k} papers: {rates['ours']:,.0f} queries/s, bm25s "
                f"{rates['peer']:,.0f}; {rates['ours'] / rates['peer']:.2f} times"
            )


def load_vectors(corpus: Corpus, contexts: NDArray[np.int64]) -> tuple[Vectors, Vectors]:
    """Return vectors of the candidates and of contexts."""
    average = AverageRetriever(RandomVectors(DIM), "mean")
    average.prepare(corpus)
    return average.encode_papers(np.flatnonzero(corpus.is_candidate)), average.encode_queries(contexts)


def parse_index(text: str) -> IndexConfig:
    """Parse `KIND:SETTING=NUMBER,...` to an index on the CPU."""
    kind, _, settings = text.partition(":")
    options: dict[str, Any] = {"device": "cpu"} if kind in ("exact", "half") else {}
    pairs = (setting.split("=") for setting in settings.split(",") if setting)
    return IndexConfig(kind, **options | {name: int(value) for name, value in pairs})


def compare_indexes(args: argparse.Namespace, papers: Vectors, queries: Vectors) -> None:
    indexes: dict[str, PaperIndex] = {}
    build: dict[str, float] = {}
    for name in ["exact", *args.indexes.split()]:
        config = parse_index(name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            build[name] = time_call(args, lambda c=config, p=path: build_index(c, papers).save(p))  # type: ignore[misc]
            indexes[name] = load_index(config, path)

    def singly(index: PaperIndex) -> None:
        for row in range(min(100, len(queries))):
            index.search(queries[row : row + 1], args.depth)

    parts = np.array_split(queries, -(-len(queries) // FEW_QUERIES))  # larger batches may be searched fully
    rankings = {
        name: np.concatenate([index.search(part, args.depth).papers for part in parts])
        for name, index in indexes.items()
    }
    many = median_seconds(args, {n: partial(i.search, queries, args.depth) for n, i in indexes.items()})
    single = median_seconds(args, {n: partial(singly, i) for n, i in indexes.items()})
    print(f"\n| index | R@10 | R@{args.depth} | batches | single queries | bytes/vector | build, s |")
    print("| --- |" + " ---: |" * 6)
    for name, index in indexes.items():
        print(
            f"| {name} | {recall(rankings['exact'][:, :10], rankings[name][:, :10]):.3f} "
            f"| {recall(rankings['exact'], rankings[name]):.3f} | {many['exact'] / many[name]:.2f} "
            f"| {single['exact'] / single[name]:.2f} | {index.nbytes / len(papers):,.0f} "
            f"| {build[name]:,.1f} |"
        )
    print(f"exact: {len(queries) / many['exact']:,.0f} queries/s, singly {100 / single['exact']:,.0f}")


def recall(exact: NDArray[np.int32], approximate: NDArray[np.int32]) -> float:
    """Share of the exact results among those found; both [Q, n]."""
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, approximate, strict=True)]))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--depth", type=int, default=100, help="papers per query of the indexes")
    parser.add_argument(
        "--indexes", default="half ivf", help="KIND or KIND:SETTING=NUMBER,..., separated by spaces"
    )
    args = parser.parse_args()
    setup(args)
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    load_faiss().omp_set_num_threads(args.threads)
    corpus = load_corpus(args)
    contexts = np.random.default_rng(0).permutation(corpus.split("test").contexts)[: args.queries]
    compare_bm25(args, corpus, contexts)
    compare_indexes(args, *load_vectors(corpus, contexts))


if __name__ == "__main__":
    main()
