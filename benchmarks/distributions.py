"""Length and frequency distributions of texts and citations, which datasets/generate.py is fitted to.

    python -m citerec.benchmarks.distributions --data ../shared/data/neurips2025-lcr --papers FILE ...

Lengths count whitespace-separated words; frequencies count runs of letters and digits.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

import numpy as np

from citerec.benchmarks._common import REAL
from citerec.datasets.citations.graph import read_paper_lines
from citerec.datasets.records import SPLITS, TARGET_MARKER, TRAIN
from citerec.datasets.source_files import find_files, read_contexts, read_papers, read_queries, reject_bad

RANKS = (1, 10, 100, 1000, 10_000, 100_000)


def print_spread(name: str, values: list[int]) -> None:
    nonzero = np.array([value for value in values if value])
    quantiles = " ".join(f"{value:.0f}" for value in np.percentile(nonzero, (1, 25, 50, 75, 99)))
    print(
        f"{name}: mean {nonzero.mean():.1f}, deviation {nonzero.std():.1f}, .01 .25 .5 .75 .99: {quantiles}"
    )


def print_by_rank(name: str, values: np.ndarray) -> None:
    print(
        f"{name} by rank:",
        "; ".join(f"{rank:,}: {values[rank - 1]:.3g}" for rank in RANKS if rank <= len(values)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=REAL, help="source folder of contexts, citations and texts"
    )
    parser.add_argument(
        "--papers", type=Path, nargs="*", default=[], help="files of additional texts, one paper per line"
    )
    args = parser.parse_args()
    files = find_files(args.data, None, SPLITS)
    texts = [(paper.title, paper.abstract) for paper in reject_bad(read_papers(files["papers"]))]
    texts += [(paper.title, paper.abstract) for path in args.papers for paper in read_paper_lines(path)]
    for name, column in zip(("title", "abstract"), zip(*texts, strict=True), strict=True):
        print_spread(f"{name}, words", [len(text.split()) for text in column])
        print(f"  non-ASCII {np.mean([not text.isascii() for text in column]):.1%}")
    citing: Counter[str] = Counter()
    sides = []
    for context in reject_bad(read_contexts(files["contexts"])):
        citing[context.citing_id] += 1
        sides += [len(side.split()) for side in context.text.split(TARGET_MARKER)]
    print_spread("side of a context, words", sides)
    print_spread("contexts of a citing paper", list(citing.values()))
    cited = Counter(
        paper for query in reject_bad(read_queries(files[f"split {TRAIN}"])) for paper in query.positive_ids
    )
    print_by_rank("training citations of a paper", np.sort(list(cited.values()))[::-1])
    words = Counter(word for _, abstract in texts for word in re.findall(r"[^\W_]+", abstract.lower()))
    shares = np.sort(list(words.values()))[::-1] / words.total()
    print_by_rank("frequency of a word", shares)
    print_by_rank("share of the most frequent words", np.cumsum(shares))


if __name__ == "__main__":
    main()
