"""Stages of benchmarks.arxiv_size that use a prepared corpus: each prints what it found."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import pickle
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._common import random_vectors
from datasets.corpus import Corpus
from datasets.prepare import open_corpus
from datasets.records import TRAIN
from hatten.batches import Batches, TrainingData
from hatten.documents import DocumentReader
from hatten.encoder import build_encoder
from hatten.mining import WordSets, mine
from hatten.settings import EncoderBatchSettings, EncoderConfig, MiningSettings
from retrieval.bm25 import BM25
from retrieval.index import build_index
from retrieval.settings import IndexConfig
from retrieval.vectors import encode, encode_queries, precision

BATCHES = 40
"""That a loader reads."""
DEPTH = 2000
"""Papers that a search finds: as many as the evaluation looks at."""


class Clock:
    """Wall and CPU time of this process since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def cpu(self) -> float:
        """Seconds."""
        return time.process_time() - self._cpu

    def __str__(self) -> str:
        return f"{time.perf_counter() - self._wall:.2f} s ({self.cpu():.2f} s of CPU)"


def set_up(args: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(args.threads)


def peak_gb() -> float:
    """The most resident memory that this process has had, mapped files included, in GB."""
    return memory("status", "VmHWM") / 1e6


def memory(file: str, key: str, process: int | str = "self") -> int:
    """A figure of /proc/PROCESS/FILE, in kB."""
    lines = Path(f"/proc/{process}/{file}").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def opened(args: argparse.Namespace) -> Corpus:
    return open_corpus(args.source, cache_dir=args.cache, field="field")


def load(args: argparse.Namespace) -> None:
    """Batches of training, by this process and by workers; what a worker has of its own."""
    corpus = opened(args)
    vocabulary, _ = random_vectors(corpus, 1)
    reader = DocumentReader(corpus, vocabulary, 512)
    data = TrainingData(reader, EncoderBatchSettings(), seed=0)
    batches: Batches = data.train_dataloader().dataset  # type: ignore[assignment]
    whole = sum(path.stat().st_size for path in corpus.path.iterdir()) / 1e6
    print(f"pickled: the corpus {len(pickle.dumps(corpus))} bytes, for a store of {whole:,.0f} MB;")
    print(f"  the batches of a round {len(pickle.dumps(batches)) / 1e6:.1f} MB, which are arrays:", end=" ")
    arrays = {
        "order": batches.order,
        "rate": batches.rate,
        "candidates": batches.candidates,
        "words": reader.ids,
    }
    arrays |= {"queries": data.split.contexts, "cited": data.split.positives.values}
    print(", ".join(f"{name} {array.nbytes / 1e6:.1f}" for name, array in arrays.items()))
    for how, workers in ((None, 0), ("fork", 2), ("spawn", 2)):
        data.workers = workers
        loader = data.train_dataloader()
        loader.multiprocessing_context = how
        clock, own = Clock(), [0]
        for number, _ in enumerate(iterator := iter(loader)):
            if number == BATCHES:
                own = [memory("smaps_rollup", "Private_Dirty", child.pid or 0) for child in children()]
                break
        name = f"{workers} workers by {how}" if workers else "no workers"
        print(f"  {name}: {BATCHES} batches in {clock}", end="")
        print(f"; memory of their own {', '.join(f'{kb / 1e3:.0f} MB' for kb in own)}" if workers else "")
        del iterator, loader


def children() -> list[multiprocessing.process.BaseProcess]:
    return [child for child in multiprocessing.active_children() if child.pid]


def encode_sample(args: argparse.Namespace) -> None:
    """A sample of papers and of queries by HAtten with random weights; extrapolated to all."""
    corpus = opened(args)
    vocabulary, table = random_vectors(corpus)
    torch.manual_seed(0)
    encoder = build_encoder(EncoderConfig(), table, vocabulary).eval()
    encoder.precision = precision("auto")
    reader = DocumentReader(corpus, vocabulary, encoder.config.max_tokens)
    rng = np.random.default_rng(0)
    papers = np.sort(rng.choice(len(corpus.paper_ids), args.papers, replace=False))
    first = rng.integers(len(corpus.context_ids) - args.queries)
    queries = np.arange(first, first + args.queries)  # those of a citing paper are next to each other
    encode(encoder.encode, reader.papers, papers[:64], encoder.dim)  # warm
    extrapolated = {"papers": (papers, len(corpus.paper_ids)), "contexts": (queries, len(corpus.context_ids))}
    for what, (rows, total) in extrapolated.items():
        clock = Clock()
        if what == "papers":
            encode(encoder.encode, reader.papers, rows, encoder.dim)
        else:
            encode_queries(encoder.encode, reader, rows, encoder.dim)
        seconds = clock.cpu() / len(rows)
        print(f"{len(rows):,} {what} in {clock}: for all {total:,} {seconds * total / 3600:.2f} hours of CPU")
    print(f"vectors of all papers: {4 * encoder.dim * len(corpus.paper_ids) / 1e9:.2f} GB")


def mine_sample(args: argparse.Namespace) -> None:
    """Negatives and positives among all papers, by random vectors, for a sample of the queries of a round."""
    corpus = opened(args)
    vectors, clock = unit_vectors(len(corpus.paper_ids)), Clock()
    words = WordSets(corpus)
    print(f"sets of word stems of all papers: {clock}")
    config, split = MiningSettings(), corpus.split(TRAIN)
    queries = np.sort(
        np.random.default_rng(0).choice(len(split), min(args.queries, len(split)), replace=False)
    )
    asking = unit_vectors(len(queries), seed=1)
    for what, sets in (("negatives", None), ("negatives and positives", words)):
        clock = Clock()
        mine(corpus, split, queries, asking, vectors, config.depth, sets)
        hours = clock.cpu() / len(queries) * config.queries / 3600
        print(
            f"{what} of {len(queries):,} queries: {clock}; of the {config.queries:,} of a round "
            f"{hours:.2f} hours of CPU"
        )


def search_sample(args: argparse.Namespace) -> None:
    """The nearest of all papers, by random vectors, exactly; extrapolated to the queries of test."""
    corpus = opened(args)
    index = build_index(IndexConfig(kind="exact", device="cpu"), unit_vectors(len(corpus.paper_ids)))
    asking, clock = unit_vectors(args.queries, seed=1), Clock()
    index.search(asking, min(DEPTH, len(index)), None)
    seconds, total = clock.cpu() / args.queries, len(corpus.split("test"))
    print(f"the best {min(DEPTH, len(index)):,} for {args.queries:,} queries in {clock};", end=" ")
    print(f"{seconds * 1e3:.0f} ms each, the {total:,} of test {seconds * total / 3600:.2f} hours of CPU")


def bm25_sample(args: argparse.Namespace) -> None:
    """BM25: the index of all papers, and a sample of the queries of test."""
    corpus, clock = opened(args), Clock()
    retriever = BM25()
    retriever.index(corpus)
    print(
        f"indexed {len(corpus.paper_ids):,} papers in {clock}, {retriever.index_bytes / 1e9:.2f} GB;", end=" "
    )
    queries, clock = corpus.split("test").contexts[: args.queries], Clock()
    retriever.search(queries, min(DEPTH, len(corpus.paper_ids)))
    seconds, total = clock.cpu() / len(queries), len(corpus.split("test"))
    print(
        f"{seconds * 1e3:.0f} ms a query, for the {total:,} of test {seconds * total / 3600:.2f} hours of CPU"
    )


def unit_vectors(count: int, dim: int = 200, seed: int = 0) -> NDArray[np.float32]:
    """[count, dim]"""
    vectors = np.random.default_rng(seed).standard_normal((count, dim), np.float32)
    for start in range(0, count, 1 << 16):  # in place, and some at a time: memory is what is measured
        part = vectors[start : start + (1 << 16)]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors
