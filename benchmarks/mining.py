"""Mining: exact search against the bare matrix product, Jaccard indices against Python sets."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks._common import arguments, begin, corpus, median_seconds, word_sums
from datasets.records import TRAIN
from hatten.mining import WordSets
from retrieval.index import search_exact


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--set-queries", type=int, default=200, help="queries compared by Python sets")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    begin(args)
    opened = corpus(args)
    rng = np.random.default_rng(0)
    contexts = opened.split(TRAIN).contexts
    contexts = contexts[rng.permutation(len(contexts))[: args.queries]]

    vectors = word_sums(opened)
    queries = vectors(contexts, "context_tokens")
    papers = vectors(np.arange(len(opened.paper_ids)), "abstract_tokens")
    out = torch.empty(1024, len(papers))
    left, right = torch.from_numpy(queries), torch.from_numpy(papers).T

    def product() -> None:
        for start in range(0, len(left), 1024):
            part = left[start : start + 1024]
            torch.mm(part, right, out=out[: len(part)])

    taken = median_seconds(
        args,
        {
            "search": lambda: search_exact(queries, papers, args.depth, opened.citing[contexts]),
            "product": product,
        },
        args.repeats,
    )
    size = f"{len(queries):,} queries x {len(papers):,} papers x {papers.shape[1]}"
    print(
        f"search: best {args.depth} of {size}: {taken['search']:.2f} s, "
        f"product alone {taken['product']:.2f} s; "
        f"{taken['product'] / taken['search']:.0%} of the speed of the product"
    )

    found = search_exact(queries, papers, args.depth, opened.citing[contexts]).papers
    sets = WordSets(opened)
    few = contexts[: args.set_queries]
    index: dict[str, np.ndarray] = {}

    def sparse() -> None:
        index["sparse"] = sets.jaccard(sets.queries(contexts), found)

    stems = sets._stem_of  # the same stems for both

    def of(*tokens: np.ndarray) -> set[int]:
        return {stem for part in tokens for stem in stems[part].tolist() if stem >= 0}

    paper_sets = {
        row: of(opened.title_tokens[row], opened.abstract_tokens[row])
        for row in np.unique(found[: len(few)]).tolist()
        if row >= 0
    }

    def python() -> None:
        rows = []
        for context, ranked in zip(few.tolist(), found[: len(few)].tolist(), strict=True):
            citing = int(opened.citing[context])
            query = of(
                opened.title_tokens[citing], opened.abstract_tokens[citing], opened.context_tokens[context]
            )
            rows.append(
                [
                    len(query & paper_sets[row]) / max(len(query | paper_sets[row]), 1) if row >= 0 else 0.0
                    for row in ranked
                ]
            )
        index["python"] = np.array(rows)

    taken = median_seconds(args, {"sparse": sparse, "python": python}, args.repeats)
    np.testing.assert_allclose(index["sparse"][: len(few)], index["python"], rtol=1e-5)
    rate = {"sparse": found.size / taken["sparse"], "python": found[: len(few)].size / taken["python"]}
    print(
        f"Jaccard: {rate['sparse']:,.0f} pairs/s by sparse matrices, {rate['python']:,.0f} by Python sets "
        f"(same values); {rate['sparse'] / rate['python']:.1f} times"
    )


if __name__ == "__main__":
    main()
