"""Lengths and frequencies in texts and citations, of real corpora or of a generated one.

The parameters of datasets/synthetic are taken from here:

    python -m benchmarks.distributions --papers ../shared/data/arxiv_distractors/papers.jsonl.gz \
        ../shared/data/arxiv9196/papers.jsonl.gz --data ../shared/data/neurips2025-lcr

Words of lengths are what white space parts; words of frequencies are runs of letters and digits.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks._common import REAL
from datasets.records import OTHER_MARKER, SPLITS, TARGET_MARKER, TRAIN
from datasets.source_files import find_files, read_contexts, read_papers, read_queries, strict

WORD = re.compile(r"[^\W_]+")
RANKS = (1, 2, 5, 10, 50, 100, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=REAL, help="source folder: contexts, citations, texts")
    parser.add_argument("--papers", type=Path, nargs="*", default=[], help="more texts, one paper a line")
    args = parser.parse_args()
    files = find_files(args.data, None, SPLITS)
    papers = list(strict(read_papers(files["papers"])))
    more = []
    for path in args.papers:
        with gzip.open(path) as lines:
            more += [orjson.loads(line) for line in lines]
    print(f"{args.data.name}: {len(papers):,} papers; {len(more):,} more")
    for name in ("title", "abstract"):
        texts = [record[name] for record in more] or [getattr(paper, name) for paper in papers]
        lengths(name, [len(text.split()) for text in texts])
        lengths(f"{name}, characters", [len(text) for text in texts])
        print(f"  not ASCII {share(not text.isascii() for text in texts)}", end=", ")
        print(f"with a backslash {share(chr(92) in text for text in texts)}")
    contexts(files["contexts"])
    citations(files[f"split {TRAIN}"])
    frequencies([record["abstract"] for record in more] + [paper.abstract for paper in papers])


def contexts(path: Path) -> None:
    citing: Counter[str] = Counter()
    sides, others, words = [], 0, 0
    for context in strict(read_contexts(path)):
        citing[context.citing_id] += 1
        others += context.text.count(OTHER_MARKER)
        sides += [len(side.split()) for side in context.text.split(TARGET_MARKER)]
        words += sides[-1] + sides[-2]
    lengths("side of a context", sides)
    print(f"  {OTHER_MARKER}: {others / words:.3f} of its words")
    lengths("contexts of a citing paper", list(citing.values()))


def citations(path: Path) -> None:
    cited = Counter(paper for query in strict(read_queries(path)) for paper in query.positive_ids)
    counts = np.sort(np.array(list(cited.values())))[::-1]
    at = "; ".join(f"{rank}: {counts[rank - 1]:,}" for rank in RANKS if rank <= len(counts))
    print(f"cited in train: {len(counts):,} papers, {counts.sum():,} times; by rank {at}")


def frequencies(texts: list[str]) -> None:
    """In a random order, so that the growth of the vocabulary is that of the whole."""
    ids: dict[str, int] = {}
    found: list[NDArray[np.int32]] = []
    ends: Counter[str] = Counter()
    for row in np.random.default_rng(0).permutation(len(texts)).tolist():
        words = WORD.findall(texts[row].lower())
        found.append(np.fromiter((ids.setdefault(word, len(ids)) for word in words), np.int32, len(words)))
        ends.update(re.findall(r"(?<=\w)([,.]|-(?=\w)| \(|\) )", texts[row]))
    running = np.concatenate(found)
    counts = np.sort(np.bincount(running))[::-1]
    summed = np.cumsum(counts) / len(running)
    print(f"abstracts: {len(running):,} words")
    print("  behind a word:", ", ".join(f"{end!r} {n / len(running):.3f}" for end, n in ends.most_common()))
    for name, values in (("frequency", counts / len(running)), ("share up to it", summed)):
        at = "; ".join(f"{rank:,}: {values[rank - 1]:.3g}" for rank in RANKS if rank <= len(values))
        print(f"  {name} by rank: {at}")
    sizes = [10**power for power in range(3, 9) if 10**power < len(running)] + [len(running)]
    # Ids are given in the order in which words come up.
    grown = {size: int(running[:size].max()) + 1 for size in sizes}
    print("  vocabulary by words:", "; ".join(f"{size:,}: {types:,}" for size, types in grown.items()))


def lengths(name: str, values: list[int]) -> None:
    there = np.array([value for value in values if value])
    spread = ", ".join(f"{value:.0f}" for value in np.percentile(there, PERCENTILES))
    print(
        f"{name}: mean {there.mean():.1f}, deviation {there.std():.1f}; percentiles {PERCENTILES}: {spread}"
    )


def share(found: Iterable[bool]) -> str:
    return f"{np.mean(list(found)):.1%}"


if __name__ == "__main__":
    main()
