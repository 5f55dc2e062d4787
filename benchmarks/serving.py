"""The library server under load: p50, p95 and p99 latency over HTTP, for one user and for concurrent users.

A real server process (citerec serve) gets contexts of the test split as queries. The baseline is
the latency of GET /health, which does not use the library. Without --library, a library is built from the
data, and 100 papers are added at the end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
import requests

from citerec.benchmarks._common import load_corpus, make_parser, setup, source_folder

TOKEN = "of the benchmark"


@contextmanager
def run_server(library: Path, options: Sequence[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server; yield its URL and process once it listens."""
    command = [sys.executable, "recommend.py", "serve", f"library={library}", "port=0", f"token={TOKEN}"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split("/ ")[0], process
        finally:
            process.terminate()


def time_requests(send: Callable[[Any], int], values: Sequence[Any], users: int) -> float:
    """Send requests from concurrent users; return the median latency in milliseconds."""

    def timed(value: Any) -> tuple[float, int]:
        start = time.perf_counter()
        status = send(value)
        return 1000 * (time.perf_counter() - start), status

    with ThreadPoolExecutor(users) as pool:
        list(pool.map(timed, values[:users]))  # opens the connections
        start = time.perf_counter()
        results = list(pool.map(timed, values))
        elapsed = time.perf_counter() - start
    p50, p95, p99 = np.percentile([latency for latency, _ in results], [50, 95, 99])
    failed = sum(status != 200 for _, status in results)
    print(
        f"    {len(results) / elapsed:7.1f} requests/s, {failed} failed; "
        f"p50 {p50:.1f} ms, p95 {p95:.1f}, p99 {p99:.1f}"
    )
    return float(p50)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--library", type=Path, help="folder of a library; default: built from the data")
    parser.add_argument(
        "--model", default="", help="model of the library to build; default: the built-in one"
    )
    parser.add_argument("--reranker", default="", help="folder of a cross-encoder")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 20])
    args = parser.parse_args()
    setup(args)
    corpus = load_corpus(args)
    texts = corpus.context_texts
    rows = corpus.split("test").contexts
    rows = np.random.default_rng(0).choice(rows, min(args.requests, len(rows)), replace=False)
    citing = corpus.citing[rows]
    questions = [
        {"text": texts[row], "title": corpus.titles[paper], "abstract": corpus.abstracts[paper][:20_000]}
        for row, paper in zip(rows.tolist(), citing.tolist(), strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        library = args.library or build_library(args, Path(folder))
        measure(args, library, questions)


def build_library(args: argparse.Namespace, folder: Path) -> Path:
    """Build a library from the data or the demo corpus."""
    source, library = source_folder(args, folder, 2000, 8000), folder / "library"
    options = [f"library={library}", f"source={source}", f"contexts={source}", f"model={args.model}"]
    start = time.perf_counter()
    subprocess.run([sys.executable, "recommend.py", "build", *options], check=True)
    print(f"built in {time.perf_counter() - start:.1f} s")
    return library


def measure(args: argparse.Namespace, library: Path, questions: list[dict[str, str]]) -> None:
    start = time.perf_counter()
    options = [f"reranker={args.reranker}"] if args.reranker else []
    with run_server(library, options) as (url, process):
        sessions = local()

        def session() -> requests.Session:
            if not hasattr(sessions, "own"):
                sessions.own = requests.Session()
            return sessions.own

        def ask(question: dict[str, str]) -> int:
            return session().post(f"{url}/recommend", json=question, timeout=120).status_code

        def health(_: Any) -> int:
            return session().get(f"{url}/health", timeout=120).status_code

        ask(questions[0])
        print(f"time to first answer: {time.perf_counter() - start:.1f} s")
        for users in args.users:
            medians = {}
            for name, send in (("health", health), ("recommend", ask)):
                print(f"{name:>9}, {users:2} users:", end="")
                medians[name] = time_requests(send, questions, users)
            ratio = medians["recommend"] / medians["health"]
            print(f"           recommend / health, median: {ratio:.1f}")
        if args.library is None:
            add_papers(url, 100)
        status = Path(f"/proc/{process.pid}/status")
        if status.is_file():
            peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
            print(f"peak memory of the server: {int(peak.split()[1]) / 1e6:.2f} GB")


def add_papers(url: str, count: int) -> None:
    rng = np.random.default_rng(0)

    def random_text(words: int) -> str:
        return " ".join(f"word{number}" for number in rng.integers(1000, size=words))

    new = [{"id": f"new:{i}", "title": random_text(6), "abstract": random_text(99)} for i in range(count)]
    start = time.perf_counter()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    added = requests.post(f"{url}/papers", json={"papers": new}, headers=headers, timeout=600)
    added.raise_for_status()
    print(f"{added.json()['changed']} papers added in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
