"""Back ends that score batches of pairs: torch, or ONNX Runtime with 8-bit weights on CPUs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from citerec.base.errors import InputError
from citerec.base.files import cache_folder
from citerec.datasets.columns import chunks
from citerec.rerank.cross_encoder.network import CrossEncoder, is_bert
from citerec.rerank.cross_encoder.pairs import TokenPairs
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.arrays import Floats, Rows
from citerec.retrieval.encoders.adapters import is_adapted
from citerec.retrieval.encoders.nets import (
    find_device,
    fitting_tokens,
    one_behind,
    precision,
    to_device,
    transformer_bytes,
    weights_to_numpy,
)
from citerec.retrieval.networks.graph import BITS, LARGE, Bert, Head, write_graph
from citerec.retrieval.networks.session import Input, Network

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 4096
"""Padded tokens of a batch on a CPU."""


def batches(lengths: Rows, tokens: int) -> Iterator[Rows]:
    """Yield rows of lengths [N] in batches of at most `tokens` tokens after padding, longest rows first.

    >>> [batch.tolist() for batch in batches(np.array([8, 30, 7, 31]), 64)]
    [[3, 1], [0, 2]]
    """
    order = np.argsort(-lengths, kind="stable")
    for part in chunks(lengths[order], tokens):
        yield order[part]


def open_backend(model: CrossEncoder, scoring: ScoringSettings, identity: str) -> TorchBackend | OnnxBackend:
    """Open the back end of a precision; InputError if it does not support the model.

    identity: hash of the model, as a key for the cache.
    """
    wanted = scoring.precision
    if wanted == "fastest":
        wanted = "int8" if has_graph(model.model) and not torch.cuda.is_available() else "auto"
    if wanted == "int8":
        return OnnxBackend(model, scoring.threads, identity)
    return TorchBackend(model, wanted, scoring.threads)


class TorchBackend:
    """Runs the network in torch, with weights in the precision of the computation.

    arithmetic: all that scores depend on besides the model. tokens: padded tokens of a batch, unless given.
    """

    def __init__(self, model: CrossEncoder, arithmetic: str, threads: int = 0) -> None:
        """arithmetic: auto, float32 or bfloat16. threads: 0 keeps torch's setting."""
        self._device = device = find_device()
        dtype = precision(arithmetic, device)
        if threads:
            torch.set_num_threads(threads)
        model.precision = dtype
        model.to(device, dtype)
        self.arithmetic = f"torch {device} {dtype}"
        self.tokens = fitting_tokens(device, transformer_bytes(model.model, training=False), TOKENS)
        self._model = model

    def scores(self, pairs: TokenPairs, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Floats]]:
        """Yield the rows [B] and scores [B] of each batch in `parts`, scored with all threads."""

        def score(rows: Rows) -> tuple[Rows, Tensor]:
            with torch.inference_mode():
                return rows, self._model.scores(self._model(*to_device(pairs.padded(rows), self._device)))

        for rows, scores in one_behind(map(score, parts)):
            yield rows, scores.cpu().numpy()


def has_graph(bert: PreTrainedModel) -> bool:
    """Whether the network can be written as a graph (retrieval.networks.graph)."""
    return is_bert(bert) and not is_adapted(bert) and bert.config.hidden_act == "gelu"


def bert_graph(bert: PreTrainedModel, name: str, scored: CrossEncoder | None = None) -> Bert:
    """The weights of a BERT, in float32, for its graph; scored: the cross-encoder that it is part of.

    InputError with its name for another model.
    """
    if not has_graph(bert):
        kind = f"{type(bert).__name__} with {bert.config.hidden_act}"
        raise InputError(f"{name}: supports only BERT, and this model is a {kind}")
    head = None
    if scored is not None:
        weights = weights_to_numpy(scored.score.float())
        head = Head(weights["weight"][0], float(weights["bias"][0]), relu=scored.head == "sigmoid")
    config = bert.config
    return Bert(weights_to_numpy(bert.float()), config.num_attention_heads, config.layer_norm_eps, head)


class OnnxBackend:
    """Runs the network in ONNX Runtime, pair by pair, each on one thread; otherwise like TorchBackend."""

    def __init__(self, model: CrossEncoder, threads: int, identity: str) -> None:
        """threads: 0 means as many as torch uses. identity: hash of the model.

        The graph is written into the cache, once per model. Raises InputError for another model than a BERT.
        """
        bert = bert_graph(model.model, "scoring.precision=int8", model)
        self.arithmetic, self.tokens = "onnxruntime int8", TOKENS
        self._model, self._threads = model, threads or torch.get_num_threads()
        content = f"{identity} {BITS} {LARGE}".encode()
        path = cache_folder() / "onnx" / f"{hashlib.blake2b(content, digest_size=12).hexdigest()}.onnx"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_graph(bert, path)
        self._network = Network(path)

    def scores(self, pairs: TokenPairs, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Floats]]:
        """Score the pairs of each batch in parallel."""
        with ThreadPoolExecutor(self._threads) as pool:
            for rows in parts:
                inputs: list[Input] = []
                for row in rows.tolist():
                    ids, types, _ = pairs.padded(np.array([row]))  # alone, it is not padded
                    inputs.append((ids[0].tolist(), types[0].tolist()))
                logits = self._network.map(inputs, lambda _, logit: float(logit), pool=pool)
                yield rows, self._model.scores(torch.tensor(logits, dtype=torch.float32)).numpy()
