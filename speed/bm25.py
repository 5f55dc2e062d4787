"""BM25 compared with bm25s and its own tokeniser: papers indexed and queries answered per second."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import bm25s
import numpy as np
import Stemmer

from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.lexical.terms import query_texts
from citerec.speed._common import Tasks, load_corpus, make_parser, median_seconds, setup, time_call

FIELDS = (("context", "title"), ("context", "title", "abstract"))
DEPTHS = (100, 2000)


def tokens(texts: list[str]) -> Any:
    return bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)


def retrieve(peer: bm25s.BM25, texts: list[str], k: int, threads: int = 0) -> Any:
    return peer.retrieve(tokens(texts), k=k, show_progress=False, n_threads=threads).documents


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--queries", type=int, default=500)
    args = parser.parse_args()
    setup(args)
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    corpus = load_corpus(args)
    contexts = np.random.default_rng(0).permutation(corpus.split("test").contexts)[: args.queries]
    rows = np.flatnonzero(corpus.is_candidate)
    papers = [f"{corpus.titles[row]} {corpus.abstracts[row]}" for row in rows.tolist()]
    for backend in ("numpy", "numba"):  # of bm25s
        peer = bm25s.BM25(k1=1.2, b=0.75, backend=backend)
        direct = time_call(args, lambda peer=peer: peer.index(tokens(papers), show_progress=False))  # type: ignore[misc]
        for fields in FIELDS:
            ours = BM25(k1=1.2, b=0.75, threads=args.threads, query=fields)
            own = time_call(args, lambda ours=ours: ours.index(corpus))  # type: ignore[misc]
            if fields is FIELDS[0]:
                print(
                    f"{backend}: indexed {len(papers) / own:,.0f} papers/s from counted words, bm25s "
                    f"{len(papers) / direct:,.0f} from texts; {direct / own:.1f} times"
                )
            texts = list(query_texts(corpus, contexts, fields))
            threads = args.threads if args.threads > 1 else 0
            for k in DEPTHS:
                tasks: Tasks = {
                    "ours": partial(ours.search, contexts, k),
                    "peer": partial(retrieve, peer, texts, k, threads),
                }
                rates = {name: len(texts) / time for name, time in median_seconds(args, tasks).items()}
                print(
                    f"  {', '.join(fields)}, {k} papers: {rates['ours']:,.0f} queries/s, bm25s "
                    f"{rates['peer']:,.0f}; {rates['ours'] / rates['peer']:.2f} times"
                )
            our_papers = ours.search(contexts, 10).papers
            theirs = rows[retrieve(peer, texts, 11)]
            citing = corpus.citing[contexts]
            pairs = zip(our_papers, theirs, citing, strict=True)
            shared = sum(len(np.intersect1d(a, b[b != paper][:10])) for a, b, paper in pairs)
            print(f"  {shared / our_papers.size:.0%} of the top ten papers are the same")


if __name__ == "__main__":
    main()
