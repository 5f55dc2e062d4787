"""The first second: time and memory of commands, beside an import of libraries.

    python -m citerec.speed.first --install

Times are processor times, which a busy machine changes least, with clock times in brackets; the least of
`--repeats` counts. Not measured: Windows and macOS; a disk that has not read the files before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PEER = ["-c", "import numpy, onnxruntime, tokenizers"]
QUESTION = "Graded judgements deserve a discount for lower positions [CITE]."
LIBRARY = ["--papers=2000", "--model=", "--stages", "building", "asking"]
Measured = tuple[float, float, float]
"""Seconds of the processor and of the clock, and megabytes of memory."""


def measure(arguments: list[str], environment: dict[str, str]) -> Measured:
    """Run Python."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, arguments
    return used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss / 1024


async def complete(library: str, environment: dict[str, str]) -> Measured:
    """Start `citerec lsp`, as an editor does, until it has completed a citation; memory once it is idle."""
    text, client = QUESTION.replace("[CITE].", "\\cite{"), LanguageClient("speed", "1")
    document = types.TextDocumentItem((EXAMPLES / "speed.tex").as_uri(), "latex", 1, text)
    where = types.TextDocumentIdentifier(document.uri), types.Position(0, len(text))
    started = time.perf_counter()
    await client.start_io(sys.executable, "-m", "citerec", "lsp", f"library={library}", env=environment)
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities()))
    client.initialized(types.InitializedParams())
    client.text_document_did_open(types.DidOpenTextDocumentParams(document))
    assert await client.text_document_completion_async(types.CompletionParams(*where))
    clock = time.perf_counter() - started
    assert client._server is not None
    process = Path(f"/proc/{client._server.pid}")
    ticks = process.joinpath("stat").read_text("utf-8").rpartition(")")[2].split()[11:13]
    await asyncio.sleep(2)  # idle now
    pages = int(process.joinpath("statm").read_text("utf-8").split()[1])
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), clock, pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def print_installed(folder: Path) -> None:
    """Install the checkout in an empty environment, and print its size."""
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([*pip, "install", "--quiet", ROOT], check=True)
    listed = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True).stdout
    size = subprocess.run(["du", "-sm", folder], check=True, capture_output=True, text=True).stdout.split()[0]
    print(f"`pip install .`: {size} MB, {len(json.loads(listed))} packages\n")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--install", action="store_true", help="measure an empty environment, too")
    args = parser.parse_args()
    logging.getLogger("pygls").setLevel(logging.ERROR)  # it warns of each diagnosis
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "XDG_CACHE_HOME": place, "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPYCACHEPREFIX": f"{place}/compiled", "PYTHONDONTWRITEBYTECODE": ""}
        if args.install:
            print_installed(Path(place) / "environment")
        library = str(EXAMPLES / "library.bib")

        def command(*words: str) -> Callable[[], Measured]:
            return lambda: measure(["-m", "citerec", *words], environment)

        calls = {
            "import numpy, onnxruntime, tokenizers": lambda: measure(PEER, environment),
            "first `citerec ask papers.bib`, nothing compiled": command("ask", library, QUESTION),
            "the same again": command("ask", library, QUESTION),
            "`citerec check` of a small draft": command("check", str(EXAMPLES / "draft.tex")),
            "`citerec --help`": command("--help"),
            "`citerec lsp` to a completion; idle": lambda: asyncio.run(complete(library, environment)),
        }
        print(f"load {os.getloadavg()[0]:.1f}\n\n| | s | memory, MB | times the import |")
        print("| --- | ---: | ---: | ---: |")
        peer = 0.0
        for name, call in calls.items():
            if not name.startswith(("first", "the same")):
                call()  # compiles
            runs = [call() for _ in range(1 if name.startswith("first") else args.repeats)]
            seconds, wall, memory = map(min, zip(*runs, strict=True))
            peer = peer or seconds
            print(f"| {name} | {seconds:.2f} ({wall:.2f}) | {memory:.0f} | {seconds / peer:.1f} |")
    subprocess.run([sys.executable, "-m", "citerec.speed.library", *LIBRARY], check=True)


if __name__ == "__main__":
    main()
