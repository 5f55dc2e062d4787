"""Averaged word vectors (Bhagavatula et al. 2018, section 3.1): untrained (`retriever=average`), or with
magnitudes trained by the batches, mining and loss of HAtten (NNSelect), as in Gu et al. 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor, nn

from citerec.datasets.corpus import Corpus
from citerec.datasets.errors import InputError
from citerec.hatten.documents import DocumentReader, Documents, Vocabulary
from citerec.hatten.encoder import Encoder
from citerec.hatten.layers import MeanPath
from citerec.hatten.recipe import Parts, Recipe
from citerec.hatten.retriever import NetRetriever
from citerec.hatten.settings import NNSelectSettings
from citerec.hatten.words import (
    WordVectors,
    inverse_document_frequency,
    load_initial_vectors,
    words_and_vectors,
)
from citerec.retrieval.settings import IndexConfig
from citerec.training.checkpoint import find_saved, read_torch, save_torch
from citerec.training.hub import check_consistent


class AverageEncoder(Encoder):
    """Encodes a document as the normalised weighted sum of its field vectors.

    A field vector is the normalised sum of word directions times magnitudes. Directions are fixed; positive
    magnitudes and field weights, separate for queries and papers, are trainable (initial values:
    hatten.means).
    """

    def __init__(self, word_vectors: NDArray[np.float32]) -> None:
        """word_vectors [V, D]: their lengths are the initial magnitudes."""
        super().__init__()
        lengths = np.linalg.norm(word_vectors, axis=1)
        directions = torch.from_numpy(word_vectors / np.maximum(lengths, 1e-8)[:, None])
        self.directions = nn.Parameter(directions, requires_grad=False)
        self.mean = MeanPath(len(word_vectors))
        self.mean.distance_weight.requires_grad_(False)  # unused without a target_id
        self.mean.init_word_weights(lengths)
        self.dim, self.precision = word_vectors.shape[1], torch.float32

    def encode(self, documents: Documents) -> Tensor:
        vectors: Tensor = self.mean(self.directions, documents)
        return vectors


def weight_vectors(
    word_vectors: NDArray[np.float32], weighting: str, corpus: Corpus, vocabulary: Vocabulary
) -> NDArray[np.float32]:
    """Return vectors [V, D] unchanged (mean) or multiplied by inverse document frequency (idf)."""
    if weighting == "mean":
        return word_vectors
    return word_vectors * inverse_document_frequency(corpus, vocabulary)[:, None]


class AverageRetriever(NetRetriever):
    """Nearest-neighbour search with averages of pretrained word vectors."""

    name = "average"
    max_tokens = 512

    def __init__(
        self,
        embeddings: Callable[..., WordVectors],
        weighting: str = "idf",
        index: IndexConfig | None = None,
    ) -> None:
        """embeddings: returns word vectors for a `corpus` (conf/embeddings). weighting: mean or idf."""
        super().__init__(index)
        if weighting not in ("mean", "idf"):
            raise InputError(f"retriever.weighting={weighting}: choose mean or idf")
        self._embeddings, self._weighting = embeddings, weighting
        self._prepared = ""

    def prepare(self, corpus: Corpus) -> None:
        if self._prepared != corpus.fingerprint:
            self.vocabulary, table = words_and_vectors(self._embeddings(corpus=corpus))
            self.encoder = AverageEncoder(
                weight_vectors(table, self._weighting, corpus, self.vocabulary)
            ).eval()
            self._prepared = corpus.fingerprint
        super().prepare(corpus)

    def load(self, folder: str | Path, corpus: Corpus) -> None:
        self.prepare(corpus)  # loads the word vectors, which the index is checked against
        super().load(folder, corpus)


FORMAT, FILE = "nnselect-1", "nnselect.ckpt"


class NNSelect(Recipe):
    """Trains word magnitudes and field weights."""

    schema = NNSelectSettings
    file = FILE

    def __init__(self, model: NNSelectSettings) -> None:
        self.model = model

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        name, vocabulary, table = load_initial_vectors(config.embeddings, corpus, self.model)
        encoder = AverageEncoder(weight_vectors(table, self.model.weighting, corpus, vocabulary))
        encoder.mean.dropout = self.model.word_dropout
        content = {"format": FORMAT, "words": vocabulary.words, "max_tokens": self.model.max_tokens}

        def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
            save_torch({**content, "weights": trained.state_dict(), "about": about}, path)

        reader = DocumentReader(corpus, vocabulary, self.model.max_tokens)
        return Parts(encoder, reader, save, {"vectors": name})


class NNSelectRetriever(NetRetriever):
    """Nearest-neighbour search with averages of word vectors with trained magnitudes."""

    name = "nnselect"

    def __init__(
        self,
        checkpoint: str | Path | None,
        index: IndexConfig | None = None,
    ) -> None:
        """checkpoint: a file saved by train.py model=nnselect; InputError if missing or of another kind."""
        super().__init__(index)
        if checkpoint is None:
            raise InputError(
                "retriever=nnselect needs checkpoint=FILE, the nnselect.ckpt of citerec train model=nnselect"
            )
        checkpoint = find_saved(checkpoint, FILE)
        content = read_torch(checkpoint)
        if content.get("format") != FORMAT:
            raise InputError(f"{checkpoint}: not a checkpoint of train.py model=nnselect")
        with check_consistent(checkpoint):
            weights, self.max_tokens = content["weights"], int(content["max_tokens"])
            self.about, self.checkpoint = dict(content["about"]), checkpoint
            self.vocabulary = Vocabulary.from_saved(content["words"], len(weights["directions"]))
            self.encoder = AverageEncoder(weights["directions"].numpy())
            self.encoder.load_state_dict(weights)
        self.encoder.eval()
