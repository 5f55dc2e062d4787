"""BM25 against bm25s called directly with its own tokeniser: papers indexed and queries a second."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import bm25s
import numpy as np
import Stemmer

from benchmarks._common import Works, arguments, begin, corpus, median_seconds, seconds
from retrieval.bm25 import BM25
from retrieval.terms import query_texts

FIELDS = (("context", "title"), ("context", "title", "abstract"))
DEPTHS = (100, 2000)


def tokens(texts: list[str]) -> Any:
    return bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)


def retrieve(peer: bm25s.BM25, texts: list[str], k: int, threads: int = 0) -> Any:
    return peer.retrieve(tokens(texts), k=k, show_progress=False, n_threads=threads).documents


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--queries", type=int, default=500)
    args = parser.parse_args()
    begin(args)
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    opened = corpus(args)
    contexts = np.random.default_rng(0).permutation(opened.split("test").contexts)[: args.queries]
    rows = np.flatnonzero(opened.is_candidate)
    papers = [f"{opened.titles[row]} {opened.abstracts[row]}" for row in rows.tolist()]
    for backend in ("numpy", "numba"):
        peer = bm25s.BM25(k1=1.2, b=0.75, backend=backend)
        direct = seconds(args, lambda peer=peer: peer.index(tokens(papers), show_progress=False))  # type: ignore[misc]
        for fields in FIELDS:
            ours = BM25(k1=1.2, b=0.75, backend=backend, threads=args.threads, query=fields)
            own = seconds(args, lambda ours=ours: ours.index(opened))  # type: ignore[misc]
            if fields is FIELDS[0]:
                print(
                    f"{backend}: indexed {len(papers) / own:,.0f} papers/s from counted words, bm25s "
                    f"{len(papers) / direct:,.0f} from texts; {direct / own:.1f} times"
                )
            texts, threads = (
                list(query_texts(opened, contexts, fields)),
                args.threads if args.threads > 1 else 0,
            )
            for k in DEPTHS:
                works: Works = {
                    "ours": partial(ours.search, contexts, k),
                    "peer": partial(retrieve, peer, texts, k, threads),
                }
                taken = median_seconds(args, works)
                rates = {name: len(texts) / spent for name, spent in taken.items()}
                print(
                    f"  {', '.join(fields)}, {k} papers: {rates['ours']:,.0f} queries/s, bm25s "
                    f"{rates['peer']:,.0f}; {rates['ours'] / rates['peer']:.2f} times"
                )
            own_papers = ours.search(contexts, 10).papers
            theirs = rows[retrieve(peer, texts, 11)]
            citing = opened.citing[contexts]
            pairs = zip(own_papers, theirs, citing, strict=True)
            shared = sum(len(np.intersect1d(a, b[b != paper][:10])) for a, b, paper in pairs)
            print(f"  {shared / own_papers.size:.0%} of the first ten papers are the same")


if __name__ == "__main__":
    main()
