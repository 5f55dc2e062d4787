"""Libraries: building, memory, and the time of a query and of adding papers.

    python -m citerec.speed.library --papers 1661201 --folder DIR

generates that many papers in DIR, unless they exist; with --data, uses those of a data set. Each stage runs
in a separate process, to measure its peak memory. The ceiling for building is parsing the same file.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import resource
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

from citerec.datasets.files.source_files import file_source
from citerec.datasets.generate import generate_corpus
from citerec.library.ask.question import Request, mark_context
from citerec.library.ask.recommender import Recommender
from citerec.library.commands.change import add, build
from citerec.library.papers.library import Library
from citerec.library.settings import AddSettings, BuildSettings
from citerec.library.sources.readers import read_source
from citerec.retrieval.queries import Query
from citerec.speed._common import make_parser, setup, time_call

ADDED = 100
"""Number of new papers to add."""


def peak_memory() -> str:
    """Return the largest memory of this process so far, in words."""
    return f"peak resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB"


def build_library(args: argparse.Namespace) -> None:
    if not args.data.is_dir():
        generate_corpus(args.papers, 1000, args.data, seed=0)
    file = file_source("", args.data, None, ["train"], None).files["papers"]
    papers = sum(1 for _ in read_source(file, lambda _: None))
    read = time_call(args, lambda: [None for _ in read_source(file, lambda _: None)])
    library, source = str(args.library), (str(file),)
    settings = BuildSettings(
        library=library, source=source, model=args.model, storage=args.storage, overwrite=True
    )
    built = time_call(args, lambda: build(settings))
    size = sum(path.stat().st_size for path in args.library.rglob("*") if path.is_file()) / 1e6
    print(
        f"{papers:,} papers built in {built:,.1f} s, {papers / built:,.0f} papers/s; reading alone "
        f"{read:,.1f} s, {read / built:.0%}; {size:,.0f} MB, {peak_memory()}"
    )


def ask_questions(args: argparse.Namespace) -> None:
    """Ask the first contexts of the data, with title and abstract of the paper that they are from."""
    start = time.perf_counter()
    recommender = Recommender.open(args.library)
    opened, times, hits = time.perf_counter() - start, list[float](), list[bool]()
    library, source = recommender.library, file_source("", args.data, None, ["train"], None)
    for context in islice(source.contexts(), args.questions):
        paper = library.paper(library.row(context.citing_id) or 0)
        request = Request(Query(mark_context(context.text), paper.title, paper.abstract))
        start = time.perf_counter()
        [answer] = recommender.recommend_batch([request])
        times.append(1000 * (time.perf_counter() - start))
        hits.append(context.cited_id in [paper.id for paper in answer])
    p50, p95, p99 = np.percentile(times[1:], [50, 95, 99])
    print(
        f"opened in {opened:.2f} s, first query {times[0]:.0f} ms; {len(times) - 1} further queries: "
        f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms; R@10 {np.mean(hits):.3f}; {peak_memory()}"
    )


def add_papers(args: argparse.Namespace) -> None:
    """Add papers twice: the first time is printed, too."""
    file, times = args.folder / "new.bib", list[float]()
    for turn in range(2):
        entries = (
            f"@article{{new{turn}x{number}, title={{The new paper {number} of turn {turn}}}, "
            f"abstract={{{' '.join(f'word{(number * i) % 997}' for i in range(150))}}}}}\n"
            for number in range(ADDED)
        )
        file.write_text("".join(entries))
        settings = AddSettings(library=str(args.library), source=(str(file),))
        with contextlib.redirect_stdout(io.StringIO()):
            times.append(time_call(args, lambda settings=settings: add(settings)))  # type: ignore[misc]
    papers = len(Library.open(args.library)) - ADDED
    print(
        f"{ADDED} papers added to {papers:,} in {times[1]:.2f} s (the first time {times[0]:.2f} s); "
        f"{peak_memory()}"
    )


STAGES = {
    "building": build_library,
    "asking": ask_questions,
    "adding": add_papers,
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(data=None)
    parser.add_argument("--papers", type=int, default=20_000, help="number of papers to generate")
    parser.add_argument("--folder", type=Path, help="folder of papers and library; default: temporary")
    parser.add_argument("--storage", default="memory", help="memory or lance")
    parser.add_argument("--model", default="bm25", help="folder of a model; empty: the built-in one")
    parser.add_argument("--questions", type=int, default=51)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    args = parser.parse_args()
    setup(args)
    with tempfile.TemporaryDirectory() as scratch:
        args.folder = args.folder or Path(scratch)
        args.folder.mkdir(parents=True, exist_ok=True)
        args.library = args.folder / "library"
        args.data = args.data or args.folder / f"papers-{args.papers}"
        print(f"data: {args.data.name}, model={args.model}")
        for name in args.stages:
            process = multiprocessing.get_context("spawn").Process(target=STAGES[name], args=(args,))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"stage {name} failed with exit code {process.exitcode}")


if __name__ == "__main__":
    main()
