"""Pairs that a cross-encoder scores a second, beside sentence-transformers' CrossEncoder.

All score the same pairs in the reference's format of 512 tokens, new ones in each round, in rounds that take
turns. Quality by precision is what `python -m evaluation.compare` says of two evaluations.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._common import Peer, arguments, begin, corpus, seconds
from datasets.corpus import Corpus
from datasets.records import TARGET_MARKER
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import CIT, SEP, PairReader
from rerank.reranker import Reranker
from rerank.settings import PairSettings, ScoringSettings
from retrieval.settings import ArticleConfig

PEER = """
import json, sys, time, torch
from sentence_transformers import CrossEncoder
task = json.loads(sys.stdin.readline())
torch.set_num_threads(task["threads"])
clock = time.perf_counter if task["clock"] == "wall" else time.process_time
model = CrossEncoder(task["model"], device="cpu", max_length=task["max_tokens"])
for line in sys.stdin:
    pairs, start = json.loads(line), clock()
    scores = model.predict(pairs, batch_size=32, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    print(json.dumps([clock() - start, scores.tolist()]), flush=True)
"""
PEER_NAME = "sentence-transformers, float32"
WAYS = {
    "torch, float32": ScoringSettings("torch", "float32"),
    "torch, bfloat16": ScoringSettings("torch", "bfloat16"),
    "torch, bfloat16, compiled": ScoringSettings("torch", "bfloat16", compile=True),
    "OpenVINO, bfloat16": ScoringSettings("openvino", "bfloat16"),
    "OpenVINO, int8": ScoringSettings("openvino", "int8"),
}
"""Values of --ways; the compiled one, which takes minutes to begin with, only when named."""
SMALL = 2.0**-10
Rows = tuple[NDArray[np.int64], NDArray[np.int64]]


def opened_model(folder: Path | None) -> CrossEncoder:
    """A trained model, or MiniLM with a random head, which takes as long."""
    if folder is not None:
        return CrossEncoder.from_pretrained(folder)
    return CrossEncoder.pretrained(ArticleConfig("minilm"), PairSettings(), "linear").eval()


def text_pair(opened: Corpus, context: int, paper: int, config: PairSettings) -> tuple[str, str]:
    """A pair as the reference writes it."""
    citing = int(opened.citing[context])
    words = f"{opened.titles[citing]} {opened.abstracts[citing]}".split()[: config.citing_words]
    passage = opened.context_texts[context].replace(TARGET_MARKER, CIT)
    return f"{' '.join(words)} {SEP} {passage}", f"{opened.titles[paper]} {opened.abstracts[paper]}"


def drawn(args: argparse.Namespace, opened: Corpus, model: CrossEncoder, config: PairSettings) -> list[Rows]:
    """Contexts and papers of the pairs of each round, the first of which warms up.

    Pairs in which the peer's truncation cuts off the mark are left out, because ours keeps it.
    """
    random, mark = np.random.default_rng(0), model.tokenizer.convert_tokens_to_ids(CIT)
    candidates, found = np.flatnonzero(opened.is_candidate), []
    for context in np.repeat(random.permutation(opened.split("test").contexts), 16).tolist():
        row = context, int(random.choice(candidates))
        texts = text_pair(opened, *row, config)
        if mark in model.tokenizer(*texts, truncation=True, max_length=config.max_tokens)["input_ids"]:
            found.append(row)
        if len(found) == (args.rounds + 1) * args.pairs:
            break
    return [(part[:, 0], part[:, 1]) for part in np.array_split(np.array(found), args.rounds + 1)]


def save_classifier(model: CrossEncoder, folder: str) -> None:
    """The same weights as BERT for classification.

    Its head is linear(tanh(linear(CLS))): a small factor before the tanh, and its inverse behind it, make
    that linear.
    """
    from transformers import BertConfig, BertForSequenceClassification

    if model.head != "linear":
        raise SystemExit("--reranker: the peer takes models with model.head=linear only")
    peer = BertForSequenceClassification(
        BertConfig.from_dict(model.model.config.to_dict() | {"num_labels": 1})
    )
    peer.bert.load_state_dict(model.model.state_dict(), strict=False)
    pooler: Any = peer.bert.pooler
    with torch.no_grad():
        pooler.dense.weight.copy_(SMALL * torch.eye(peer.config.hidden_size))
        pooler.dense.bias.zero_()
        peer.classifier.weight.copy_(model.score.weight / SMALL)
        peer.classifier.bias.copy_(model.score.bias)
    peer.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--reranker", type=Path, default=None, help="a folder; else MiniLM, not trained")
    parser.add_argument("--peer-python", default=None, help="a Python with sentence_transformers")
    parser.add_argument("--pairs", type=int, default=96, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    default = [name for name, way in WAYS.items() if not way.compile]
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=default)
    args = parser.parse_args()
    begin(args)
    opened, model = corpus(args), opened_model(args.reranker)
    config = replace(PairSettings.reference(), citing_words=90)  # with 179 most pairs lose the mark
    rounds, ways = drawn(args, opened, model, config), {}
    for name in args.ways:
        own = opened_model(args.reranker)
        own.config = config
        ways[name] = Reranker(own, WAYS[name])
    names = ([PEER_NAME] if args.peer_python else []) + list(ways)
    taken: dict[str, list[float]] = {name: [] for name in names}
    scores: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        peer = None
        if args.peer_python:
            save_classifier(model, folder)
            task = {"model": folder, "threads": args.threads, "clock": args.clock}
            peer = Peer(args.peer_python, PEER, task | {"max_tokens": config.max_tokens})
        for turn, (contexts, papers) in enumerate(rounds):
            most = 8 if turn == 0 else None
            contexts, papers = contexts[:most], papers[:most]
            if peer is not None:
                listed = zip(contexts.tolist(), papers.tolist(), strict=True)
                spent, found = peer([text_pair(opened, *row, config) for row in listed])
                taken[PEER_NAME].append(spent)
                scores[PEER_NAME].append(np.array(found, np.float32))
            for name, reranker in ways.items():
                out = scores[name]
                work = lambda: out.append(reranker.score(opened, contexts, papers))  # noqa: B023, E731
                taken[name].append(seconds(args, work))
        if peer is not None:
            peer.end()
    reader = PairReader(opened, model.tokenizer, config)
    lengths = np.concatenate([reader.pairs(*rows).lengths for rows in rounds[1:]])
    first, exact = names[0], np.concatenate(scores[names[0]][1:])
    print(
        f"{args.rounds} rounds of {args.pairs} pairs of {lengths.mean():.0f} tokens; scores deviate by "
        f"{exact.std():.1e}\n{'':32} pairs/s, times the first (worst to best round), median score difference"
    )
    for name, times in taken.items():
        ratios = [one / other for one, other in zip(taken[first][1:], times[1:], strict=True)]
        apart = np.median(np.abs(np.concatenate(scores[name][1:]) - exact))
        rate = args.pairs * args.rounds / sum(times[1:])
        print(
            f"{name:32} {rate:6.1f} {statistics.median(ratios):6.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}) {apart:.1e}"
        )


if __name__ == "__main__":
    main()
