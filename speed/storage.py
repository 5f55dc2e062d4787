"""The same library in memory and on disk: whether a query gets the same papers, and how long it takes.

    python -m citerec.speed.storage --data ../shared/data/neurips2025-lcr --queries 300

builds both from the papers of the data, without contexts, and asks test contexts. Prints how often the first
ten papers are the same in the same order, how many of the first and of the first ten are, R@10 of both, and
the times.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from citerec.datasets.corpus import Corpus
from citerec.datasets.formats.source_files import find_files
from citerec.library.explanation import Recommendation
from citerec.library.recommender import Recommender, Request
from citerec.recommend import run
from citerec.retrieval.queries import Queries, Query
from citerec.speed._common import load_corpus, make_parser, setup

K = 10


def requests(corpus: Corpus, count: int, seed: int) -> list[tuple[Request, set[str]]]:
    """Test queries, with the ids that they cite."""
    ids, split = corpus.paper_ids, corpus.split("test")
    split = split.take(np.sort(np.random.default_rng(seed).permutation(len(split))[:count]))
    queries = Queries.from_contexts(corpus, split)
    texts = map(queries.texts, ("context", "title", "abstract"))
    return [
        (
            Request(Query(context, title, abstract, int(year))),
            {ids[paper] for paper in cited.tolist()},
        )
        for context, title, abstract, year, cited in zip(*texts, queries.years, split.positives, strict=True)
    ]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    setup(args)
    corpus = load_corpus(args)
    asked = requests(corpus, args.queries, args.seed)
    answers: dict[str, list[list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        papers = find_files(args.data, None, ["test"])["papers"]
        for storage, options in (("memory", []), ("disk", [f"shards={args.shards}", "workers=1"])):
            library = Path(folder) / storage
            run(["build", f"library={library}", f"source={papers}", f"storage={storage}", *options])
            answers[storage] = ask(library, storage, asked)
    pairs = list(zip(*answers.values(), strict=True))
    same, first, all_ten = (
        float(np.mean(part))
        for part in zip(*((a == b, a[:1] == b[:1], len({*a} & {*b}) / K) for a, b in pairs), strict=True)
    )
    print(
        f"the same: {same:.1%} of the lists, {first:.1%} of the first papers, {all_ten:.1%} of the first {K}"
    )


def ask(library: Path, storage: str, asked: list[tuple[Request, set[str]]]) -> list[list[str]]:
    recommender = Recommender.open(library)
    answers, seconds = [], []
    for request, _ in asked:
        start = time.perf_counter()
        found: list[Recommendation] = recommender.recommend_batch([request], K)[0]
        seconds.append(time.perf_counter() - start)
        answers.append([paper.id for paper in found])
    recall = np.mean(
        [len(cited & {*ids}) / len(cited) for ids, (_, cited) in zip(answers, asked, strict=True)]
    )
    p50, p95 = np.percentile(seconds[1:], (50, 95)) * 1000
    print(f"{storage}: R@{K} {recall:.3f}; p50 {p50:.1f}, p95 {p95:.1f} ms")
    return answers


if __name__ == "__main__":
    main()
