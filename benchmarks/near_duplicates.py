"""Near-duplicate titles: speed compared with SetSimilaritySearch, which finds the same pairs, and scaling."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from citerec.benchmarks._common import Tasks, make_parser, median_seconds, memory_gb, setup, time_call
from citerec.datasets.citations.graph import read_paper_lines
from citerec.datasets.near_duplicates import TitleIndex

TITLES = Path("../shared/data/arxiv_distractors/papers.jsonl.gz")
THRESHOLD = 0.7
BATCH = 1 << 16


class Titles:
    """Samples titles with the lengths and word frequencies of real ones."""

    def __init__(self, path: Path) -> None:
        if path.is_file():
            real = [paper.title for paper in read_paper_lines(path)]
        else:  # Zipf's law
            real = [" ".join(f"w{one}" for one in range(1, 40_000 // (1 + row))) for row in range(200)]
        lists = [re.findall(r"[^\W_]+", title.lower()) for title in real]
        self.words, counts = np.unique([word for found in lists for word in found], return_counts=True)
        self.shares = np.cumsum(counts / counts.sum())
        self.lengths = np.clip([len(found) for found in lists], 1, 30)

    def sample(self, count: int, rng: np.random.Generator) -> list[str]:
        lengths = rng.choice(self.lengths, count)
        codes = np.searchsorted(self.shares, rng.random(lengths.sum()))
        words = self.words[np.minimum(codes, len(self.words) - 1)]
        return [" ".join(part) for part in np.split(words, np.cumsum(lengths)[:-1])]


def peer(held_out: list[str], titles: list[str]) -> set[tuple[int, int]]:
    from SetSimilaritySearch import SearchIndex

    def sets(texts: list[str]) -> list[set[str]]:
        return [set(re.findall(r"[^\W_]+", text.lower())) for text in texts]

    index = SearchIndex(sets(held_out), similarity_func_name="jaccard", similarity_threshold=THRESHOLD)
    found = ((row, index.query(words)) for row, words in enumerate(sets(titles)))
    return {(row, int(other)) for row, near in found for other, share in near if share > THRESHOLD + 1e-9}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--titles", type=int, default=1_000_000, help="training titles")
    parser.add_argument("--held-out", type=int, default=40_000, help="titles of the val and test splits")
    parser.add_argument("--peer-titles", type=int, default=20_000, help="training titles for the peer")
    args = parser.parse_args()
    setup(args)
    titles, rng = Titles(TITLES), np.random.default_rng(0)
    held_out = titles.sample(args.held_out, rng)

    def batch(count: int) -> list[str]:
        """Sample titles; every 40th is a held-out title plus one word."""
        sampled = titles.sample(count, rng)
        sampled[::40] = [f"{held_out[rng.integers(len(held_out))]}: again" for _ in sampled[::40]]
        return sampled

    some = batch(args.peer_titles)
    ours = {(row, other) for row, other in TitleIndex(held_out, THRESHOLD).pairs(some).tolist()}
    theirs = peer(held_out, some)
    assert ours == theirs, f"{len(ours ^ theirs)} pairs are found by only one of the two"
    tasks: Tasks = {
        "ours": lambda: TitleIndex(held_out, THRESHOLD).pairs(some),
        "peer": lambda: peer(held_out, some),
    }
    times = median_seconds(args, tasks, repeats=1)
    print(
        f"{len(some):,} titles against {len(held_out):,}, {len(ours):,} pairs: {times['ours']:.2f} s, "
        f"SetSimilaritySearch {times['peer']:.2f} s; {times['peer'] / times['ours']:.1f} times its speed"
    )
    index, before, elapsed, near = TitleIndex(held_out, THRESHOLD), memory_gb(), 0.0, 0
    for start in range(0, args.titles, BATCH):
        new = batch(min(BATCH, args.titles - start))
        found: list[int] = []
        work = lambda: found.append(int(index.matches(new).sum()))  # noqa: B023, E731
        elapsed += time_call(args, work)
        near += found[0]
    print(
        f"{args.titles:,} titles: {elapsed:.1f} s, {near:,} near-duplicates; memory grew by "
        f"{1000 * (memory_gb() - before):.0f} MB"
    )


if __name__ == "__main__":
    main()
