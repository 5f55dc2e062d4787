"""The server of a library under load: p50, p95 and p99 of answers over HTTP, to one user and to many at once.

A real server process (python recommend.py serve) gets contexts of the test split as questions. The ceiling is
what the same clients measure for GET /health, which asks nothing of the library. Without --library one is
built of the data, and 100 papers are added to it in the end.
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

from benchmarks._common import arguments, begin, corpus, source

TOKEN = "of the benchmark"


@contextmanager
def served(library: Path, options: Sequence[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL of a server process, once it listens."""
    command = [sys.executable, "recommend.py", "serve", f"library={library}", "port=0", f"token={TOKEN}"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split("/ ")[0], process
        finally:
            process.terminate()


def timed(work: Callable[[Any], int], given: Sequence[Any], users: int) -> float:
    """The median of the milliseconds that requests take, by so many users at once."""

    def one(value: Any) -> tuple[float, int]:
        start = time.perf_counter()
        status = work(value)
        return 1000 * (time.perf_counter() - start), status

    with ThreadPoolExecutor(users) as pool:
        list(pool.map(one, given[:users]))  # opens the connections
        start = time.perf_counter()
        done = list(pool.map(one, given))
        taken = time.perf_counter() - start
    median, high, top = np.percentile([spent for spent, _ in done], [50, 95, 99])
    failed = sum(status != 200 for _, status in done)
    print(
        f"    {len(done) / taken:7.1f} requests/s, {failed} failed; "
        f"p50 {median:.1f} ms, p95 {high:.1f}, p99 {top:.1f}"
    )
    return float(median)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--library", type=Path, help="folder of a library; built of the data when absent")
    parser.add_argument(
        "--model", default="", help="of the library that is built; default: the one in the box"
    )
    parser.add_argument("--reranker", default="", help="folder of a cross-encoder")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 20])
    args = parser.parse_args()
    begin(args)
    opened = corpus(args)
    texts = opened.context_texts
    rows = opened.split("test").contexts
    rows = np.random.default_rng(0).choice(rows, min(args.requests, len(rows)), replace=False)
    citing = opened.citing[rows]
    questions = [
        {"text": texts[row], "title": opened.titles[paper], "abstract": opened.abstracts[paper][:20_000]}
        for row, paper in zip(rows.tolist(), citing.tolist(), strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        library = args.library or build(args, Path(folder))
        ask_all(args, library, questions)


def build(args: argparse.Namespace, folder: Path) -> Path:
    """A library of the data, or of the demo corpus."""
    given, library = source(args, folder, 2000, 8000), folder / "library"
    options = [f"library={library}", f"source={given}", f"contexts={given}", f"model={args.model}"]
    start = time.perf_counter()
    subprocess.run([sys.executable, "recommend.py", "build", *options], check=True)
    print(f"built in {time.perf_counter() - start:.1f} s")
    return library


def ask_all(args: argparse.Namespace, library: Path, questions: list[dict[str, str]]) -> None:
    start = time.perf_counter()
    options = [f"reranker={args.reranker}"] if args.reranker else []
    with served(library, options) as (url, process):
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
        print(f"start to first answer: {time.perf_counter() - start:.1f} s")
        for users in args.users:
            medians = {}
            for name, work in (("health", health), ("recommend", ask)):
                print(f"{name:>9}, {users:2} at once:", end="")
                medians[name] = timed(work, questions, users)
            ratio = medians["recommend"] / medians["health"]
            print(f"           recommend / health at the median: {ratio:.1f}")
        if args.library is None:
            add_papers(url, 100)
        status = Path(f"/proc/{process.pid}/status")
        if status.is_file():
            peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
            print(f"peak memory of the server: {int(peak.split()[1]) / 1e6:.2f} GB")


def add_papers(url: str, count: int) -> None:
    rng = np.random.default_rng(0)

    def drawn(words: int) -> str:
        return " ".join(f"word{number}" for number in rng.integers(1000, size=words))

    new = [{"id": f"new:{row}", "title": drawn(6), "abstract": drawn(99)} for row in range(count)]
    start = time.perf_counter()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    added = requests.post(f"{url}/papers", json={"papers": new}, headers=headers, timeout=600)
    added.raise_for_status()
    print(f"{added.json()['changed']} papers added in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
