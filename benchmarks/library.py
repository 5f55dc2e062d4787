"""Libraries: papers built in a second, memory, and the time to add 100 papers in a running process.

    python -m benchmarks.library --papers 1661201 --folder DIR

generates so many papers in DIR, unless they are there; without --papers, those of the data. Each stage runs
in a process of its own. The ceiling is reading the same file without doing anything with its papers.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import tempfile
import time
from pathlib import Path

from benchmarks._common import REAL, arguments, begin, memory, seconds
from datasets.demo import write_demo
from datasets.generate import generate_corpus
from datasets.source_files import find_files
from library.commands import add, build
from library.library import Library
from library.settings import AddSettings, BuildSettings
from library.sources import read_source

ADDED = 100
"""Papers, all new."""


def source(args: argparse.Namespace) -> Path:
    """The papers, in our own format."""
    folder: Path = args.folder / f"papers-{args.papers}" if args.papers else args.data
    if not folder.is_dir():
        if args.papers:
            generate_corpus(args.papers, 1000, folder, seed=0, compressed=False, workers=1)
        else:
            write_demo(folder := args.folder / "demo", papers=20_000, contexts=1000, seed=0)
    return find_files(folder, None, ["train"])["papers"]


def building(args: argparse.Namespace) -> None:
    file = source(args)
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


def main() -> None:
    parser = arguments(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--papers", type=int, default=0, help="generate so many in place of the data")
    parser.add_argument("--folder", type=Path, help="for the papers and the library; else a temporary one")
    parser.add_argument("--model", default="bm25", help="folder of a model; empty: the one in the box")
    parser.add_argument("--contexts", action="store_true", help="with the training contexts of the data")
    args = parser.parse_args()
    begin(args)
    print(f"data: {f'{args.papers:,} generated papers' if args.papers else REAL.name}, model={args.model}")
    with tempfile.TemporaryDirectory() as scratch:
        args.folder = args.folder or Path(scratch)
        args.folder.mkdir(parents=True, exist_ok=True)
        args.library = args.folder / "library"
        for stage in (source, building, adding):
            process = multiprocessing.get_context("spawn").Process(target=stage, args=(args,))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"{stage.__name__}: ended with {process.exitcode}")


if __name__ == "__main__":
    main()
