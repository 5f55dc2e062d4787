"""Near-duplicate titles against SetSimilaritySearch, which finds the same pairs; then many more titles."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from benchmarks._common import arguments, begin, median_seconds, memory, seconds
from datasets.citations.graph import read_paper_lines
from datasets.near_duplicates import TitleIndex

TITLES = Path("../shared/data/arxiv_distractors/papers.jsonl.gz")
THRESHOLD = 0.7
BATCH = 1 << 16


class Titles:
    """Titles with the lengths of real ones, of words drawn by their frequency in real titles."""

    def __init__(self, path: Path) -> None:
        if path.is_file():
            real = [paper.title for paper in read_paper_lines(path)]
        else:  # the frequencies of Zipf
            real = [" ".join(f"w{one}" for one in range(1, 40_000 // (1 + row))) for row in range(200)]
        lists = [re.findall(r"[^\W_]+", title.lower()) for title in real]
        self.words, counts = np.unique([word for found in lists for word in found], return_counts=True)
        self.shares = np.cumsum(counts / counts.sum())
        self.lengths = np.clip([len(found) for found in lists], 1, 30)

    def drawn(self, count: int, rng: np.random.Generator) -> list[str]:
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
    parser = arguments(__doc__)
    parser.add_argument("--titles", type=int, default=1_000_000, help="training titles")
    parser.add_argument("--held-out", type=int, default=40_000, help="titles of val and test")
    parser.add_argument("--peer-titles", type=int, default=20_000, help="training titles for the peer")
    args = parser.parse_args()
    begin(args)
    titles, rng = Titles(TITLES), np.random.default_rng(0)
    held_out = titles.drawn(args.held_out, rng)

    def batch(count: int) -> list[str]:
        """Every 40th is a held-out title with a word more."""
        made = titles.drawn(count, rng)
        made[::40] = [f"{held_out[rng.integers(len(held_out))]}: again" for _ in made[::40]]
        return made

    some = batch(args.peer_titles)
    ours = {(row, other) for row, other in TitleIndex(held_out, THRESHOLD).pairs(some).tolist()}
    theirs = peer(held_out, some)
    assert ours == theirs, f"{len(ours ^ theirs)} pairs are found by one alone"
    works = {
        "ours": lambda: TitleIndex(held_out, THRESHOLD).pairs(some),
        "peer": lambda: peer(held_out, some),
    }
    taken = median_seconds(args, works, repeats=1)
    print(
        f"{len(some):,} titles against {len(held_out):,}, {len(ours):,} pairs: {taken['ours']:.2f} s, "
        f"SetSimilaritySearch {taken['peer']:.2f} s; {taken['peer'] / taken['ours']:.1f} times its speed"
    )
    index, before, spent, near = TitleIndex(held_out, THRESHOLD), memory(), 0.0, 0
    for start in range(0, args.titles, BATCH):
        made = batch(min(BATCH, args.titles - start))
        found: list[int] = []
        work = lambda: found.append(int(index.near(made).sum()))  # noqa: B023, E731
        spent += seconds(args, work)
        near += found[0]
    print(
        f"{args.titles:,} titles: {spent:.1f} s, {near:,} near-duplicates; memory grew by "
        f"{1000 * (memory() - before):.0f} MB"
    )


if __name__ == "__main__":
    main()
