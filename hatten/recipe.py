"""Kinds of encoder to train: what each brings to hatten.train, which does the rest, the same for all.

HAtten (`python train.py model=hatten`) and the static model (`model=static`) are here; hatten.nnselect and
hatten.biencoder have the others, rerank.distil has those that continue a trained encoder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor, nn

from datasets.corpus import Corpus
from datasets.records import TARGET_WORD
from hatten.checkpoint import saver
from hatten.documents import DocumentReader, Documents, Vocabulary
from hatten.encoder import Encoder, build_encoder
from hatten.layers import MeanPath
from hatten.means import MeanEncoder
from hatten.settings import HAttenSettings, MinedTraining, StaticSettings
from hatten.static import FILE, FOLDER, StaticModel, save_static
from hatten.words import inverse_document_frequency, starting_words
from retrieval.nets import precision
from retrieval.vectors import Reader


@dataclass(frozen=True)
class Parts:
    """An encoder over a corpus, ready to be trained."""

    encoder: Encoder
    reader: Reader
    save: Callable[[Encoder, dict[str, Any], Path], None]
    """(encoder, what is to be known of it, path): writes a file or folder, whole or not at all"""
    about: dict[str, Any]
    """what it starts from, as plain values; is saved with it"""


class Recipe(ABC):
    """A kind of encoder, as `model.recipe` names it; made from the settings of `schema`."""

    schema: type[MinedTraining]
    file: str
    """what is saved, in the folder of a run"""
    groups: tuple[str, ...] = ("embeddings",)
    """parts of the configuration that it reads beside `model`"""
    mean_path = False
    """whether it has a mean path that can be trained without the rest (hatten.layers)"""

    @abstractmethod
    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        """config: all of the configuration."""


class HAtten(Recipe):
    """The encoder of Gu et al. 2022, section 4.1, with or without the path around it."""

    schema = HAttenSettings
    file = FILE

    def __init__(self, model: HAttenSettings) -> None:
        self.model = model
        self.mean_path = model.encoder.residual == "mean"

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        name, vocabulary, table = starting_words(config.embeddings, corpus, self.model)
        encoder = build_encoder(self.model.encoder, table, vocabulary)
        encoder.precision = precision(self.model.precision)
        if encoder.mean is not None:
            encoder.mean.start_from(inverse_document_frequency(corpus, vocabulary))
            encoder.mean.dropout = self.model.word_dropout
        reader = DocumentReader(corpus, vocabulary, self.model.encoder.max_tokens)
        return Parts(encoder, reader, saver(vocabulary), {"vectors": name})


class StaticEncoder(Encoder):
    """Documents to unit vectors [B, D]: a mean path over word vectors that are trained with it."""

    def __init__(self, word_vectors: NDArray[np.float32], vocabulary: Vocabulary, near: int = 0) -> None:
        """word_vectors [V, D] in the order of the vocabulary; near: as hatten.layers.MeanPath has it."""
        super().__init__()
        self.word_vectors = nn.Parameter(torch.from_numpy(np.ascontiguousarray(word_vectors, np.float32)))
        self.mean = MeanPath(len(word_vectors), near)
        self.mean.target_id = int(vocabulary.lookup([TARGET_WORD])[0])
        self.dim, self.precision = word_vectors.shape[1], torch.float32

    def encode(self, documents: Documents) -> Tensor:
        vectors: Tensor = self.mean(self.word_vectors, documents)
        return vectors

    def frozen(self) -> MeanEncoder:
        """What it has learned so far."""
        return self.mean.frozen(self.word_vectors)


class Static(Recipe):
    """Word vectors and the weights of words, distances and paragraphs."""

    schema = StaticSettings
    file = FOLDER

    def __init__(self, model: StaticSettings) -> None:
        self.model = model

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        name, vocabulary, table = starting_words(config.embeddings, corpus, self.model)
        most, near = self.model.max_tokens, self.model.near
        encoder = StaticEncoder(table, vocabulary, len(near))
        encoder.mean.start_from(inverse_document_frequency(corpus, vocabulary))
        encoder.mean.dropout = self.model.word_dropout

        def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
            assert isinstance(trained, StaticEncoder)
            unknown = self.model.unknown_weight
            save_static(
                StaticModel(trained.frozen(), vocabulary, most, about, unknown_weight=unknown, near=near),
                path,
            )

        return Parts(encoder, DocumentReader(corpus, vocabulary, most, near), save, {"vectors": name})
