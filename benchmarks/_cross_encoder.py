"""sentence-transformers' CrossEncoder with the weights of one of ours, in its own environment."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.records import TARGET_MARKER
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import CIT, SEP
from rerank.settings import PairSettings

PEER = """
import json, sys, time
import torch
from sentence_transformers import CrossEncoder
task = json.loads(sys.stdin.readline())
torch.set_num_threads(task["threads"])
clock = time.perf_counter if task["clock"] == "wall" else time.process_time
model = CrossEncoder(task["model"], device="cpu", max_length=task["max_tokens"])
options = {"batch_size": task["batch"], "activation_fn": torch.nn.Identity(), "show_progress_bar": False}
for line in sys.stdin:
    pairs = json.loads(line)
    start = clock()
    scores = model.predict(pairs, **options)
    print(json.dumps([clock() - start, scores.tolist()]), flush=True)
"""
"""Runs in another environment, and another folder: sentence_transformers needs the other `datasets`."""

SMALL = 2.0**-10


def texts(opened: Corpus, context: int, paper: int, config: PairSettings) -> tuple[str, str]:
    """A pair as the reference writes it."""
    citing = int(opened.citing[context])
    words = f"{opened.titles[citing]} {opened.abstracts[citing]}".split()[: config.citing_words]
    passage = opened.context_texts[context].replace(TARGET_MARKER, CIT)
    return f"{' '.join(words)} {SEP} {passage}", f"{opened.titles[paper]} {opened.abstracts[paper]}"


class Peer:
    """CrossEncoder of another environment, which stays there and answers."""

    def __init__(
        self, args: argparse.Namespace, model: CrossEncoder, config: PairSettings, folder: str
    ) -> None:
        save_classifier(model, folder)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process: Any = subprocess.Popen(
            [args.peer_python, "-c", PEER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )
        task = {"model": folder, "threads": args.threads, "clock": args.clock, "batch": args.batch}
        self._send(task | {"max_tokens": config.max_tokens})

    def _send(self, value: object) -> None:
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def __call__(self, pairs: list[tuple[str, str]]) -> tuple[float, NDArray[np.float32]]:
        self._send(pairs)
        taken, scores = json.loads(self._process.stdout.readline())
        return taken, np.array(scores, np.float32)

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def save_classifier(model: CrossEncoder, folder: str) -> None:
    """The same weights as a BERT for classification.

    Its head is linear(tanh(linear(CLS))): with a small factor on the way in, and its inverse on the way out,
    that is linear(CLS).
    """
    from transformers import BertConfig, BertForSequenceClassification

    if model.head != "linear":
        raise SystemExit("--reranker: only a model with model.head=linear can be given to the peer")
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
