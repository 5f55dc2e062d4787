"""Fusion of two rankings, and tuning of its weights, against plain dictionaries."""

from __future__ import annotations

import numpy as np

from benchmarks._common import arguments, begin, median_seconds
from datasets.columns import Ragged
from retrieval.base import Ranking, ordered
from retrieval.fusion import convex, normalised, recall_by_weights, reciprocal_rank, simplex


def drawn(rng: np.random.Generator, queries: int, depth: int, papers: int) -> Ranking:
    """As two retrievers find them: some papers are likely for all parts, most for none."""
    keys = rng.random((queries, papers), dtype=np.float32)
    keys[:, : 2 * depth] *= 0.3
    found = np.argpartition(keys, depth, axis=1)[:, :depth]
    return ordered(found, rng.gamma(2, size=found.shape), depth)


def plain_convex(parts: list[dict[int, float]], weights: list[float], k: int) -> list[int]:
    sums: dict[int, float] = {}
    for found, weight in zip(parts, weights, strict=True):
        scores = np.array(list(found.values()))
        least, unit = float(scores.min()), float(scores.std()) or 1.0
        for paper, score in found.items():
            sums[paper] = sums.get(paper, 0.0) + weight * (score - least) / unit
    return sorted(sums, key=lambda paper: (-sums[paper], paper))[:k]


def plain_reciprocal(parts: list[dict[int, float]], k: int) -> list[int]:
    sums: dict[int, float] = {}
    for found in parts:
        for rank, paper in enumerate(found, 1):
            sums[paper] = sums.get(paper, 0.0) + 1 / (60 + rank)
    return sorted(sums, key=lambda paper: (-sums[paper], paper))[:k]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--queries", type=int, default=2048)
    parser.add_argument("--plain-queries", type=int, default=128)
    parser.add_argument("--papers", type=int, default=50_000)
    parser.add_argument("--depth", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    begin(args)
    rng = np.random.default_rng(0)
    rankings = [drawn(rng, args.queries, args.depth, args.papers) for _ in range(2)]
    weights = [0.4, 0.6]
    few = [
        [
            dict(zip(ranking.papers[query].tolist(), ranking.scores[query].tolist(), strict=True))
            for ranking in rankings
        ]
        for query in range(args.plain_queries)
    ]
    wanted = Ragged.from_rows([[int(row[0])] for row in rankings[0].papers])
    grid = simplex(2)
    taken = median_seconds(
        args,
        {
            "convex": lambda: convex(rankings, np.array([weights]), args.depth),
            "plain convex": lambda: [plain_convex(parts, weights, args.depth) for parts in few],
            "rrf": lambda: reciprocal_rank(rankings, args.depth),
            "plain rrf": lambda: [plain_reciprocal(parts, args.depth) for parts in few],
            "tuning": lambda: recall_by_weights(
                rankings, [normalised(r) for r in rankings], wanted, grid, (10, 100)
            ),
        },
        args.repeats,
    )
    found = convex(rankings, np.array([weights]), 10).papers[: len(few)].tolist()
    same = sum(plain_convex(parts, weights, 10) == row for parts, row in zip(few, found, strict=True))
    print(f"{args.queries:,} queries, best {args.depth:,} of 2 x {args.depth:,}")
    print(f"same first ten papers as by dictionaries: {same / len(few):.0%} of {len(few)} queries")
    scale = args.queries / len(few)
    for method in ("convex", "rrf"):
        ours, plain = taken[method], taken[f"plain {method}"] * scale
        print(
            f"{method}: {ours:.2f} s, {plain:.1f} s by dictionaries, in proportion from {len(few)} queries; "
            f"{plain / ours:.1f} times"
        )
    plain = taken["plain convex"] * scale * len(grid)
    print(
        f"tuning, {len(grid)} weights: {taken['tuning']:.2f} s, {plain:.0f} s by dictionaries; "
        f"{plain / taken['tuning']:.0f} times"
    )


if __name__ == "__main__":
    main()
