"""The first second: time and memory of commands, beside an import of libraries.

    python -m citerec.speed.first

Times are of the processor, which a busy machine changes least, and in brackets of the clock: least of
`--repeats`. Not measured: Windows and macOS; a disk that has not read the files before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
PEER = ["-c", "import numpy, onnxruntime, tokenizers"]
QUESTION = "Graded judgements deserve a discount for lower positions [CITE]."


def measure(arguments: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Run Python; return seconds of the processor and of the clock, and the megabytes of memory."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, arguments
    return used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "XDG_CACHE_HOME": place, "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPYCACHEPREFIX": f"{place}/compiled", "PYTHONDONTWRITEBYTECODE": ""}
        ask = ["-m", "citerec", "ask", str(EXAMPLES / "library.bib"), QUESTION]
        rows = {
            "import numpy, onnxruntime, tokenizers": PEER,
            "first `citerec ask papers.bib`, nothing compiled": ask,
            "the same again": ask,
            "`citerec check` of a small draft": ["-m", "citerec", "check", str(EXAMPLES / "draft.tex")],
            "`citerec --help`": ["-m", "citerec", "--help"],
        }
        print(f"load {os.getloadavg()[0]:.1f}\n\n| | s | memory, MB | times the import |")
        print("| --- | ---: | ---: | ---: |")
        peer = 0.0
        for name, arguments in rows.items():
            if not name.startswith(("first", "the same")):
                measure(arguments, environment)  # compiles
            runs = [
                measure(arguments, environment) for _ in range(1 if name.startswith("first") else repeats)
            ]
            seconds, wall, memory = map(min, zip(*runs, strict=True))
            peer = peer or seconds
            print(f"| {name} | {seconds:.2f} ({wall:.2f}) | {memory:.0f} | {seconds / peer:.1f} |")


if __name__ == "__main__":
    main()
