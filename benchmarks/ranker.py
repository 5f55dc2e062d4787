"""The ranker: computing all features of 500 candidates, compared with only their BM25 scores in rank_bm25.

Queries are answered one at a time, as in interactive use. Random word vectors serve for timing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import rank_bm25

from citerec.benchmarks._common import (
    Tasks,
    load_corpus,
    make_parser,
    median_seconds,
    random_vectors,
    setup,
    time_call,
)
from citerec.hatten.nnselect import AverageRetriever
from citerec.hatten.words import WordVectors
from citerec.rerank.ranker import IN_DOMAIN, LinearModel, Ranker, RankingModel
from citerec.retrieval.bm25 import BM25
from citerec.retrieval.queries import Queries
from citerec.retrieval.terms import query_texts


def main() -> None:
    parser = make_parser(__doc__)
    parser.set_defaults(threads=1)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--candidates", type=int, default=500)
    args = parser.parse_args()
    setup(args)
    corpus = load_corpus(args)
    vocabulary, table = random_vectors(corpus)

    def vectors(corpus: Any) -> WordVectors:
        return WordVectors(vocabulary.words[1:], table[1:], "random")

    parts = {
        "dense": AverageRetriever(vectors),
        "bm25": BM25(),
        "bm25_contexts": BM25(contexts=100, k1=2.0, b=0.5),
    }
    ranker = Ranker(RankingModel({IN_DOMAIN: LinearModel({"bm25.score": 1.0})}), parts)
    indexing = time_call(args, lambda: ranker.index(corpus))
    print(f"indexed in {indexing:.1f} s, {ranker.index_bytes / 1e6:,.0f} MB")
    contexts = np.random.default_rng(0).permutation(corpus.split("test").contexts)[: args.queries]
    batch = Queries.from_contexts(corpus, contexts)
    queries = [batch[np.array([row])] for row in range(len(batch))]
    found = parts["bm25"].search(batch, args.candidates).papers
    pool = [np.where(row >= 0, row, row[0])[None] for row in found]

    rows = np.flatnonzero(corpus.is_candidate)
    peer = rank_bm25.BM25Okapi(
        [f"{corpus.titles[row]} {corpus.abstracts[row]}".lower().split() for row in rows]
    )
    candidates = np.searchsorted(rows, np.concatenate(pool))
    texts = [text.lower().split() for text in query_texts(corpus, contexts, ("context", "title"))]
    tasks: Tasks = {
        "features": lambda: [ranker.score_candidates(*pair) for pair in zip(queries, pool, strict=True)],
        "peer": lambda: [
            peer.get_batch_scores(text, ids) for text, ids in zip(texts, candidates.tolist(), strict=True)
        ],
        "search": lambda: [ranker.search(query, 10) for query in queries],
    }
    times = {name: 1000 * time / len(queries) for name, time in median_seconds(args, tasks).items()}
    columns = len(ranker.columns(queries[0], pool[0]))
    print(
        f"{columns} features of {args.candidates} candidates, and their sum: {times['features']:.1f} ms per "
        f"query; rank_bm25's score alone {times['peer']:.1f} ms; "
        f"{times['peer'] / times['features']:.2f} times; "
        f"prefetching and ranking {times['search']:.1f} ms per query"
    )


if __name__ == "__main__":
    main()
