"""BM25 against bm25s called directly: queries and papers in a second; memory at any number of papers."""

from __future__ import annotations

import argparse
import copy
import logging
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from benchmarks._common import arguments, begin, corpus, median_seconds, seconds
from datasets.columns import Ragged, offsets_of
from datasets.corpus import Corpus
from datasets.records import TRAIN
from retrieval.bm25 import BM25
from retrieval.terms import query_texts

K1, B = 1.2, 0.75
DEPTHS = (100, 2000)


@dataclass
class Queries:
    """The same queries as rows of a corpus and as texts."""

    name: str
    corpus: Corpus
    contexts: NDArray[np.int64]
    fields: Sequence[str]

    def texts(self) -> list[str]:
        return list(query_texts(self.corpus, self.contexts, self.fields))


def joined(opened: Corpus, contexts: NDArray[np.int64], words: int) -> Corpus:
    """The corpus with contexts of that many words, each made of many."""
    each = -(-words * len(contexts) // int(opened.context_tokens.take(contexts).lengths.sum()))
    groups = [contexts[start : start + each] for start in range(0, len(contexts) - each + 1, each)]
    taken = [opened.context_tokens.take(group) for group in groups]
    long = copy.copy(opened)
    long.context_tokens = Ragged(
        np.concatenate([part.values for part in taken]), offsets_of(np.array([len(p.values) for p in taken]))
    )
    long.context_texts = [" ".join(opened.context_texts[row] for row in group) for group in groups]  # type: ignore[assignment]
    return long


def tokens(texts: list[str]) -> Any:
    return bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)


def compare(args: argparse.Namespace, opened: Corpus, folder: Path) -> None:
    rows = np.random.default_rng(0).permutation(opened.split("test").contexts)[: args.queries]
    long = joined(opened, np.sort(opened.split(TRAIN).contexts)[:8000], 5000)
    asked = [
        Queries("context, title", opened, rows, ("context", "title")),
        Queries("context, title, abstract", opened, rows, ("context", "title", "abstract")),
        Queries("5,000 words", long, np.arange(len(long.context_tokens))[:50], ("context",)),
    ]
    texts = [
        f"{title} {abstract}"
        for title, abstract, candidate in zip(
            opened.titles, opened.abstracts, opened.is_candidate.tolist(), strict=True
        )
        if candidate
    ]
    for backend in ("numpy", "numba"):
        ours = BM25(k1=K1, b=B, backend=backend, threads=args.threads)
        peer = bm25s.BM25(k1=K1, b=B, backend=backend)
        own = seconds(args, lambda ours=ours: ours.index(opened))  # type: ignore[misc]
        direct = seconds(args, lambda peer=peer: peer.index(tokens(texts), show_progress=False))  # type: ignore[misc]
        print(
            f"{backend}: indexed {len(texts) / own:,.0f} papers/s (words as prepared), "
            f"bm25s {len(texts) / direct:,.0f} from texts; {direct / own:.1f} times"
        )
        ours.save(folder / backend)
        for queries in asked:
            ours = BM25(k1=K1, b=B, backend=backend, threads=args.threads, query=queries.fields)
            ours.load(folder / backend, queries.corpus)
            search(args, f"{backend}, {queries.name}", ours, peer, queries)


def search(args: argparse.Namespace, name: str, ours: BM25, peer: bm25s.BM25, queries: Queries) -> None:
    texts = queries.texts()
    threads = args.threads if args.threads > 1 else 0
    for k in DEPTHS:
        ask = {
            "ours": lambda k=k: ours.search(queries.contexts, k),
            "peer": lambda k=k: peer.retrieve(tokens(texts), k=k, show_progress=False, n_threads=threads),
        }
        taken = median_seconds(args, ask, args.repeats)  # type: ignore[arg-type]
        print(
            f"  {name}, {k} papers each: {len(texts) / taken['ours']:,.0f} queries/s, "
            f"bm25s {len(texts) / taken['peer']:,.0f}; {taken['peer'] / taken['ours']:.2f} times "
            f"({agreement(ours, peer, queries):.0%} of the first ten papers are the same)"
        )


def agreement(ours: BM25, peer: bm25s.BM25, queries: Queries) -> float:
    """Share of our first ten papers that bm25s has among its first ten; it parts a few words otherwise."""
    own = ours.search(queries.contexts, 10).papers
    theirs = peer.retrieve(tokens(queries.texts()), k=11, show_progress=False).documents
    citing = queries.corpus.citing[queries.contexts]
    rows = np.flatnonzero(queries.corpus.is_candidate)
    shared = [
        len(np.intersect1d(a, b[b != paper][:10]))
        for a, b, paper in zip(own, rows[theirs], citing, strict=True)
    ]
    return sum(shared) / own.size


def enlarge(opened: Corpus, papers: int, folder: Path) -> None:
    """Write words of that many papers: those of real ones, mixed; rare words are others in each copy.

    Mixing makes papers of more different words than real ones have, so that the index is no smaller.
    """
    rng = np.random.default_rng(0)
    rows = np.flatnonzero(opened.is_candidate)
    rare = np.flatnonzero(np.asarray(opened.word_counts) < 5)
    number = np.full(len(opened.words), -1, np.int64)
    number[rare] = np.arange(len(rare))
    copies = -(-papers // len(rows))
    for name in ("title_tokens", "abstract_tokens"):
        source: Ragged = getattr(opened, name).take(rows)
        lengths = np.tile(source.lengths, copies)[:papers]
        offsets = offsets_of(lengths)
        values = np.lib.format.open_memmap(
            folder / f"{name}.values.npy", mode="w+", dtype=np.int32, shape=(int(offsets[-1]),)
        )
        for i in range(copies):
            part = rng.permutation(source.values)
            part = np.where(
                (number[part] >= 0) & (i > 0), len(number) + (i - 1) * len(rare) + number[part], part
            )
            there = values[i * len(part) : (i + 1) * len(part)]
            there[:] = part[: len(there)]
        values.flush()
        np.save(folder / f"{name}.offsets.npy", offsets)
    words = [*opened.words, *(f"{opened.words[j]}q{i}" for i in range(copies - 1) for j in rare.tolist())]
    (folder / "words.txt").write_text("\n".join(words), encoding="utf-8")


def enlarged(opened: Corpus, folder: Path) -> Corpus:
    """The corpus with the papers that `enlarge` wrote, mapped as those of a store are."""
    large = copy.copy(opened)
    for name in ("title_tokens", "abstract_tokens"):
        values, offsets = (
            np.load(folder / f"{name}.{part}.npy", mmap_mode="r") for part in ("values", "offsets")
        )
        setattr(large, name, Ragged(np.asarray(values), np.asarray(offsets)))
    large.is_candidate = np.ones(len(large.title_tokens), np.bool_)
    large.__dict__["words"] = (folder / "words.txt").read_text("utf-8").split("\n")
    return large


def at_scale(args: argparse.Namespace, opened: Corpus, folder: Path) -> None:
    enlarge(opened, args.papers, folder)
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        taken, words, peak, size = pool.apply(index_large, (opened, folder))
        print(
            f"{args.papers:,} generated papers of {words:,} words: indexed and saved in {taken:.0f} s "
            f"({args.papers / taken:,.0f} papers/s), index of {size / 1e9:.1f} GB, "
            f"at most {peak / 1e9:.1f} GB of memory"
        )
        taken, each, peak = pool.apply(search_large, (opened, folder))
        print(
            f"  opened in {taken:.2f} s, searched in {each * 1000:.0f} ms a query (100 papers each), "
            f"at most {peak / 1e9:.1f} GB of memory"
        )


def index_large(opened: Corpus, folder: Path) -> tuple[float, int, int, int]:
    """Seconds, words, peak memory and size of the index in bytes."""
    large, retriever = enlarged(opened, folder), BM25(k1=K1, b=B)
    started = time.perf_counter()
    retriever.index(large)
    retriever.save(folder / "index")
    taken = time.perf_counter() - started
    return taken, len(large.words), peak_memory(), retriever.index_bytes


def search_large(opened: Corpus, folder: Path) -> tuple[float, float, int]:
    """Seconds until it is open, seconds of a query, peak memory in bytes."""
    large, retriever = enlarged(opened, folder), BM25(k1=K1, b=B)
    started = time.perf_counter()
    retriever.load(folder / "index", large)
    opened_in = time.perf_counter() - started
    contexts = opened.split("test").contexts[:50]
    retriever.search(contexts, 100)  # reads what is mapped
    started = time.perf_counter()
    retriever.search(contexts, 100)
    return opened_in, (time.perf_counter() - started) / len(contexts), peak_memory()


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--papers", type=int, default=200_000, help="generated ones to index; 0: none")
    args = parser.parse_args()
    begin(args)
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    opened = corpus(args)
    with tempfile.TemporaryDirectory() as folder:
        if args.papers:
            at_scale(args, opened, Path(folder))
        compare(args, opened, Path(folder))


if __name__ == "__main__":
    main()
