"""The built-in model's encoder: time to read a library, and of a question with it and without.

    python -m citerec.speed.encoder --data DIR --papers 2000 --questions 100

Papers of the data, as they are, are built into a library twice: with the built-in model, whose encoder reads
them, and with model=static. The same contexts ask both in turn, one by one, in this process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

from citerec.datasets.formats.source_files import find_files, read_contexts
from citerec.datasets.records import ContextRecord
from citerec.library.memory.encoding import encode
from citerec.library.memory.library import MemoryLibrary
from citerec.library.recommender import Recommender
from citerec.library.sources.readers import read_source
from citerec.speed._common import make_parser, setup


def measure(args: argparse.Namespace) -> None:
    files = find_files(args.data, None, ["train"])
    papers = list(islice(read_source(str(files["papers"]), print), args.papers))
    lacking = sum(not paper.abstract for paper in papers)
    contexts = (one for one in read_contexts(files["contexts"]) if isinstance(one, ContextRecord))
    texts = [one.text for one in islice(contexts, args.questions)]
    with tempfile.TemporaryDirectory() as place:
        asked = {}
        for model in ("static", "builtin"):
            library = MemoryLibrary.create(Path(place) / model, papers, model=model)
            done = encode(library)
            if done is not None:
                print(f"{done}, {done.new / done.seconds:.0f} papers/s, {lacking:,} without an abstract")
            asked[model] = Recommender.open(Path(place) / model)
        times: dict[str, list[float]] = {model: [] for model in asked}
        for text in texts:
            for model, recommender in asked.items():
                start = time.perf_counter()
                recommender.recommend(text, k=10)
                times[model].append(time.perf_counter() - start)
    p50 = {model: float(np.median(of[3:])) * 1000 for model, of in times.items()}
    print(", ".join(f"{model}: p50 {value:.0f} ms" for model, value in p50.items()), end="; ")
    print(f"with the encoder {p50['builtin'] / p50['static']:.2f} times the time without")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--papers", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=100)
    args = parser.parse_args()
    setup(args)
    measure(args)


if __name__ == "__main__":
    main()
