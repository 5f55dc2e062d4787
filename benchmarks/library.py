"""Libraries: papers built per second, memory, and the time of a query and of adding 100 papers.

    python -m citerec.benchmarks.library --papers 1661201 --folder DIR

generates that many papers in DIR, unless they exist; without --papers, uses those of the data. Each stage
runs in a separate process. The ceiling for building is parsing the same file.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from citerec.benchmarks._common import (
    make_parser,
    memory_gb,
    run_in_processes,
    setup,
    source_folder,
    time_call,
)
from citerec.datasets.generate import generate_corpus
from citerec.datasets.records import ContextRecord
from citerec.datasets.source_files import find_files, read_contexts
from citerec.library.commands import add, build
from citerec.library.library import Library
from citerec.library.recommender import Recommender, mark_context
from citerec.library.settings import AddSettings, BuildSettings
from citerec.library.sources import read_source

ADDED = 100
"""Number of new papers to add."""


def generate_source(args: argparse.Namespace) -> None:
    if not args.data.is_dir():
        generate_corpus(args.papers, 1000, args.data, seed=0, workers=1)


def build_library(args: argparse.Namespace) -> None:
    file = find_files(args.data, None, ["train"])["papers"]
    papers = sum(1 for _ in read_source(file, lambda _: None))
    read = time_call(args, lambda: [None for _ in read_source(file, lambda _: None)])
    contexts = str(file.parent) if args.contexts else ""
    settings = BuildSettings(
        library=str(args.library), source=(str(file),), contexts=contexts, model=args.model, overwrite=True
    )
    built = time_call(args, lambda: build(settings))
    size = sum(path.stat().st_size for path in args.library.rglob("*") if path.is_file()) / 1e6
    print(
        f"{papers:,} papers built in {built:,.1f} s, {papers / built:,.0f} papers/s; reading alone "
        f"{read:,.1f} s, {read / built:.0%}; {size:,.0f} MB, peak resident memory {memory_gb():.2f} GB"
    )


def add_papers(args: argparse.Namespace) -> None:
    file = args.folder / "new.bib"
    times = []
    for turn in range(args.repeats + 1):
        entries = (
            f"@article{{new{turn}x{number}, title={{The new paper {number} of turn {turn}}}, "
            f"abstract={{{' '.join(f'word{(number * i) % 997}' for i in range(150))}}}}}\n"
            for number in range(ADDED)
        )
        file.write_text("".join(entries))
        settings = AddSettings(library=str(args.library), source=(str(file),))
        with contextlib.redirect_stdout(io.StringIO()):
            times.append(time_call(args, partial(add, settings)))
    start = time.perf_counter()
    library = Library.open(args.library)
    opened = time.perf_counter() - start
    print(
        f"{ADDED} papers added to {len(library) - ADDED:,} in {sorted(times[1:])[len(times) // 2 - 1]:.2f} s "
        f"(the first time {times[0]:.2f} s); opened in {1000 * opened:.0f} ms; "
        f"peak resident memory {memory_gb():.2f} GB"
    )


def ask_questions(args: argparse.Namespace) -> None:
    file = find_files(args.data, None, ["train"])["contexts"]
    contexts = (one for one in read_contexts(file) if isinstance(one, ContextRecord))
    start = time.perf_counter()
    recommender = Recommender.open(args.library)
    opened, library = time.perf_counter() - start, recommender.library
    times = []
    for context in islice(contexts, args.questions):
        row = library.row(context.citing_id) or 0
        citing = library.corpus.titles[row], library.corpus.abstracts[row]
        ask = partial(recommender.recommend, mark_context(context.text), *citing)
        times.append(1000 * time_call(args, ask))
    p50, p95, p99 = np.percentile(times[1:], [50, 95, 99])
    print(
        f"opened in {opened:.2f} s, first query {times[0]:.0f} ms; {len(times) - 1} further queries: "
        f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms; peak resident memory {memory_gb():.2f} GB"
    )


STAGES = {
    "source": generate_source,
    "building": build_library,
    "asking": ask_questions,
    "adding": add_papers,
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--papers", type=int, default=0, help="number of papers to generate; 0: use the data")
    parser.add_argument("--folder", type=Path, help="folder of papers and library; default: temporary")
    parser.add_argument("--model", default="bm25", help="folder of a model; empty: the built-in one")
    parser.add_argument("--questions", type=int, default=51)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--contexts", action="store_true", help="use the training contexts of the data")
    args = parser.parse_args()
    setup(args)
    with tempfile.TemporaryDirectory() as scratch:
        args.folder = args.folder or Path(scratch)
        args.folder.mkdir(parents=True, exist_ok=True)
        args.library = args.folder / "library"
        generated = args.folder / f"papers-{args.papers}"
        args.data = generated if args.papers else source_folder(args, args.folder, 20_000, 1000)
        print(f"model={args.model}{f'; {args.papers:,} generated papers' if args.papers else ''}")
        run_in_processes([STAGES[name] for name in args.stages], args)


if __name__ == "__main__":
    main()
