"""Averaged word vectors: the embedding of Bhagavatula et al. 2018, section 3.1, without its training.

As a retriever they take the place that Sent2vec has in Gu et al. 2022, table 2.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datasets.errors import InputError
from datasets.store import Corpus
from hatten.dense import WordsRetriever
from hatten.documents import Documents
from hatten.recipe import Encoder
from hatten.residual import MeanPath
from hatten.start import inverse_document_frequency, words_and_vectors
from hatten.vectors import WordVectors
from hatten.vocabulary import Vocabulary
from retrieval.indexes import IndexConfig
from retrieval.profiles import ProfileConfig


class AveragesEncoder(Encoder):
    """Documents to vectors [B, D]: of each field the sum of its words' directions, each by its magnitude,
    as a unit vector; of those the sum, each by the weight of the field, as a unit vector again.

    Directions are fixed. What can be trained are magnitudes, all above 0, and the weights of fields, which
    queries and papers have of their own (hatten.residual says what they start from).
    """

    def __init__(self, word_vectors: NDArray[np.float32]) -> None:
        """word_vectors [V, D]: their lengths are the magnitudes to begin with."""
        super().__init__()
        lengths = np.linalg.norm(word_vectors, axis=1)
        directions = torch.from_numpy(word_vectors / np.maximum(lengths, 1e-8)[:, None])
        self.directions = nn.Parameter(directions, requires_grad=False)
        self.mean = MeanPath(len(word_vectors))
        self.mean.distance_weight.requires_grad_(False)  # without a target_id it has no part
        self.mean.start_from(lengths)
        self.dim, self.precision = word_vectors.shape[1], torch.float32

    def encode(self, documents: Documents) -> Tensor:
        vectors: Tensor = self.mean(self.directions, documents)
        return vectors


def weighted(
    word_vectors: NDArray[np.float32], weighting: str, corpus: Corpus, vocabulary: Vocabulary
) -> NDArray[np.float32]:
    """Vectors [V, D] as they are (mean), or each by the inverse document frequency of its word (idf)."""
    if weighting == "mean":
        return word_vectors
    return word_vectors * inverse_document_frequency(corpus, vocabulary)[:, None]


def check_weighting(weighting: str, where: str) -> None:
    """InputError when there is none of that name; where: the option."""
    if weighting not in ("mean", "idf"):
        raise InputError(f"{where}={weighting}: choose mean or idf")


class AverageRetriever(WordsRetriever):
    """Nearest papers by averages of word vectors that were trained for something else."""

    name = "average"

    def __init__(
        self,
        embeddings: Callable[..., WordVectors],
        weighting: str = "idf",
        punctuation: bool = False,
        max_tokens: int = 512,
        index: IndexConfig | None = None,
        profile: ProfileConfig | None = None,
    ) -> None:
        """embeddings: gives word vectors for a `corpus` (conf/embeddings). weighting: mean or idf.

        punctuation: keep tokens without a letter or digit. max_tokens: words that are read of a field.
        """
        super().__init__(index, profile)
        check_weighting(weighting, "retriever.weighting")
        self.max_tokens = max_tokens
        self._embeddings, self._weighting, self._punctuation = embeddings, weighting, punctuation
        self._prepared = ""

    def prepare(self, corpus: Corpus) -> None:
        if self._prepared != corpus.fingerprint:
            self.vocabulary, table = words_and_vectors(self._embeddings(corpus=corpus), self._punctuation)
            self.encoder = AveragesEncoder(weighted(table, self._weighting, corpus, self.vocabulary)).eval()
            self._prepared = corpus.fingerprint
        super().prepare(corpus)

    def load(self, folder: str | Path, corpus: Corpus) -> None:
        self.prepare(corpus)  # an index is of certain vectors, and those come with the corpus
        super().load(folder, corpus)
