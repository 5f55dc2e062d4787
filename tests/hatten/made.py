"""Models of random weights and documents of given words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from datasets.columns import Ragged
from hatten.checkpoint import Model
from hatten.documents import ABSENT_TYPE, ABSTRACT, CONTEXT, TITLE, Documents, Vocabulary
from hatten.encoder import build_encoder
from hatten.settings import EncoderConfig


def random_model(words: Sequence[str], about: dict[str, Any] | None = None, **options: Any) -> Model:
    """A HAtten over these words; options: of EncoderConfig."""
    config = EncoderConfig(**{"dim": 8, "heads": 2, "hidden": 6, "max_tokens": 16, **options})
    vocabulary, random = Vocabulary(words), np.random.default_rng(0)
    table = random.standard_normal((len(vocabulary), config.dim)).astype(np.float32)
    encoder = build_encoder(config, table, vocabulary)
    with torch.no_grad():
        for weight in encoder.parameters():
            noise = random.standard_normal(tuple(weight.shape)).astype(np.float32)
            weight.add_(torch.from_numpy(noise) * 0.2)
    return Model(encoder.eval(), vocabulary, about or {})


def documents(rows: list[list[list[int]]]) -> Documents:
    """Word ids of title, abstract and perhaps context of each document; empty ones are absent."""
    index, types = np.full((len(rows), 3), -1), np.full((len(rows), 3), ABSENT_TYPE)
    paragraphs: list[list[int]] = []
    for i, row in enumerate(rows):
        for j, paragraph in enumerate(row):
            if paragraph:
                index[i, j], types[i, j] = len(paragraphs), (TITLE, ABSTRACT, CONTEXT)[j]
                paragraphs.append(paragraph)
    return Documents(Ragged.from_rows(paragraphs), index, types)
