"""Test helpers: random models, documents from word ids, hostile pickles, recall on the demo corpus."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged
from citerec.datasets.generate import open_demo
from citerec.hatten.documents import ABSENT_TYPE, ABSTRACT, CONTEXT, NEAR, TITLE, Documents, Vocabulary
from citerec.hatten.model import HAtten, build_encoder
from citerec.hatten.settings import EncoderConfig
from citerec.hatten.training.batches import Batches
from citerec.retrieval.base import Retriever


def unit(rows: int, seed: int) -> NDArray[np.float32]:
    """Return random unit vectors [rows, 6]."""
    vectors = np.random.default_rng(seed).standard_normal((rows, 6)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def random_model(words: Sequence[str], about: dict[str, Any] | None = None, **options: Any) -> HAtten:
    """Return a HAtten model over these words; options: fields of EncoderConfig."""
    config = EncoderConfig(**{"dim": 8, "heads": 2, "hidden": 6, "max_tokens": 16, **options})
    vocabulary, random = Vocabulary(words), np.random.default_rng(0)
    table = random.standard_normal((len(vocabulary), config.dim)).astype(np.float32)
    encoder = build_encoder(config, table, vocabulary)
    with torch.no_grad():
        for weight in encoder.parameters():
            noise = random.standard_normal(tuple(weight.shape)).astype(np.float32)
            weight.add_(torch.from_numpy(noise) * 0.2)
    return HAtten(encoder.eval(), vocabulary, about or {})


def documents(rows: list[list[list[int]]]) -> Documents:
    """Build documents from word ids of title, abstract and, optionally, context and words near the marker.

    Empty paragraphs are absent.
    """
    shape = len(rows), max([3, *map(len, rows)])
    index, types = np.full(shape, -1), np.full(shape, ABSENT_TYPE)
    paragraphs: list[list[int]] = []
    for i, row in enumerate(rows):
        for j, paragraph in enumerate(row):
            if paragraph:
                index[i, j], types[i, j] = len(paragraphs), (TITLE, ABSTRACT, CONTEXT, NEAR)[j]
                paragraphs.append(paragraph)
    return Documents(Ragged.from_rows(paragraphs), index, types)


class Evil:
    """Pickles to a call of `function`."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def measured_recall(retriever: Retriever, demo: dict[str, Any]) -> float:
    """Compute R@10 on the validation queries of a training on the demo corpus."""
    corpus = open_demo(papers=200, contexts=600, cache_dir=demo["data.cache_dir"])
    retriever.index(corpus)
    split = corpus.split("val")
    rows = np.sort(np.random.default_rng((0, 2)).permutation(len(split))[:50])
    result = retriever.search(split.contexts[rows], 10).papers
    pairs = zip(rows, result, strict=True)
    return float(np.mean([bool(set(split.positives[row].tolist()) & set(papers)) for row, papers in pairs]))


def read_all(pickled: bytes) -> tuple[int, int, int]:
    """Read all batches; return the traced memory in bytes, its peak, and the number of words read.

    Runs in a process of its own, which must be able to import it.
    """
    tracemalloc.start()
    of_round: Batches = pickle.loads(pickled)
    words = 0
    for step in range(len(of_round)):
        batch = of_round[step]
        words += len(batch.queries.paragraphs.values) + len(batch.cited.paragraphs.values)
    return *tracemalloc.get_traced_memory(), words
