"""Training of static embedding models: `python train.py model=static`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor, nn

from datasets.corpus import Corpus
from datasets.records import TARGET_WORD
from hatten.documents import DocumentReader, Documents, Vocabulary
from hatten.layers import MeanPath
from hatten.means import MeanEncoder
from hatten.recipe import Encoder, Parts, Recipe
from hatten.settings import StaticSettings
from hatten.static import FOLDER, StaticModel, save_static
from hatten.words import inverse_document_frequency, starting_words


class StaticEncoder(Encoder):
    """Documents to unit vectors [B, D]: a mean path over word vectors that are trained with it."""

    def __init__(self, word_vectors: NDArray[np.float32], vocabulary: Vocabulary) -> None:
        """word_vectors [V, D] in the order of the vocabulary, perhaps with further rows behind them."""
        super().__init__()
        if word_vectors.ndim != 2 or len(word_vectors) < len(vocabulary):
            raise ValueError(f"{len(vocabulary)} words for vectors of shape {word_vectors.shape}")
        self.word_vectors = nn.Parameter(torch.from_numpy(np.ascontiguousarray(word_vectors, np.float32)))
        self.mean = MeanPath(len(word_vectors))
        self.mean.target_id = int(vocabulary.lookup([TARGET_WORD])[0])
        self.dim, self.precision = word_vectors.shape[1], torch.float32

    def encode(self, documents: Documents) -> Tensor:
        vectors: Tensor = self.mean(self.word_vectors, documents)
        return vectors

    def frozen(self) -> MeanEncoder:
        """What it has learned so far."""
        return self.mean.frozen(self.word_vectors)


class Static(Recipe):
    """Trains word vectors and the weights of words, distances and paragraphs."""

    schema = StaticSettings
    file = FOLDER
    groups = ("embeddings",)

    def __init__(self, model: StaticSettings) -> None:
        self.words = model

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        name, vocabulary, table = starting_words(config.embeddings, corpus, self.words)
        encoder = StaticEncoder(table, vocabulary)
        encoder.mean.start_from(inverse_document_frequency(corpus, vocabulary))
        encoder.mean.dropout = self.words.word_dropout

        def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
            assert isinstance(trained, StaticEncoder)
            model = StaticModel(trained.frozen(), vocabulary, self.words.max_tokens, about)
            save_static(replace(model, unknown_weight=self.words.unknown_weight), path)

        reader = DocumentReader(corpus, vocabulary, self.words.max_tokens)
        return Parts(encoder, reader, save, {"vectors": name})
