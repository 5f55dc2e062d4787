"""What the benchmarks share: the data, the machine's description, clocks."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from datasets.corpus import Corpus
from datasets.demo import open_demo
from datasets.prepare import open_corpus
from hatten.documents import Vocabulary

REAL = Path("../shared/data/neurips2025-lcr")


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=REAL, help="source folder; the demo corpus when absent")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: with --threads 1 on a busy machine"
    )
    return parser


def begin(args: argparse.Namespace) -> None:
    """Set the threads and say what machine this is."""
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(args.threads)
    flags = ", ".join(name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in cpu_flags())
    load = os.getloadavg()[0]
    print(
        f"machine: {os.cpu_count()} cores ({platform.machine()}, {flags or 'no known flags'}), "
        f"{args.threads} threads used, load {load:.1f}, {args.clock} clock, torch {torch.__version__}"
    )


def cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return {flag for line in lines if line.startswith("flags") for flag in line.split(":")[1].split()}


def corpus(args: argparse.Namespace) -> Corpus:
    cache = os.environ.get("CITATION_CACHE", ".cache")
    opened = open_corpus(args.data, cache_dir=cache) if args.data.is_dir() else open_demo(cache_dir=cache)
    print(f"data: {opened.name}, {len(opened.paper_ids):,} papers, {len(opened.context_ids):,} contexts")
    return opened


def random_vectors(opened: Corpus, dim: int = 200) -> tuple[Vocabulary, NDArray[np.float32]]:
    """Words with a letter or digit that occur three times, and random vectors for them."""
    counts = np.asarray(opened.word_counts)
    words = [
        word for word, n in zip(opened.words, counts, strict=True) if n >= 3 and any(map(str.isalnum, word))
    ]
    vocabulary = Vocabulary(words)
    table = np.random.default_rng(0).standard_normal((len(vocabulary), dim)).astype(np.float32)
    return vocabulary, table


def word_sums(opened: Corpus) -> Callable[[NDArray[np.integer], str], NDArray[np.float32]]:
    """A function of rows and the name of a column of tokens: sums of random vectors of words, of unit length.

    They are as unevenly close to each other as real vectors are.
    """
    vocabulary, table = random_vectors(opened)
    words, ids = torch.from_numpy(table), vocabulary.lookup(opened.words)

    def vectors(rows: NDArray[np.integer], column: str) -> NDArray[np.float32]:
        taken = getattr(opened, column).take(rows)
        known = ids[taken.values]
        weight = torch.from_numpy((known >= 0).astype(np.float32))
        tokens, starts = torch.from_numpy(np.maximum(known, 0)).long(), torch.from_numpy(taken.offsets[:-1])
        summed = F.embedding_bag(tokens, words, starts, mode="sum", per_sample_weights=weight)
        return np.asarray(F.normalize(summed, dim=1).numpy())

    return vectors


def seconds(args: argparse.Namespace, work: Callable[[], object]) -> float:
    """Of one call."""
    clock = time.perf_counter if args.clock == "wall" else time.process_time
    start = clock()
    work()
    return clock() - start


def median_seconds(
    args: argparse.Namespace, works: dict[str, Callable[[], object]], repeats: int
) -> dict[str, float]:
    """Median of `repeats` calls of each after one that warms up; in turns, so that all see the same load."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            taken = seconds(args, work)
            if turn:
                times[name].append(taken)
    return {name: statistics.median(values) for name, values in times.items()}
