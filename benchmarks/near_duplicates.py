"""Near-duplicate titles: ours against SetSimilaritySearch in Python, which finds the same; then millions."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._common import arguments, begin, median_seconds, seconds
from datasets.citations.graph import read_paper_lines
from datasets.near_duplicates import TitleIndex

TITLES = Path("../shared/data/arxiv_distractors/papers.jsonl.gz")
THRESHOLD = 0.7
BATCH = 1 << 16


class Titles:
    """Titles of as many words as real ones have, drawn by how often they occur in real titles."""

    def __init__(self, path: Path) -> None:
        if path.is_file():
            real = [paper.title for paper in read_paper_lines(path)]
        else:  # no real ones: the frequencies of Zipf
            real = [" ".join(f"w{one}" for one in range(1, 40_000 // (1 + row))) for row in range(200)]
        lists = [re.findall(r"[^\W_]+", title.lower()) for title in real]
        words = [word for found in lists for word in found]
        self.words, counts = np.unique(words, return_counts=True)
        self.shares = np.cumsum(counts / counts.sum())
        self.lengths = np.minimum([len(found) for found in lists], 30)

    def drawn(self, count: int, rng: np.random.Generator) -> list[NDArray[np.str_]]:
        lengths = rng.choice(self.lengths, count)
        codes = np.searchsorted(self.shares, rng.random(lengths.sum()))
        words = self.words[np.minimum(codes, len(self.words) - 1)]
        return np.split(words, np.cumsum(lengths)[:-1])


def batches(titles: Titles, count: int, held_out: list[str]) -> Iterator[list[str]]:
    """Titles for training; every 40th is a held-out one with a word more."""
    rng = np.random.default_rng(1)
    for first in range(0, count, BATCH):
        drawn = [" ".join(words) for words in titles.drawn(min(BATCH, count - first), rng)]
        for row in range(0, len(drawn), 40):
            drawn[row] = f"{held_out[rng.integers(len(held_out))]}: again"
        yield drawn


def sets(titles: list[str]) -> list[set[str]]:
    return [set(re.findall(r"[^\W_]+", title.lower())) for title in titles]


def peer(held_out: list[str], titles: list[str]) -> set[tuple[int, int]]:
    from SetSimilaritySearch import SearchIndex

    index = SearchIndex(sets(held_out), similarity_func_name="jaccard", similarity_threshold=THRESHOLD)
    found = ((row, index.query(words)) for row, words in enumerate(sets(titles)))
    return {(row, int(other)) for row, near in found for other, share in near if share > THRESHOLD + 1e-9}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--titles", type=int, default=2_000_000, help="training titles, in all")
    parser.add_argument("--held-out", type=int, default=40_000, help="titles of val and test")
    parser.add_argument("--peer-titles", type=int, default=20_000, help="training titles that the peer gets")
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()
    begin(args)
    titles = Titles(TITLES)
    drawn = titles.drawn(args.held_out, np.random.default_rng(0))
    held_out = [" ".join(words) for words in drawn if len(words)]
    some = next(batches(titles, args.peer_titles, held_out))
    index = TitleIndex(held_out, THRESHOLD)
    ours, theirs = {(row, other) for row, other in index.pairs(some).tolist()}, peer(held_out, some)
    assert ours == theirs, f"{len(ours ^ theirs)} pairs are found by one alone"
    taken = median_seconds(
        args,
        {
            "ours": lambda: TitleIndex(held_out, THRESHOLD).pairs(some),
            "SetSimilaritySearch": lambda: peer(held_out, some),
        },
        args.repeats,
    )
    print(
        f"{len(some):,} training titles against {len(held_out):,}, {len(ours):,} pairs: "
        f"ours {taken['ours']:.2f} s, SetSimilaritySearch {taken['SetSimilaritySearch']:.2f} s; "
        f"{taken['SetSimilaritySearch'] / taken['ours']:.1f} times its speed"
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent, near, done = 0.0, 0, 0
    for batch in batches(titles, args.titles, held_out):  # which are made meanwhile, outside of the clock
        found: list[NDArray[np.bool_]] = []
        spent += seconds(args, lambda batch=batch, found=found: found.append(index.near(batch)))  # type: ignore[misc]
        near, done = near + int(found[0].sum()), done + len(batch)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{done:,} training titles: {spent:.1f} s, {done / spent:,.0f} a second, "
        f"{near:,} are near-duplicates; memory grew by {more:.0f} MB"
    )


if __name__ == "__main__":
    main()
