"""Libraries: building, memory, and the time of a query, of adding papers, over HTTP and with full texts.

    python -m citerec.speed.library --papers 1661201 --folder DIR

generates that many papers in DIR, unless they exist; without --papers, uses those of the data. Each stage
runs in a separate process. The ceiling for building is parsing the same file. Over HTTP, a server process
(`citerec serve`) gets the contexts as passages from one user and from 20 at once; the baseline is the latency
of GET /health, which does not use the library.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
import requests

from citerec.datasets.files.source_files import find_files, read_contexts
from citerec.datasets.generate import generate_corpus
from citerec.datasets.records import ContextRecord
from citerec.datasets.tokenize import default_tokenize
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.hatten.retriever import WordsRetriever
from citerec.hatten.static.model import StaticModel
from citerec.library.ask.question import Request, mark_context
from citerec.library.ask.recommendation import Recommendation
from citerec.library.ask.recommender import Recommender
from citerec.library.commands.change import add, build
from citerec.library.evidence.index import WordsEncoder, update_index
from citerec.library.evidence.reading import read_files
from citerec.library.evidence.refresh import refresh_texts
from citerec.library.evidence.store import TextStore
from citerec.library.papers.library import Library
from citerec.library.papers.models import BUILT_IN
from citerec.library.settings import AddSettings, BuildSettings
from citerec.library.sources.readers import read_source
from citerec.retrieval.queries import Query
from citerec.speed._common import (
    make_parser,
    memory_gb,
    run_in_processes,
    setup,
    source_folder,
    time_call,
)

ADDED = 100
"""Number of new papers to add."""
GOAL, CANDIDATES = 10_000, 600
"""Papers with full texts that figures are extrapolated to, and of a question's candidates."""


def generate_source(args: argparse.Namespace) -> None:
    if not args.data.is_dir():
        generate_corpus(args.papers, 1000, args.data, seed=0)


def build_library(args: argparse.Namespace) -> None:
    file = find_files(args.data, None, ["train"])["papers"]
    papers = sum(1 for _ in read_source(file, lambda _: None))
    read = time_call(args, lambda: [None for _ in read_source(file, lambda _: None)])
    settings = BuildSettings(
        library=str(args.library),
        source=(str(file),),
        model=args.model,
        storage=args.storage,
        overwrite=True,
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
    added = sorted(times[1:])[len(times) // 2 - 1]
    print(
        f"{ADDED} papers added to {len(library) - ADDED:,} in {added:.2f} s "
        f"(the first time {times[0]:.2f} s); opened in {1000 * opened:.0f} ms; "
        f"peak resident memory {memory_gb():.2f} GB"
    )


def read_questions(args: argparse.Namespace, library: Library, count: int) -> Iterator[tuple[str, ...]]:
    """Yield context, title, abstract and the id of the cited paper of the first contexts of the data."""
    file = find_files(args.data, None, ["train"])["contexts"]
    contexts = (record for record in read_contexts(file) if isinstance(record, ContextRecord))
    for context in islice(contexts, count):
        paper = library.paper(library.row(context.citing_id) or 0)
        yield context.text, paper.title, paper.abstract, context.cited_id or ""


def _answer(recommender: Recommender, request: Request, answers: list[list[Recommendation]]) -> None:
    answers += recommender.recommend_batch([request])


def ask_questions(args: argparse.Namespace) -> None:
    start = time.perf_counter()
    recommender = Recommender.open(args.library)
    opened, times, hits = time.perf_counter() - start, list[float](), list[bool]()
    for text, title, abstract, cited in read_questions(args, recommender.library, args.questions):
        answers: list[list[Recommendation]] = []
        request = Request(Query(mark_context(text), title, abstract))
        times.append(1000 * time_call(args, partial(_answer, recommender, request, answers)))
        hits.append(cited in [paper.id for paper in answers[0]])
    p50, p95, p99 = np.percentile(times[1:], [50, 95, 99])
    print(
        f"opened in {opened:.2f} s, first query {times[0]:.0f} ms; {len(times) - 1} further queries: "
        f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms; R@10 {np.mean(hits):.3f}; "
        f"peak resident memory {memory_gb():.2f} GB"
    )


def serve_questions(args: argparse.Namespace) -> None:
    library = Library.open(args.library)
    questions = [
        {"text": text, "title": title, "abstract": abstract[:20_000]}
        for text, title, abstract, _ in read_questions(args, library, args.requests)
    ]
    options = [f"reranker={args.reranker}"] if args.reranker else []
    command = [sys.executable, "-m", "citerec", "serve", f"library={args.library}", "port=0", *options]
    start, sessions = time.perf_counter(), local()

    def session() -> requests.Session:
        if not hasattr(sessions, "own"):
            sessions.own = requests.Session()
        own: requests.Session = sessions.own
        return own

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split("/ ")[0]  # printed once it listens
            ask = lambda question: session().post(f"{url}/recommend", json=question, timeout=120)  # noqa: E731
            health = lambda _: session().get(f"{url}/health", timeout=120)  # noqa: E731
            ask(questions[0])
            print(f"from start to first answer over HTTP: {time.perf_counter() - start:.1f} s")
            for users in args.users:
                baseline = time_requests(f"GET /health, users: {users}", health, questions, users)
                median = time_requests(f"POST /recommend, users: {users}", ask, questions, users)
                print(f"  recommend / health, median: {median / baseline:.1f}")
        finally:
            process.terminate()


def time_requests(name: str, send: Callable[[Any], Any], values: Sequence[Any], users: int) -> float:
    """Send requests from concurrent users; print and return the median latency in milliseconds."""

    def timed(value: Any) -> tuple[float, bool]:
        start = time.perf_counter()
        answered = send(value).ok
        return 1000 * (time.perf_counter() - start), answered

    with ThreadPoolExecutor(users) as pool:
        list(pool.map(timed, values[:users]))  # opens the connections
        results = list(pool.map(timed, values))
    p50, p95, p99 = np.percentile([latency for latency, _ in results], [50, 95, 99])
    failed = sum(not answered for _, answered in results)
    print(f"{name}: p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms, {failed} of {len(results)} failed")
    return float(p50)


def read_fulltexts(args: argparse.Namespace) -> None:
    """Read made PDFs of two columns, index their passages, and search those of an index of GOAL papers."""
    from citerec.tests.made_pdfs import made_paper

    model = StaticModel.open(BUILT_IN / "static").retriever()
    assert isinstance(model, WordsRetriever)
    encoder = WordsEncoder(model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [folder / f"{number}.pdf" for number in range(args.pdfs)]
        for number, file in enumerate(files):
            file.write_bytes(made_paper(number, by_rows=number % 10 == 0).pdf())
        times = GOAL / args.pdfs
        store = TextStore(folder / "texts", create=True)
        start, pages = time.perf_counter(), 0
        for file, text in read_files(files, args.workers):
            store.put([(str(file), 1, 1, text)])
            pages += text.pages
        seconds = time.perf_counter() - start
        print(
            f"read: {pages / seconds:.0f} pages/s with {args.workers} processes, {seconds * times / 60:.1f} "
            f"minutes for {GOAL:,} PDFs of {pages / args.pdfs:.0f} pages"
        )
        child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        papers = {f"p{number:06}": str(files[number % args.pdfs]) for number in range(GOAL)}
        store.set_papers(papers, {})
        start = time.perf_counter()
        index = update_index(folder / "texts", store, encoder)
        assert index is not None
        seconds = time.perf_counter() - start
        texts = store.path.stat().st_size * times
        inside = sum(file.stat().st_size for file in (folder / "texts").rglob("*") if file.is_file())
        size = inside - store.path.stat().st_size + texts
        print(f"index: {len(index):,} passages in {seconds:.0f} s")
        print(f"disk: {size / 1e6:.0f} MB, of which texts {texts / 1e6:.0f}")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"memory: {memory:.2f} GB, and {child:.2f} in each process that reads")
        draw = np.random.default_rng(0)
        spent = []
        for number in draw.integers(args.pdfs, size=200).tolist():
            words = default_tokenize(made_paper(number).sections[1][1][0])[:60]
            vector = encoder.encode_queries([" ".join(words)])[0]
            some = np.sort(draw.choice(GOAL, CANDIDATES, replace=False))
            weights = np.linspace(1, 0.2, len(words)).astype(np.float32)
            start = time.perf_counter()
            index.best(index.word_scores(words, weights))
            index.best(index.word_scores(words, np.ones_like(weights)), some)
            index.cosines(vector, index.passages_of(some)[0])
            spent.append(time.perf_counter() - start)
        print(f"question: {np.median(spent) * 1e3:.1f} ms more (median), {max(spent) * 1e3:.1f} at most")
        store.close()
        library = folder / "library"
        library.mkdir()
        entries = [LibraryPaper(f"key:{i}", files=(str(file),)) for i, file in enumerate(files)]
        refresh_texts(library, lambda: entries[:-1], encoder)
        start = time.perf_counter()
        refresh_texts(library, lambda: entries, encoder)
        print(f"one PDF more: {time.perf_counter() - start:.2f} s")


STAGES = {
    "source": generate_source,
    "building": build_library,
    "asking": ask_questions,
    "serving": serve_questions,
    "adding": add_papers,
    "fulltexts": read_fulltexts,
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--papers", type=int, default=0, help="number of papers to generate; 0: use the data")
    parser.add_argument("--folder", type=Path, help="folder of papers and library; default: temporary")
    parser.add_argument("--storage", default="memory", help="memory or lance")
    parser.add_argument("--model", default="bm25", help="folder of a model; empty: the built-in one")
    parser.add_argument("--questions", type=int, default=51)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--requests", type=int, default=400, help="requests over HTTP")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 20], help="users at once, over HTTP")
    parser.add_argument("--reranker", default="", help="folder of a cross-encoder for the server")
    parser.add_argument("--pdfs", type=int, default=1000, help="made PDFs, extrapolated to 10,000")
    parser.add_argument("--workers", type=int, default=2, help="processes that read PDFs")
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
