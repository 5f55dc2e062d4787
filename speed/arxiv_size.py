"""Memory and time of all stages from source files to search, for a corpus of (a share of) the size of arXiv.

    python -m citerec.speed.arxiv_size --share 1 --folder DIR

generates 1.66 million papers and 3.2 million contexts in DIR, unless they exist, and runs each stage in a
separate process to report its peak resident memory. Stages that would take hours are timed on a sample and
extrapolated. docs/results/speed.md has results.
"""

from __future__ import annotations

import argparse
import pickle
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.datasets.formats.source_files import find_files
from citerec.datasets.generate import generate_corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import SPLITS, TRAIN
from citerec.hatten.batches import TrainingData
from citerec.hatten.documents import DocumentReader
from citerec.hatten.encoder import build_encoder
from citerec.hatten.mining import WordSets, mine
from citerec.hatten.settings import EncoderBatchSettings, EncoderConfig, MiningSettings
from citerec.retrieval.encoders.nets import as_numpy, precision
from citerec.retrieval.indexes.index import build_index
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.settings import IndexConfig
from citerec.retrieval.vectors import encode, encode_queries
from citerec.speed._common import memory_gb, random_vectors, run_in_processes, setup

PAPERS, CONTEXTS = 1_661_201, 3_205_210
"""Size of arXiv in Gu et al. 2022, table 1."""
DEPTH = 2000
"""Papers per search, as in the evaluation."""


class Clock:
    """Wall and CPU time of this process since the clock was created."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def cpu(self) -> float:
        return time.process_time() - self._cpu

    def hours(self, done: int, total: int) -> str:
        return f"{self} for {done:,}, {self.cpu() / done * total / 3600:.2f} CPU hours for {total:,}"

    def __str__(self) -> str:
        return f"{time.perf_counter() - self._wall:.2f} s ({self.cpu():.2f} s of CPU)"


def open_source(args: argparse.Namespace) -> Corpus:
    return open_corpus(args.source, cache_dir=args.cache, field="field")


def unit_vectors(count: int, dim: int = 200, seed: int = 0) -> NDArray[np.float32]:
    """[count, dim]"""
    vectors = np.random.default_rng(seed).standard_normal((count, dim), np.float32)
    for part in np.array_split(vectors, 1 + count // 65536):  # in place, because memory is measured
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def generate(args: argparse.Namespace) -> None:
    """Generating the source files in one process."""
    if not args.source.is_dir():
        clock, sizes = Clock(), (round(args.share * PAPERS), round(args.share * CONTEXTS))
        print(f"{generate_corpus(*sizes, args.source, seed=0, workers=1)}: {clock}")


def prepare(args: argparse.Namespace) -> None:
    """Preparing the store, compared with orjson alone on a sample of the files."""
    files = list(find_files(args.source, None, SPLITS).values())
    size = sum(path.stat().st_size for path in files) / 1e6
    shutil.rmtree(args.cache, ignore_errors=True)
    clock = Clock()
    corpus = open_source(args)
    ours = clock.cpu()
    store = sum(path.stat().st_size for path in corpus.path.iterdir()) / 1e6
    print(
        f"{size:,.0f} MB of JSON, {len(corpus.word_counts):,} words, to a store of {store:,.0f} MB: {clock}"
    )
    parsing, parsed = 0.0, 0
    for path in files:
        with path.open("rb") as file:  # generated files have one record per line
            lines = [line.rstrip(b",\n") for line in file.readlines(1 << 26)[1:-1]]
        sample = [b"{" + line + b"}" if line.startswith(b'"') else line for line in lines]
        alone = Clock()
        for line in sample:
            orjson.loads(line)
        parsing, parsed = parsing + alone.cpu(), parsed + sum(map(len, sample))
    rate = parsed / parsing / 1e6
    print(f"  {size / ours:.1f} MB/s, orjson alone {rate:,.0f} MB/s; {rate * ours / size:.1f} times as long")


def open_store(args: argparse.Namespace) -> None:
    """Opening the store and reading random papers."""
    clock = Clock()
    corpus = open_source(args)
    print(f"opened {len(corpus.paper_ids):,} papers, {len(corpus.context_ids):,} contexts: {clock}")
    times = []
    for row in np.random.default_rng(0).integers(len(corpus.paper_ids), size=20_000).tolist():
        start = time.perf_counter()
        _ = corpus.titles[row], corpus.abstracts[row], corpus.abstract_tokens[row]
        times.append(time.perf_counter() - start)
    p50, p99 = np.percentile(times, (50, 99)) * 1e6
    print(f"  a random paper: p50 {p50:.1f} µs, p99 {p99:.0f} µs")


def load_batches(args: argparse.Namespace) -> None:
    """Loading training batches in this process and with two workers."""
    corpus = open_source(args)
    vocabulary, _ = random_vectors(corpus, 1)
    data = TrainingData(DocumentReader(corpus, vocabulary, 512), EncoderBatchSettings(), seed=0)
    batches = data.train_dataloader().dataset
    sizes = len(pickle.dumps(corpus)), len(pickle.dumps(batches)) / 1e6
    print(f"pickled: corpus {sizes[0]} bytes, batches {sizes[1]:.1f} MB")
    for workers in (0, 2):
        data.workers, clock = workers, Clock()
        for number, _ in enumerate(data.train_dataloader()):
            if number == 40:
                break
        print(f"  {workers} workers: 40 batches in {clock}")


def encode_sample(args: argparse.Namespace) -> None:
    """Encoding a sample of papers and contexts with HAtten (random weights)."""
    corpus = open_source(args)
    vocabulary, table = random_vectors(corpus)
    encoder = build_encoder(EncoderConfig(), table, vocabulary).eval()
    encoder.precision = precision("auto")
    reader, rng = DocumentReader(corpus, vocabulary, 512), np.random.default_rng(0)
    papers = np.sort(rng.choice(len(corpus.paper_ids), args.papers, replace=False))
    first = int(rng.integers(len(corpus.context_ids) - args.queries))
    encode(as_numpy(encoder.encode), reader.papers, papers[:64], encoder.dim)  # warm
    clock = Clock()
    encode(as_numpy(encoder.encode), reader.papers, papers, encoder.dim)
    print("papers:", clock.hours(len(papers), len(corpus.paper_ids)))
    clock = Clock()  # consecutive contexts share citing papers, as in practice
    encode_queries(as_numpy(encoder.encode), reader, np.arange(first, first + args.queries), encoder.dim)
    print("contexts:", clock.hours(args.queries, len(corpus.context_ids)))


def mine_sample(args: argparse.Namespace) -> None:
    """Mining among all papers with random vectors, for a sample of a round's queries."""
    corpus, config = open_source(args), MiningSettings()
    vectors, split, clock = unit_vectors(len(corpus.paper_ids)), corpus.split(TRAIN), Clock()
    words = WordSets(corpus)
    print(f"sets of word stems of all papers: {clock}")
    count = min(args.queries, len(split))
    queries = np.sort(np.random.default_rng(0).choice(len(split), count, replace=False))
    clock = Clock()
    mine(corpus, split, queries, unit_vectors(count, seed=1), vectors, config.depth, words)
    print("mining:", clock.hours(count, config.queries))


def search_all(args: argparse.Namespace) -> None:
    """Exact search among all papers with random vectors."""
    corpus = open_source(args)
    index = build_index(IndexConfig(kind="exact", device="cpu"), unit_vectors(len(corpus.paper_ids)))
    queries, clock = unit_vectors(args.queries, seed=1), Clock()
    index.search(queries, min(DEPTH, len(index)), None)
    print("search:", clock.hours(args.queries, len(corpus.split("test"))))


def bm25(args: argparse.Namespace) -> None:
    """BM25: indexing all papers and searching for a sample of the test queries."""
    corpus, retriever, clock = open_source(args), BM25(), Clock()
    retriever.index(corpus)
    print(f"indexed {len(corpus.paper_ids):,} papers in {clock}, {retriever.index_bytes / 1e9:.2f} GB")
    split = corpus.split("test")
    contexts, clock = split.contexts[: args.queries], Clock()
    retriever.search(contexts, min(DEPTH, len(corpus.paper_ids)))
    print("search:", clock.hours(len(contexts), len(split)))


STAGES: dict[str, Callable[[argparse.Namespace], None]] = {
    "generate": generate,
    "prepare": prepare,
    "open": open_store,
    "load": load_batches,
    "encode": encode_sample,
    "mine": mine_sample,
    "search": search_all,
    "bm25": bm25,
}


def run(name: str, args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    print(f"== {name}: {(STAGES[name].__doc__ or '').splitlines()[0]}", flush=True)
    STAGES[name](args)
    print(f"  {name}: peak resident memory {memory_gb():.2f} GB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.set_defaults(clock="cpu")
    parser.add_argument("--share", type=float, default=0.02, help="share of the size of arXiv")
    parser.add_argument("--folder", type=Path, default=Path("outputs/arxiv-size"))
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--papers", type=int, default=1024, help="papers to encode")
    parser.add_argument("--queries", type=int, default=256, help="contexts to encode, mine and search for")
    args = parser.parse_args()
    setup(args)
    args.source, args.cache = args.folder / f"source-{args.share:g}", args.folder / f"cache-{args.share:g}"
    run_in_processes([partial(run, name) for name in args.stages], args)


if __name__ == "__main__":
    main()
