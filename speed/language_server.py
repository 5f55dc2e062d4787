"""The language server: time from request to answer while a client types citations, over stdin and stdout.

    python -m citerec.speed.language_server --folder DIR

builds a library of the data's papers in DIR, unless there is one. The client writes passages of the data into
a document, opens a citation in each, and types letters of an author's name. It asks for completions after
each letter, and does not wait for every answer. The ceiling is a Recommender in this process that answers the
same passages, without letters.
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

from citerec.datasets.formats.source_files import find_files
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.library.commands.change import build
from citerec.library.folder import MANIFEST
from citerec.library.memory.library import in_memory
from citerec.library.recommender import Recommender
from citerec.library.settings import BuildSettings
from citerec.speed._common import make_parser, setup, source_folder
from citerec.speed.library import read_questions

LETTERS = 5
"""Letters typed of each key."""
K = 20


def percentiles(name: str, times: list[float]) -> float:
    """Print the percentiles of seconds; return the median."""
    p50, p95, p99 = np.percentile(np.array(times) * 1000, [50, 95, 99])
    print(f"{name}: p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms, {len(times)} requests")
    return float(p50)


def read_passages(args: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Return the text before and after a citation, and letters to type, per citation."""
    recommender = Recommender.open(args.library)
    draw, passages, times = random.Random(0), [], []
    for text, title, abstract in read_questions(args, in_memory(recommender.library), args.questions):
        start = time.perf_counter()
        found = recommender.recommend(text, title, abstract, K)
        times.append(time.perf_counter() - start)
        before, after = text.replace(OTHER_MARKER, "\\cite{other}").split(TARGET_MARKER)
        wanted = draw.choice(found[:5])
        typed = (wanted.authors[0].split()[-1] if wanted.authors else wanted.title)[:LETTERS].lower()
        passages.append((before, after, typed))
    args.ceiling = percentiles("Recommender.recommend in this process", times[1:])
    return passages


async def type_citations(args: argparse.Namespace, passages: list[tuple[str, str, str]]) -> None:
    client = LanguageClient("benchmark", "1")
    client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda _: None)
    started = time.perf_counter()
    await client.start_io(sys.executable, "-m", "citerec", "lsp", f"library={args.library}", f"k={K}")
    await client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
    client.initialized(types.InitializedParams())
    filler = f"{'Papers of this kind have been written for years, and more of them follow. ' * 12}\n\n"
    lines = ["\\documentclass{article}\n\\title{Draft}\n\\begin{document}", filler * args.paragraphs]
    head = "\n".join(lines)
    uri, line, version, length = "file:///tmp/draft.tex", head.count("\n"), 1, 0
    item = types.TextDocumentItem(uri, "latex", version, f"{head}\n\n{filler * args.paragraphs}")
    client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(first: int, last: int, text: str) -> None:
        nonlocal version
        version += 1
        place = types.Range(types.Position(line, first), types.Position(line, last))
        part = types.TextDocumentContentChangePartial(place, text)
        identifier = types.VersionedTextDocumentIdentifier(version, uri)
        client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [part]))

    times: dict[str, list[float]] = {"opened": [], "typed": []}
    unread: list[asyncio.Future[Any]] = []
    for number, (before, after, letters) in enumerate(passages):
        change(0, length, f"{before} {after}")
        length, caret = len(before) + 1 + len(after), len(before)
        await asyncio.sleep(4 * args.pause)  # the writer thinks
        for turn, typed in enumerate(["\\cite{", *letters]):
            change(caret, caret, typed)
            caret, length = caret + len(typed), length + len(typed)
            begun = time.perf_counter()
            place = types.Position(line, caret)
            given = types.CompletionParams(types.TextDocumentIdentifier(uri), place)
            answer = asyncio.ensure_future(client.text_document_completion_async(given))
            if turn == 2:  # the next letter follows at once
                unread.append(answer)
                await asyncio.sleep(args.pause / 10)
                continue
            assert (await answer) is not None
            if number:
                times["typed" if turn else "opened"].append(time.perf_counter() - begun)
            elif not turn:
                print(f"from start to the first answer: {time.perf_counter() - started:.1f} s")
            await asyncio.sleep(args.pause)
    await asyncio.gather(*unread)
    print(f"a document of {len(item.text):,} characters")
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
