"""Pairs that a cross-encoder scores in a second, beside sentence-transformers' CrossEncoder; what int8 costs.

Speed is measured with the reference's pairs of 512 tokens, the same for all, in rounds that take turns. With
--queries N, R@10 of N queries is measured in each precision with the model's own pairs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._common import arguments, begin, corpus, seconds
from benchmarks._cross_encoder import Peer, texts
from datasets.corpus import Corpus, Split
from datasets.progress import counting
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import CIT, PairReader
from rerank.reranker import Reranker
from rerank.settings import PairSettings, ScoringSettings
from retrieval.bm25 import BM25
from retrieval.settings import ArticleConfig

PEER_NAME = "sentence-transformers, float32"
WAYS = {
    "torch, float32": ScoringSettings("torch", "float32"),
    "torch, bfloat16": ScoringSettings("torch", "bfloat16"),
    "torch, bfloat16, compiled": ScoringSettings("torch", "bfloat16", compile=True),
    "OpenVINO, bfloat16": ScoringSettings("openvino", "bfloat16"),
    "OpenVINO, int8": ScoringSettings("openvino", "int8"),
}
"""Those of the command line, and all but the compiled one by default, which takes minutes to begin with."""

EXACT = "torch, float32"
PER_QUERY = 16
"""Pairs with the same query."""
CITING = 90
"""Words of the citing text; with 179, the reference's truncation takes the mark from most of these pairs."""

Scores = NDArray[np.float32]
Rows = tuple[NDArray[np.int64], NDArray[np.int64]]


def opened_model(folder: Path | None) -> CrossEncoder:
    """A trained model, or MiniLM with a random head, which takes as long."""
    if folder is not None:
        return CrossEncoder.load(folder)
    return CrossEncoder.pretrained(ArticleConfig("minilm"), PairSettings(), "linear").eval()


def rerankers(args: argparse.Namespace, config: PairSettings | None = None) -> dict[str, Reranker]:
    found = {}
    for name, scoring in WAYS.items():
        if name in args.ways:
            model = opened_model(args.reranker)
            model.config = config or model.config
            found[name] = Reranker(model, scoring)
    return found


def asked(
    args: argparse.Namespace, opened: Corpus, queries: int, depth: int
) -> tuple[Split, NDArray[np.int32]]:
    """A sample of test queries, and the papers that BM25 finds for them [Q, depth]."""
    split = opened.split("test")
    rows = np.sort(
        np.random.default_rng(args.seed).choice(len(split), min(queries, len(split)), replace=False)
    )
    retriever = BM25(threads=args.threads)
    retriever.index(opened)
    chosen = Split(split.name, split.contexts[rows], split.positives.take(rows))
    return chosen, retriever.search(chosen.contexts, depth).papers


def drawn(args: argparse.Namespace, opened: Corpus, model: CrossEncoder, config: PairSettings) -> list[Rows]:
    """For each round, the first of which warms up, contexts and papers of so many pairs.

    Those from which the peer's truncation takes the mark are left out, because ours keeps it.
    """
    random = np.random.default_rng(args.seed)
    contexts = np.repeat(random.permutation(opened.split("test").contexts), PER_QUERY)
    candidates, mark = np.flatnonzero(opened.is_candidate), model.tokenizer.convert_tokens_to_ids(CIT)
    found: list[tuple[int, int]] = []
    for context in contexts.tolist():
        row = context, int(random.choice(candidates))
        read = model.tokenizer(*texts(opened, *row, config), truncation=True, max_length=config.max_tokens)
        if mark in read["input_ids"]:
            found.append(row)
        if len(found) == (args.rounds + 1) * args.pairs:
            break
    parts = np.array_split(np.array(found), args.rounds + 1)
    return [(part[:, 0], part[:, 1]) for part in parts]


def speed(args: argparse.Namespace, opened: Corpus) -> None:
    config = replace(PairSettings.reference(), citing_words=CITING)
    ways, model = rerankers(args, config), opened_model(args.reranker)
    reader = PairReader(opened, model.tokenizer, config)
    rounds = drawn(args, opened, model, config)
    taken: dict[str, list[float]] = {
        name: [] for name in ([PEER_NAME] if args.peer_python else []) + list(ways)
    }
    scores: dict[str, list[Scores]] = {name: [] for name in taken}
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(args, model, config, folder) if args.peer_python else None
        for turn, rows in enumerate(rounds):  # new pairs in each, so that nothing is tokenised before
            if peer is not None:
                listed = zip(rows[0].tolist(), rows[1].tolist(), strict=True)
                pairs = [texts(opened, context, paper, config) for context, paper in listed]
                time, found = peer(pairs[:8] if turn == 0 else pairs)
                taken[PEER_NAME].append(time)
                scores[PEER_NAME].append(found)
            for name, reranker in ways.items():
                some = (rows[0][:8], rows[1][:8]) if turn == 0 else rows
                out: list[Scores] = []
                taken[name].append(seconds(args, scored(reranker, opened, some, out)))
                scores[name] += out
        if peer is not None:
            peer.end()
    lengths = np.concatenate([reader.pairs(*rows).lengths for rows in rounds[1:]])
    print(
        f"{args.rounds} rounds of {args.pairs} pairs of {lengths.mean():.0f} tokens; "
        "speed beside the first, in each round, and how far scores are from its scores"
    )
    first = next(iter(taken))
    exact = np.concatenate(scores[first][1:])
    for name, times in taken.items():
        ratios = [one / other for one, other in zip(taken[first][1:], times[1:], strict=True)]
        apart = np.abs(np.concatenate(scores[name][1:]) - exact)
        rate = args.pairs * args.rounds / sum(times[1:])
        print(
            f"{name:32} {rate:6.1f} pairs/s, {statistics.median(ratios):5.2f} times ({min(ratios):.2f} to "
            f"{max(ratios):.2f}); apart {np.median(apart):.1e}, at most {apart.max():.1e}"
        )
    print(f"standard deviation of the scores: {exact.std():.1e}")


def scored(reranker: Reranker, opened: Corpus, rows: Rows, out: list[Scores]) -> Callable[[], None]:
    return lambda: out.append(reranker.score(opened, *rows))


def quality(args: argparse.Namespace, opened: Corpus) -> None:
    queries, papers = asked(args, opened, args.queries, args.candidates)
    there = papers >= 0
    contexts = np.repeat(queries.contexts, there.sum(1))
    wanted = [set(row.tolist()) for row in queries.positives]
    hits: dict[str, NDArray[np.float64]] = {"BM25 alone": recalls(papers, wanted)}
    for name, reranker in rerankers(args).items():
        found = np.full(papers.shape, -np.inf, np.float32)
        with counting(f"pairs, {name}", len(contexts)) as advance:
            found[there] = reranker.score(opened, contexts, papers[there].astype(np.int64), advance)
        order = np.argsort(-found, axis=1, kind="stable")
        hits[name] = recalls(np.take_along_axis(papers, order, axis=1), wanted)
    print(f"{len(queries):,} queries, {args.candidates} candidates, {int(there.sum()):,} pairs")
    for name, values in hits.items():
        change = values - hits.get(EXACT, values)
        error = change.std() / len(change) ** 0.5
        print(
            f"{name:32} R@10 {values.mean():.4f}, {change.mean():+.4f} (standard error {error:.4f}) or "
            f"{change.mean() / hits.get(EXACT, values).mean():+.2%} of {EXACT}'s; better for "
            f"{(change > 0).sum()} queries, worse for {(change < 0).sum()}"
        )


def recalls(papers: NDArray[np.int32], wanted: list[set[int]]) -> NDArray[np.float64]:
    """R@10 of each query [Q]."""
    return np.array([len(w & set(row[:10].tolist())) / len(w) for row, w in zip(papers, wanted, strict=True)])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--reranker", type=Path, default=None, help="a folder; MiniLM, not trained, without")
    parser.add_argument("--peer-python", default=None, help="a Python that has sentence_transformers")
    parser.add_argument("--pairs", type=int, default=96, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="of the peer")
    parser.add_argument("--queries", type=int, default=0, help="of which R@10 is measured")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=[name for name, way in WAYS.items() if not way.compile]
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begin(args)
    opened = corpus(args)
    if args.rounds:
        speed(args, opened)
    if args.queries:
        quality(args, opened)


if __name__ == "__main__":
    main()
