"""Recipes: the parts of a training run that depend on the kind of encoder; hatten.train does the rest.

Defines HAtten (`citerec train model=hatten`) and the static model (`model=static`). The others are in
hatten.nnselect and hatten.biencoder, and in rerank.distil, which continues from a trained encoder.
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

from citerec.datasets.corpus import Corpus
from citerec.datasets.records import TARGET_WORD
from citerec.hatten.checkpoint import make_saver
from citerec.hatten.documents import DocumentReader, Documents, Vocabulary
from citerec.hatten.encoder import Encoder, build_encoder
from citerec.hatten.layers import MeanPath
from citerec.hatten.means import MeanEncoder
from citerec.hatten.settings import HAttenSettings, MinedTraining, StaticSettings
from citerec.hatten.static import FILE, FOLDER, StaticModel, save_static
from citerec.hatten.words import inverse_document_frequency, load_initial_vectors
from citerec.retrieval.nets import precision
from citerec.retrieval.vectors import Reader


@dataclass(frozen=True)
class Parts:
    """An encoder and its reader for a corpus, ready for training."""

    encoder: Encoder
    reader: Reader
    save: Callable[[Encoder, dict[str, Any], Path], None]
    """save(encoder, about, path) writes a file or folder atomically"""
    about: dict[str, Any]
    """the starting point of the training, as plain values that are saved with the encoder"""


class Recipe(ABC):
    """Builds one kind of encoder; `model.recipe` names the class, `schema` the type of its settings."""

    schema: type[MinedTraining]
    file: str
    """name of the saved file or folder in the run folder"""
    groups: tuple[str, ...] = ("embeddings",)
    """configuration groups it reads besides `model`"""
    mean_path = False
    """True if it has a mean path that can be trained on its own (hatten.layers)"""

    @abstractmethod
    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        """Build the encoder for a corpus; config is the whole configuration."""


class HAtten(Recipe):
    """The encoder of Gu et al. 2022, section 4.1, with or without the mean path."""

    schema = HAttenSettings
    file = FILE

    def __init__(self, model: HAttenSettings) -> None:
        self.model = model
        self.mean_path = model.encoder.residual == "mean"

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        name, vocabulary, table = load_initial_vectors(config.embeddings, corpus, self.model)
        encoder = build_encoder(self.model.encoder, table, vocabulary)
        encoder.precision = precision(self.model.precision)
        if encoder.mean is not None:
            encoder.mean.init_word_weights(inverse_document_frequency(corpus, vocabulary))
            encoder.mean.dropout = self.model.word_dropout
        reader = DocumentReader(corpus, vocabulary, self.model.encoder.max_tokens)
        return Parts(encoder, reader, make_saver(vocabulary), {"vectors": name})


class StaticEncoder(Encoder):
    """Encodes documents as unit vectors [B, D] with a mean path and trainable word vectors."""

    def __init__(self, word_vectors: NDArray[np.float32], vocabulary: Vocabulary, near: int = 0) -> None:
        """word_vectors [V, D] in the order of the vocabulary; near: see hatten.layers.MeanPath."""
        super().__init__()
        self.word_vectors = nn.Parameter(torch.from_numpy(np.ascontiguousarray(word_vectors, np.float32)))
        self.mean = MeanPath(len(word_vectors), near)
        self.mean.target_id = int(vocabulary.lookup([TARGET_WORD])[0])
        self.dim, self.precision = word_vectors.shape[1], torch.float32

    def encode(self, documents: Documents) -> Tensor:
        vectors: Tensor = self.mean(self.word_vectors, documents)
        return vectors

    def to_numpy(self) -> MeanEncoder:
        """Return the encoder in NumPy; shares memory with the weights."""
        return self.mean.to_numpy(self.word_vectors)


class Static(Recipe):
    """The static model: word vectors and the weights of words, distances and paragraphs."""

    schema = StaticSettings
    file = FOLDER

    def __init__(self, model: StaticSettings) -> None:
        self.model = model

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        name, vocabulary, table = load_initial_vectors(config.embeddings, corpus, self.model)
        max_tokens, near = self.model.max_tokens, self.model.near
        encoder = StaticEncoder(table, vocabulary, len(near))
        encoder.mean.init_word_weights(inverse_document_frequency(corpus, vocabulary))
        encoder.mean.dropout = self.model.word_dropout

        def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
            assert isinstance(trained, StaticEncoder)
            weight = self.model.unknown_weight
            frozen = trained.to_numpy()
            save_static(
                StaticModel(frozen, vocabulary, max_tokens, about, unknown_weight=weight, near=near), path
            )

        reader = DocumentReader(corpus, vocabulary, max_tokens, near)
        return Parts(encoder, reader, save, {"vectors": name})
