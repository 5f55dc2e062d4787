"""Libraries: papers built in a second, memory, the time of a question, and that to add 100 papers.

    python -m benchmarks.library --papers 1661201 --folder DIR

generates so many papers in DIR, unless they are there; without --papers, those of the data. Each stage runs
in a process of its own. The ceiling is reading the same file without doing anything with its papers.
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

from benchmarks._common import arguments, begin, in_processes, memory, seconds, source
from datasets.generate import generate_corpus
from datasets.records import ContextRecord
from datasets.source_files import find_files, read_contexts
from library.commands import add, build
from library.library import Library
from library.recommender import Recommender, mark_context
from library.settings import AddSettings, BuildSettings
from library.sources import read_source

ADDED = 100
"""Papers, all new."""


def generating(args: argparse.Namespace) -> None:
    if not args.data.is_dir():
        generate_corpus(args.papers, 1000, args.data, seed=0, workers=1)


def building(args: argparse.Namespace) -> None:
    file = find_files(args.data, None, ["train"])["papers"]
    papers = sum(1 for _ in read_source(file, lambda _: None))
    read = seconds(args, lambda: [None for _ in read_source(file, lambda _: None)])
    contexts = str(file.parent) if args.contexts else ""
    settings = BuildSettings(
        library=str(args.library), source=(str(file),), contexts=contexts, model=args.model, overwrite=True
    )
    built = seconds(args, lambda: build(settings))
    size = sum(path.stat().st_size for path in args.library.rglob("*") if path.is_file()) / 1e6
    print(
        f"{papers:,} papers built in {built:,.1f} s, {papers / built:,.0f} papers/s; reading alone "
        f"{read:,.1f} s, {read / built:.0%}; {size:,.0f} MB, peak of resident memory {memory():.2f} GB"
    )


def adding(args: argparse.Namespace) -> None:
    file = args.folder / "new.bib"
    taken = []
    for turn in range(args.repeats + 1):
        entries = (
            f"@article{{new{turn}x{number}, title={{The new paper {number} of turn {turn}}}, "
            f"abstract={{{' '.join(f'word{(number * place) % 997}' for place in range(150))}}}}}\n"
            for number in range(ADDED)
        )
        file.write_text("".join(entries))
        settings = AddSettings(library=str(args.library), source=(str(file),))
        with contextlib.redirect_stdout(io.StringIO()):
            taken.append(seconds(args, lambda settings=settings: add(settings)))  # type: ignore[misc]
    start = time.perf_counter()
    library = Library.open(args.library)
    opened = time.perf_counter() - start
    print(
        f"{ADDED} papers added to {len(library) - ADDED:,} in {sorted(taken[1:])[len(taken) // 2 - 1]:.2f} s "
        f"(the first time {taken[0]:.2f} s); opened in {1000 * opened:.0f} ms; "
        f"peak of resident memory {memory():.2f} GB"
    )


def asking(args: argparse.Namespace) -> None:
    file = find_files(args.data, None, ["train"])["contexts"]
    contexts = (one for one in read_contexts(file) if isinstance(one, ContextRecord))
    start = time.perf_counter()
    recommender = Recommender.open(args.library)
    opened, library = time.perf_counter() - start, recommender.library
    taken = []
    for context in islice(contexts, args.questions):
        row = library.row(context.citing_id) or 0
        of_citing = library.corpus.titles[row], library.corpus.abstracts[row]
        ask = partial(recommender.recommend, mark_context(context.text), *of_citing)
        taken.append(1000 * seconds(args, ask))
    p50, p95, p99 = np.percentile(taken[1:], [50, 95, 99])
    print(
        f"opened in {opened:.2f} s, first answer after {taken[0]:.0f} ms more; of {len(taken) - 1} further "
        f"questions p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms; peak of resident memory "
        f"{memory():.2f} GB"
    )


STAGES = {"source": generating, "building": building, "asking": asking, "adding": adding}


def main() -> None:
    parser = arguments(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--papers", type=int, default=0, help="generate so many in place of the data")
    parser.add_argument("--folder", type=Path, help="for the papers and the library; else a temporary one")
    parser.add_argument("--model", default="bm25", help="folder of a model; empty: the one in the box")
    parser.add_argument("--questions", type=int, default=51)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--contexts", action="store_true", help="with the training contexts of the data")
    args = parser.parse_args()
    begin(args)
    with tempfile.TemporaryDirectory() as scratch:
        args.folder = args.folder or Path(scratch)
        args.folder.mkdir(parents=True, exist_ok=True)
        args.library = args.folder / "library"
        generated = args.folder / f"papers-{args.papers}"
        args.data = generated if args.papers else source(args, args.folder, 20_000, 1000)
        print(f"model={args.model}{f'; {args.papers:,} generated papers' if args.papers else ''}")
        in_processes([STAGES[name] for name in args.stages], args)


if __name__ == "__main__":
    main()
