"""Mining and fusion: search compared with its matrix product, Jaccard and fusion with plain Python."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from numpy.typing import NDArray

from citerec.benchmarks._common import Tasks, load_corpus, make_parser, median_seconds, setup, word_sums
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import TRAIN
from citerec.hatten.mining import WordSets
from citerec.retrieval.base import Ranking, top_k
from citerec.retrieval.fusion import fuse, normalise_scores
from citerec.retrieval.index import search_exact


def search(args: argparse.Namespace, corpus: Corpus, contexts: NDArray[np.int64]) -> NDArray[np.int32]:
    vectors, own = word_sums(corpus), corpus.citing[contexts]
    queries = vectors(contexts, "context_tokens")
    papers = vectors(np.arange(len(corpus.paper_ids)), "abstract_tokens")
    left, right = torch.from_numpy(queries), torch.from_numpy(papers).T
    out = torch.empty(1024, len(papers))

    def product() -> None:
        for part in left.split(1024):
            torch.mm(part, right, out=out[: len(part)])

    tasks: Tasks = {"search": lambda: search_exact(queries, papers, args.depth, own), "product": product}
    times = median_seconds(args, tasks)
    print(
        f"search: {args.depth} of {len(papers):,} papers for {len(queries):,} queries, "
        f"{len(queries) / times['search']:,.0f} queries/s; {times['product'] / times['search']:.2f} of the "
        "speed of the product"
    )
    return search_exact(queries, papers, args.depth, own).papers


def jaccard(
    args: argparse.Namespace, corpus: Corpus, contexts: NDArray[np.int64], found: NDArray[np.int32]
) -> None:
    sets, few = WordSets(corpus), contexts[: args.few]
    tokens = (corpus.title_tokens, corpus.abstract_tokens)
    papers = {
        row: {*tokens[0][row].tolist(), *tokens[1][row].tolist()} for row in np.unique(found[: args.few])
    }

    def python() -> None:
        for context, ranked in zip(few.tolist(), found.tolist(), strict=False):
            citing = int(corpus.citing[context])
            parts = (tokens[0][citing], tokens[1][citing], corpus.context_tokens[context])
            query = {word for part in parts for word in part.tolist()}
            for row in ranked:
                len(query & papers[row]) / max(len(query | papers[row]), 1)

    tasks: Tasks = {"sparse": lambda: sets.jaccard(sets.queries(contexts), found), "python": python}
    times = median_seconds(args, tasks)
    ours, plain = found.size / times["sparse"], found[: args.few].size / times["python"]
    print(f"Jaccard: {ours:,.0f} pairs/s, Python sets {plain:,.0f}; {ours / plain:.1f} times")


def fusion(args: argparse.Namespace, papers: int, depth: int = 2000) -> None:
    rng = np.random.default_rng(0)

    def sample() -> Ranking:
        """Draw a ranking; some papers are likely in every ranking, most are unlikely."""
        keys = rng.random((args.queries, papers), dtype=np.float32)
        keys[:, : 2 * depth] *= 0.3
        found = np.argpartition(keys, min(depth, papers - 1), axis=1)[:, :depth]
        return top_k(found, rng.gamma(2, size=found.shape), depth)

    parts, weights = [sample(), sample()], np.array([[0.4, 0.6]])
    few = [
        [dict(zip(part.papers[q].tolist(), part.scores[q].tolist(), strict=True)) for part in parts]
        for q in range(args.few)
    ]

    def python() -> None:
        for found in few:
            sums: dict[int, float] = {}
            for part, weight in zip(found, weights[0].tolist(), strict=True):
                scores = np.array(list(part.values()))
                least, unit = float(scores.min()), float(scores.std()) or 1.0
                for paper, score in part.items():
                    sums[paper] = sums.get(paper, 0.0) + weight * (score - least) / unit
            sorted(sums, key=lambda paper: (-sums[paper], paper))[:depth]

    times = median_seconds(
        args,
        {"ours": lambda: fuse(parts, list(map(normalise_scores, parts)), weights, depth), "python": python},
    )
    ours, plain = args.queries / times["ours"], len(few) / times["python"]
    print(
        f"fusion: {ours:,.0f} queries/s of 2 x {depth:,} papers, dictionaries {plain:,.0f}; "
        f"{ours / plain:.1f} times"
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--few", type=int, default=128, help="queries for plain Python")
    parser.add_argument("--depth", type=int, default=100)
    args = parser.parse_args()
    setup(args)
    corpus = load_corpus(args)
    contexts = np.random.default_rng(0).permutation(corpus.split(TRAIN).contexts)[: args.queries]
    jaccard(args, corpus, contexts, search(args, corpus, contexts))
    fusion(args, len(corpus.paper_ids))


if __name__ == "__main__":
    main()
