"""The language server: time from request to answer while a client types citations, over stdin and stdout.

    python -m citerec.benchmarks.language_server --folder DIR

builds a library of the data's papers in DIR, unless there is one. The client writes passages of the data into
documents, opens a citation in each, and types letters of an author's name: it asks for completions after each
letter, as quick typists do not wait for every answer. The ceiling is a Recommender in this process that answers
the same passages, without letters.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from citerec.benchmarks._common import make_parser, setup, source_folder
from citerec.benchmarks.library import read_questions
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.datasets.source_files import find_files
from citerec.library.commands import build
from citerec.library.library import MANIFEST
from citerec.library.recommender import Recommender
from citerec.library.settings import BuildSettings

LETTERS = 5
"""Letters typed of each key."""
K = 20


def percentiles(name: str, times: list[float]) -> float:
    """Print the percentiles of seconds; return the median."""
    p50, p95, p99 = np.percentile(np.array(times) * 1000, [50, 95, 99])
    print(f"{name}: p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms, {len(times)} requests")
    return float(p50)


def read_passages(args: argparse.Namespace) -> list[tuple[str, str, str, str]]:
    """Return text before and after a citation, the draft's title, and letters to type, per citation."""
    recommender = Recommender.open(args.library)
    draw, passages, times = random.Random(0), [], []
    for text, title, abstract in read_questions(args, recommender.library, args.questions):
        start = time.perf_counter()
        found = recommender.recommend(text, title, abstract, K)
        times.append(time.perf_counter() - start)
        before, after = text.replace(OTHER_MARKER, "\\cite{other}").split(TARGET_MARKER)
        wanted = draw.choice(found[:5])
        typed = (wanted.authors[0].split()[-1] if wanted.authors else wanted.title)[:LETTERS].lower()
        passages.append((before, after, title, typed))
    args.ceiling = percentiles("Recommender.recommend in this process", times[1:])
    return passages


async def type_citations(args: argparse.Namespace, passages: list[tuple[str, str, str, str]]) -> None:
    client = LanguageClient("benchmark", "1")
    client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda _: None)
    started = time.perf_counter()
    await client.start_io(sys.executable, "-m", "citerec", "lsp", f"library={args.library}", f"k={K}")
    await client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
    client.initialized(types.InitializedParams())
    filler = "Papers of this kind have been written for years, and more of them follow. " * 12 + "\n\n"
    head = "\\documentclass{article}\n\\title{%s}\n\\begin{document}\n"
    times: dict[str, list[float]] = {"opened": [], "typed": []}
    for number, (before, after, title, letters) in enumerate(passages):
        uri, passage = f"file:///tmp/draft{number}.tex", f"{before.strip()} \\cite{{"
        text = f"{head % title}{filler * args.paragraphs}{passage}\n{after}\n\n{filler * args.paragraphs}"
        where = types.Position(text[: text.index(passage)].count("\n"), len(passage))
        client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "latex", 1, text))
        )
        unread: list[asyncio.Future[Any]] = []
        for version, letter in enumerate(["", *letters], 2):
            if letter:
                change = types.TextDocumentContentChangePartial(types.Range(where, where), letter)
                identifier = types.VersionedTextDocumentIdentifier(version, uri)
                client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change]))
                where = types.Position(where.line, where.character + 1)
            given = types.CompletionParams(types.TextDocumentIdentifier(uri), where)
            begun = time.perf_counter()
            answer = asyncio.ensure_future(client.text_document_completion_async(given))
            if letter and version % 4 == 0:  # the next letter follows at once
                unread.append(answer)
                await asyncio.sleep(args.pause / 10)
                continue
            assert (await answer) is not None
            if number:
                times["typed" if letter else "opened"].append(time.perf_counter() - begun)
            elif not letter:
                print(f"from start to the first answer: {time.perf_counter() - started:.1f} s")
            await asyncio.sleep(args.pause)
        await asyncio.gather(*unread)
        client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
    print(f"documents of {len(text):,} characters")
    percentiles("a citation is opened", times["opened"])
    percentiles("a letter is typed", times["typed"])
    median = percentiles("all", times["opened"] + times["typed"])
    print(f"  language server / Recommender.recommend, median: {median / args.ceiling:.2f}")
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()


def main() -> None:
    parser = make_parser(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, help="folder of the library; default: temporary")
    parser.add_argument("--questions", type=int, default=41, help="citations to type")
    parser.add_argument("--paragraphs", type=int, default=40, help="before and after the citation")
    parser.add_argument("--pause", type=float, default=0.15, help="seconds between keystrokes")
    args = parser.parse_args()
    setup(args)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        args.library = folder / "library"
        args.data = source_folder(args, folder, 20_000, 1000)
        if not (args.library / MANIFEST).exists():
            papers = find_files(args.data, None, ["train"])["papers"]
            build(BuildSettings(library=str(args.library), source=(str(papers),)))
        asyncio.run(type_citations(args, read_passages(args)))


if __name__ == "__main__":
    main()
