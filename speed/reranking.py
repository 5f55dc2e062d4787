"""Pairs scored per second by cross-encoders, compared with sentence-transformers' CrossEncoder if installed.

Each round scores the candidates of one query, as in a cascade; all encoders score the same rounds. To measure
what a student or a precision costs in quality, compare evaluations with `citerec compare`. To
emulate a CPU without AVX-512 for torch: ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2
MKL_ENABLE_INSTRUCTIONS=AVX2.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import PairReader
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.settings import PairSettings, ScoringSettings
from citerec.retrieval.settings import ArticleConfig
from citerec.speed._common import load_corpus, make_parser, setup, time_call

PEER = "sentence-transformers, float32"
WAYS = {
    "torch, float32": ScoringSettings("float32"),
    "torch, bfloat16": ScoringSettings("bfloat16"),
    "ONNX Runtime, int8": ScoringSettings("int8"),
}
"""Values of --ways. Those in bfloat16 run only when named: they need hardware support, and compilation takes
minutes."""
SMALL = 2.0**-10
Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
Score = Callable[[int], NDArray[np.float32]]
"""Scores the pairs of a round."""


def load_model(folder: Path | None, tokens: int | None) -> CrossEncoder:
    """Load a trained model, or MiniLM with a random head.

    tokens: maximum tokens of a pair; None: as in training, or 128.
    """
    if folder is None:
        return CrossEncoder.pretrained(ArticleConfig("minilm"), PairSettings(tokens or 128), "linear").eval()
    model = CrossEncoder.open(folder)
    model.config = model.config if tokens is None else PairSettings(tokens)
    return model


def sample_pairs(args: argparse.Namespace, corpus: Corpus) -> list[Rows]:
    """Sample the contexts and papers of the pairs of each round; the first round is a warm-up."""
    random, candidates = np.random.default_rng(0), np.flatnonzero(corpus.is_candidate)
    contexts = random.permutation(corpus.split("test").contexts)[: args.rounds + 1]
    papers = random.choice(candidates, (len(contexts), args.pairs))
    return [(np.repeat(one, args.pairs), row) for one, row in zip(contexts, papers, strict=True)]


def decode_pairs(reader: PairReader, tokenizer: Any, rows: Rows) -> list[tuple[str, str]]:
    """Return pairs as two texts each, truncated like ours, so that the peer need not truncate."""
    frame, pairs, found = reader.subwords, reader.pairs(*rows), []
    for row in range(len(pairs)):
        (ids,), (types,), _ = pairs.padded(np.array([row]))
        second = int(types.argmax())
        parts = (
            ids[len(frame.before) : second - len(frame.between)],
            ids[second : len(ids) - len(frame.after)],
        )
        found.append((tokenizer.decode(parts[0]), tokenizer.decode(parts[1])))
    return found


def save_classifier(model: CrossEncoder, folder: str) -> None:
    """Save the same weights as BertForSequenceClassification.

    Its head is linear(tanh(linear(CLS))); a small factor before the tanh and its inverse afterwards make it
    linear.
    """
    from transformers import BertConfig, BertForSequenceClassification

    if model.head != "linear":
        raise SystemExit("--rerankers: the peer supports only models with model.head=linear")
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


def peer_score(model: CrossEncoder, reader: PairReader, rounds: list[Rows], folder: str) -> Score:
    """Return the peer's function; its model, with the same weights, is saved to `folder`."""
    from sentence_transformers import CrossEncoder as Peer

    save_classifier(model, folder)
    peer = Peer(folder, device="cpu", max_length=model.config.max_tokens)
    texts = [decode_pairs(reader, model.tokenizer, rows) for rows in rounds]
    options: dict[str, Any] = {"activation_fn": torch.nn.Identity(), "show_progress_bar": False}
    return lambda i: np.asarray(peer.predict(texts[i], batch_size=32, **options), np.float32)


def our_scores(
    args: argparse.Namespace, corpus: Corpus, rounds: list[Rows], ways: Mapping[str, ScoringSettings]
) -> dict[str, Score]:
    """Return the function of each cross-encoder and way."""

    def scorer(reranker: Reranker) -> Score:
        return lambda i: reranker.score(corpus, *rounds[i])

    found = {}
    for folder in args.rerankers:
        for name, way in ways.items():
            model = load_model(folder, args.tokens)
            layers = model.model.config.num_hidden_layers
            found[f"{layers} layers, {name}"] = scorer(Reranker(model, replace(way, threads=args.threads)))
    return found


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rerankers", type=Path, nargs="+", default=[None], help="default: untrained MiniLM")
    parser.add_argument("--tokens", type=int, default=None, help="tokens per pair; default: as in training")
    parser.add_argument("--pairs", type=int, default=50, help="pairs per round")
    parser.add_argument("--rounds", type=int, default=5)
    default = [name for name in WAYS if "bfloat16" not in name]
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=default)
    args = parser.parse_args()
    setup(args)
    corpus, model = load_corpus(args), load_model(args.rerankers[0], args.tokens)
    reader = PairReader(corpus, model.tokenizer, model.config)
    rounds, calls = sample_pairs(args, corpus), dict[str, Score]()
    with tempfile.TemporaryDirectory() as folder:
        if find_spec("sentence_transformers") is None:
            print("left out: sentence-transformers, which is not installed")
        else:
            calls[PEER] = peer_score(model, reader, rounds, folder)
        calls |= our_scores(args, corpus, rounds, {name: WAYS[name] for name in args.ways})
        times_of: dict[str, list[float]] = {name: [] for name in calls}
        scores: dict[str, list[NDArray[np.float32]]] = {name: [] for name in calls}
        for i in range(len(rounds)):
            for name, call in calls.items():
                work = lambda: scores[name].append(call(i))  # noqa: B023, E731
                times_of[name].append(time_call(args, work))
    names = list(calls)
    lengths = np.concatenate([reader.pairs(*rows).lengths for rows in rounds[1:]])
    first, exact = names[0], np.concatenate(scores[names[0]][1:])
    print(
        f"{args.rounds} queries of {args.pairs} pairs of {lengths.mean():.0f} tokens; standard deviation of "
        f"scores {exact.std():.1e}\n{'':42} pairs/s, s/query, times the first (worst to best round), median "
        "score difference"
    )
    for name, times in times_of.items():
        ratios = [one / other for one, other in zip(times_of[first][1:], times[1:], strict=True)]
        apart = np.median(np.abs(np.concatenate(scores[name][1:]) - exact))
        once = sum(times[1:]) / args.rounds
        print(
            f"{name:42} {args.pairs / once:6.1f} {once:6.2f} {statistics.median(ratios):6.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}) {apart:.1e}"
        )


if __name__ == "__main__":
    main()
