"""Averaged word vectors (Bhagavatula et al. 2018, section 3.1): untrained (`retriever=average`), or with
magnitudes trained by the batches, mining and loss of HAtten (NNSelect), as in Gu et al. 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.hatten.dense import DenseModel
from citerec.hatten.documents import DocumentReader, Documents, Vocabulary
from citerec.hatten.encoder import Encoder
from citerec.hatten.retriever import EncoderRetriever
from citerec.hatten.settings import NNSelectSettings
from citerec.hatten.static.network import MeanInputs, MeanLayout, MeanPath
from citerec.hatten.words.vectors import (
    Embeddings,
    inverse_document_frequency,
    load_initial_vectors,
    words_and_vectors,
)
from citerec.retrieval.encoders.nets import weights_to_numpy, weights_to_torch
from citerec.retrieval.settings import IndexConfig
from citerec.training import hub


class AverageEncoder(Encoder):
    """Encodes a document as the normalised weighted sum of its field vectors.

    A field vector is the normalised sum of word directions times magnitudes. Directions are fixed; positive
    magnitudes and field weights, separate for queries and papers, are trainable (initial values:
    hatten.static.means).
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
        self.dim = word_vectors.shape[1]

    @property
    def layout(self) -> MeanLayout:
        return self.mean.layout()

    def encode(self, documents: Documents | MeanInputs) -> Tensor:
        return self.mean.encode(self.directions, documents)


def weight_vectors(
    word_vectors: NDArray[np.float32], weighting: str, corpus: Corpus, vocabulary: Vocabulary
) -> NDArray[np.float32]:
    """Return vectors [V, D] unchanged (mean) or multiplied by inverse document frequency (idf)."""
    if weighting == "mean":
        return word_vectors
    return word_vectors * inverse_document_frequency(corpus, vocabulary)[:, None]


class AverageRetriever(EncoderRetriever):
    """Nearest-neighbour search with averages of pretrained word vectors."""

    name = "average"
    max_tokens = 512

    def __init__(
        self,
        embeddings: Embeddings,
        weighting: str = "idf",
        index: IndexConfig | None = None,
    ) -> None:
        """weighting: mean or idf."""
        super().__init__(index)
        if weighting not in ("mean", "idf"):
            raise InputError(f"retriever.weighting={weighting}: choose mean or idf")
        self._embeddings, self._weighting = embeddings, weighting
        self._prepared = ""

    def prepare(self, corpus: Corpus) -> None:
        if self._prepared != corpus.fingerprint:
            self.vocabulary, table = words_and_vectors(self._embeddings.load(corpus))
            vectors = weight_vectors(table, self._weighting, corpus, self.vocabulary)
            self.encoder = AverageEncoder(vectors).eval()
            self.use_device()
            self._prepared = corpus.fingerprint
        super().prepare(corpus)

    def load(self, folder: str | Path, corpus: Corpus) -> None:
        self.prepare(corpus)  # loads the word vectors, which the index is checked against
        super().load(folder, corpus)


FORMAT = "nnselect-1"
WORDS = "words.json"


@dataclass(frozen=True)
class NNSelect(DenseModel):
    """Averages with trained word magnitudes and field weights."""

    settings_file = "nnselect.json"
    folder = "nnselect"
    title = "NNSelect model"
    description = """\
NNSelect embeds papers and queries as averages of word vectors with trained magnitudes (Bhagavatula et al.
2018).

```sh
citerec evaluate benchmark=prefetch retriever=nnselect checkpoint={place} data=custom data.dir=DIR
```"""
    settings_class = NNSelectSettings

    encoder: AverageEncoder
    vocabulary: Vocabulary
    max_tokens: int
    """maximum words of a field"""
    about: dict[str, Any]

    @classmethod
    def untrained(
        cls, corpus: Corpus, settings: NNSelectSettings, pretrained: Embeddings
    ) -> tuple[Self, AverageEncoder, DocumentReader]:
        name, vocabulary, table = load_initial_vectors(pretrained, corpus, settings)
        encoder = AverageEncoder(weight_vectors(table, settings.weighting, corpus, vocabulary))
        encoder.mean.dropout = settings.word_dropout
        model = cls(encoder, vocabulary, settings.max_tokens, {"vectors": name})
        return model, encoder, DocumentReader(corpus, vocabulary, settings.max_tokens)

    def retriever(self, index: IndexConfig | None = None) -> NNSelectRetriever:
        """Nearest-neighbour search with this model."""
        return NNSelectRetriever(self, index)

    def write(self, folder: Path) -> None:
        hub.write_json(folder / self.settings_file, {"format": FORMAT, "max_tokens": self.max_tokens})
        hub.write_json(folder / WORDS, self.vocabulary.words)
        hub.write_weights(folder / hub.WEIGHTS, weights_to_numpy(self.encoder))

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Self:
        settings = hub.read_json(folder / cls.settings_file, dict)
        weights = weights_to_torch(hub.read_weights(folder / hub.WEIGHTS))
        with hub.check_consistent(folder):
            vocabulary = Vocabulary(hub.read_json(folder / WORDS, list))
            encoder = AverageEncoder(weights["directions"].numpy())
            encoder.load_state_dict(weights)
            return cls(encoder.eval(), vocabulary, int(settings["max_tokens"]), about)


class NNSelectRetriever(EncoderRetriever):
    """Nearest-neighbour search with averages of word vectors with trained magnitudes."""

    name = "nnselect"

    def __init__(self, checkpoint: NNSelect | str | Path | None, index: IndexConfig | None = None) -> None:
        """checkpoint: a model, or the output of citerec train model=nnselect; else InputError."""
        super().__init__(index)
        self.model = model = NNSelect.given(checkpoint)
        self.checkpoint = None if isinstance(checkpoint, NNSelect) else checkpoint
        self.encoder, self.vocabulary = model.encoder, model.vocabulary
        self.max_tokens, self.about = model.max_tokens, model.about
        self.use_device()
