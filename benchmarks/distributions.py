"""Lengths and frequencies in texts and citations of a corpus, to which datasets/generate.py is fitted.

    python -m benchmarks.distributions --data ../shared/data/neurips2025-lcr --papers FILE ...

Lengths count words between white space, frequencies runs of letters and digits.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks._common import REAL
from datasets.citations.graph import read_paper_lines
from datasets.records import SPLITS, TARGET_MARKER, TRAIN
from datasets.source_files import find_files, read_contexts, read_papers, read_queries, strict

RANKS = (1, 10, 100, 1000, 10_000, 100_000)


def spread(name: str, values: list[int]) -> None:
    there = np.array([value for value in values if value])
    quantiles = " ".join(f"{value:.0f}" for value in np.percentile(there, (1, 25, 50, 75, 99)))
    print(f"{name}: mean {there.mean():.1f}, deviation {there.std():.1f}, .01 .25 .5 .75 .99: {quantiles}")


def by_rank(name: str, values: np.ndarray) -> None:
    print(
        f"{name} by rank:",
        "; ".join(f"{rank:,}: {values[rank - 1]:.3g}" for rank in RANKS if rank <= len(values)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=REAL, help="source folder: contexts, citations, texts")
    parser.add_argument("--papers", type=Path, nargs="*", default=[], help="more texts, one paper a line")
    args = parser.parse_args()
    files = find_files(args.data, None, SPLITS)
    texts = [(paper.title, paper.abstract) for paper in strict(read_papers(files["papers"]))]
    texts += [(paper.title, paper.abstract) for path in args.papers for paper in read_paper_lines(path)]
    for name, column in zip(("title", "abstract"), zip(*texts, strict=True), strict=True):
        spread(f"{name}, words", [len(text.split()) for text in column])
        print(f"  not ASCII {np.mean([not text.isascii() for text in column]):.1%}")
    citing: Counter[str] = Counter()
    sides = []
    for context in strict(read_contexts(files["contexts"])):
        citing[context.citing_id] += 1
        sides += [len(side.split()) for side in context.text.split(TARGET_MARKER)]
    spread("side of a context, words", sides)
    spread("contexts of a citing paper", list(citing.values()))
    cited = Counter(
        paper for query in strict(read_queries(files[f"split {TRAIN}"])) for paper in query.positive_ids
    )
    by_rank("training citations of a paper", np.sort(list(cited.values()))[::-1])
    words = Counter(word for _, abstract in texts for word in re.findall(r"[^\W_]+", abstract.lower()))
    shares = np.sort(list(words.values()))[::-1] / words.total()
    by_rank("frequency of a word", shares)
    by_rank("share of the most frequent words", np.cumsum(shares))


if __name__ == "__main__":
    main()
