"""A corpus of the size of arXiv, or a share of it: memory and time from the source files to a search.

    python -m benchmarks.arxiv_size --share 1 --folder DIR

generates the corpus of 1.66 million papers and 3.2 million contexts in DIR, unless it is there, and does one
stage after the other, each in a process of its own, whose peak of resident memory is what is reported. What
would take hours is timed on a sample and extrapolated to all papers and contexts. docs/scale.md has results.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
import torch

from benchmarks import _arxiv_stages as stages
from benchmarks._common import begin
from datasets.columns import CHUNK
from datasets.generate import generate_corpus
from datasets.prepare import open_corpus
from datasets.records import SPLITS
from datasets.source_files import find_files
from datasets.tokenize import WordTable, default_tokenize

PAPERS, CONTEXTS = 1_661_201, 3_205_210
"""Of arXiv, in Gu et al. 2022, table 1."""
PIECE = 1 << 25
"""Bytes that are parsed at a time when the parser is timed alone,"""
EVERY = 8
"""for one of so many pieces of a file."""
LOOKS = 20_000
"""Papers that are looked at in a random order."""


def generate(args: argparse.Namespace) -> None:
    """The source files, by one process."""
    if args.source.is_dir():
        print(f"found in {args.source}")
        return
    made, papers, contexts = stages.Clock(), round(args.share * PAPERS), round(args.share * CONTEXTS)
    report = generate_corpus(papers, contexts, args.source, workers=1)
    print(f"{report.summary()}: {made}, {sum(report.bytes.values()) / made.cpu() / 1e6:.0f} MB/s of CPU time")


def prepare(args: argparse.Namespace) -> None:
    """The prepared store, against reading, orjson and the tokeniser, each alone."""
    size = sum(path.stat().st_size for path in source_files(args)) / 1e6
    shutil.rmtree(args.cache, ignore_errors=True)
    prepared = stages.Clock()
    opened = open_corpus(args.source, cache_dir=args.cache, field="field")
    seconds = prepared.cpu()
    store = sum(path.stat().st_size for path in opened.path.iterdir()) / 1e6
    words = sum(len(c.values) for c in (opened.title_tokens, opened.abstract_tokens, opened.context_tokens))
    print(f"{size:,.0f} MB of JSON, {words:,} words of {len(opened.word_counts):,} types, to {store:,.0f} MB")
    print(f"prepared in {prepared}: {size / seconds:.1f} MB/s of CPU time")
    print(f"peak of resident memory so far {stages.peak_gb():.2f} GB, of 4 allowed")
    alone = parts_alone(args)
    for name, taken in alone.items():
        ratio = f"preparing takes {seconds / taken:.1f} times as long"
        print(f"  {name} alone {taken:.1f} s, {size / taken:,.0f} MB/s: {ratio}")
    together = sum(alone.values())
    print(f"  all three {together:.1f} s, {together / seconds:.0%} of the time of preparing")


def parts_alone(args: argparse.Namespace) -> dict[str, float]:
    """CPU seconds of each part that preparing cannot do without, from a sample for the whole corpus."""
    taken = dict.fromkeys(("reading", "orjson", "the tokeniser"), 0.0)
    seen = 0

    def timed(name: str, work: Callable[..., Any], *given: Any) -> Any:
        start = time.process_time()
        done = work(*given)
        taken[name] += time.process_time() - start
        return done

    table = WordTable(default_tokenize)
    table.ids(["warm"])
    for path in source_files(args):
        with path.open("rb") as file:
            for piece in pieces(file, partial(timed, "reading", file.read)):
                seen += len(piece)
                records = timed("orjson", orjson.loads, piece)
                for texts in in_chunks(records):
                    timed("the tokeniser", table.ids, texts)
                file.seek((EVERY - 1) * PIECE, os.SEEK_CUR)
                file.readline()
    size = sum(path.stat().st_size for path in source_files(args))
    return {name: seconds * size / seen for name, seconds in taken.items()}


def pieces(file: IO[bytes], read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Generated JSON, of a record a line, as JSON of some records at a time."""
    opening = b""
    while piece := read(PIECE):
        piece += file.readline()
        opening = opening or piece[:1]
        inside = piece.removeprefix(opening + b"\n").removesuffix(b"\n}\n").removesuffix(b"\n]\n")
        yield opening + inside.rstrip(b",\n") + (b"}" if opening == b"{" else b"]")


def in_chunks(records: dict[str, dict[str, str]] | list[object]) -> Iterator[list[str]]:
    """The texts of papers and contexts, as many at a time as preparing looks up together."""
    texts, characters = [], 0
    for record in records.values() if isinstance(records, dict) else ():
        for text in [record[key] for key in ("title", "abstract", "masked_text") if key in record]:
            texts.append(text)
            characters += len(text)
        if characters >= CHUNK:
            yield texts
            texts, characters = [], 0
    yield texts


def look(args: argparse.Namespace) -> None:
    """Opening, and papers in a random order."""
    opening = stages.Clock()
    opened = open_corpus(args.source, cache_dir=args.cache, field="field")
    counts = f"{len(opened.paper_ids):,} papers, {len(opened.context_ids):,} contexts"
    print(f"opened {counts} in {opening}, of 2 s allowed")
    rows = np.random.default_rng(0).integers(len(opened.paper_ids), size=LOOKS).tolist()
    looks: dict[str, Callable[[int], object]] = {
        "its id, title and abstract": lambda row: (
            opened.paper_ids[row], opened.titles[row], opened.abstracts[row]
        ),
        "its words as numbers": lambda row: (opened.title_tokens[row], opened.abstract_tokens[row]),
    }  # fmt: skip
    for what, look_at in looks.items():
        taken = []
        for row in rows:
            start = time.perf_counter()
            look_at(row)
            taken.append(time.perf_counter() - start)
        middle, most = np.percentile(taken, (50, 99)) * 1e6
        print(f"  a paper at random, {what}: median {middle:.1f} µs, 99 of 100 within {most:.0f} µs")


def source_files(args: argparse.Namespace) -> list[Path]:
    return list(find_files(args.source, None, SPLITS).values())


STAGES: dict[str, Callable[[argparse.Namespace], None]] = {
    "generate": generate,
    "prepare": prepare,
    "open": look,
    "load": stages.load,
    "encode": stages.encode_sample,
    "mine": stages.mine_sample,
    "search": stages.search_sample,
    "bm25": stages.bm25_sample,
}


def do(name: str, args: argparse.Namespace) -> None:
    stages.set_up(args)
    STAGES[name](args)
    print(f"  {name}: peak of resident memory {stages.peak_gb():.2f} GB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.set_defaults(clock="cpu")
    parser.add_argument("--share", type=float, default=0.02, help="of the size of arXiv")
    parser.add_argument("--folder", type=Path, default=Path("outputs/arxiv-size"))
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--papers", type=int, default=1024, help="papers that are encoded")
    parser.add_argument(
        "--queries", type=int, default=256, help="contexts that are encoded, mined and searched for"
    )
    args = parser.parse_args()
    begin(args)
    args.source, args.cache = args.folder / f"source-{args.share:g}", args.folder / f"cache-{args.share:g}"
    context = multiprocessing.get_context("spawn")
    for name in args.stages:
        print(f"== {name}: {(STAGES[name].__doc__ or '').splitlines()[0]}", flush=True)
        process = context.Process(target=do, args=(name, args))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"{name}: ended with {process.exitcode}")


if __name__ == "__main__":
    main()
