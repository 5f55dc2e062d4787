"""The ranker: all features of 500 candidates of one query, against one BM25 score of each by rank_bm25.

Queries are asked one at a time, as a person asks; word vectors are random, which takes the same time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import rank_bm25

from benchmarks._common import Works, arguments, begin, corpus, median_seconds, random_vectors, seconds
from hatten.nnselect import AverageRetriever
from hatten.words import WordVectors
from rerank.ranker import HOME, Ranker, RankingModel, Weights
from retrieval.bm25 import BM25
from retrieval.queries import Queries
from retrieval.terms import query_texts


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(threads=1)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--candidates", type=int, default=500)
    args = parser.parse_args()
    begin(args)
    opened = corpus(args)
    vocabulary, table = random_vectors(opened)

    def vectors(corpus: Any) -> WordVectors:
        return WordVectors(vocabulary.words[1:], table[1:], "random")

    parts = {
        "dense": AverageRetriever(vectors),
        "bm25": BM25(backend="numba"),
        "bm25_contexts": BM25(contexts=100, k1=2.0, b=0.5, backend="numba"),
    }
    ranker = Ranker(RankingModel({HOME: Weights({"bm25.score": 1.0})}), parts)
    print(
        f"indexed in {seconds(args, lambda: ranker.index(opened)):.1f} s, {ranker.index_bytes / 1e6:,.0f} MB"
    )
    contexts = np.random.default_rng(0).permutation(opened.split("test").contexts)[: args.queries]
    asked = Queries.of(opened, contexts)
    queries = [asked[np.array([row])] for row in range(len(asked))]
    found = parts["bm25"].search(asked, args.candidates).papers
    pool = [np.where(row >= 0, row, row[0])[None] for row in found]

    rows = np.flatnonzero(opened.is_candidate)
    peer = rank_bm25.BM25Okapi(
        [f"{opened.titles[row]} {opened.abstracts[row]}".lower().split() for row in rows]
    )
    place = np.searchsorted(rows, np.concatenate(pool))
    texts = [text.lower().split() for text in query_texts(opened, contexts, ("context", "title"))]
    works: Works = {
        "features": lambda: [ranker.scored(*pair) for pair in zip(queries, pool, strict=True)],
        "peer": lambda: [
            peer.get_batch_scores(text, ids) for text, ids in zip(texts, place.tolist(), strict=True)
        ],
        "search": lambda: [ranker.search(query, 10) for query in queries],
    }
    taken = {name: 1000 * spent / len(queries) for name, spent in median_seconds(args, works).items()}
    columns = len(ranker.columns(queries[0], pool[0]))
    print(
        f"{columns} features of {args.candidates} candidates, and their sum: {taken['features']:.1f} ms a "
        f"query; rank_bm25's score alone {taken['peer']:.1f} ms; "
        f"{taken['peer'] / taken['features']:.2f} times; "
        f"prefetching and ranking {taken['search']:.1f} ms a query"
    )


if __name__ == "__main__":
    main()
