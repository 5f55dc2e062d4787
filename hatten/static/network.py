"""The static model's network: a weighted mean of word vectors with trained weights (hatten.static.means)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from citerec.datasets.records import TARGET_WORD
from citerec.hatten.documents import NEAR, Array, Documents, Vocabulary
from citerec.hatten.encoder import Encoder
from citerec.hatten.static.means import (
    DISTANCE_BUCKETS,
    INITIAL_NEAR_WEIGHT,
    INITIAL_WEIGHTS,
    MeanEncoder,
    marker_distances,
    paragraph_kinds,
)
from citerec.retrieval.encoders.nets import to_device


@dataclass(frozen=True)
class MeanInputs:
    """B documents for a weighted mean.

    tokens: [T], word ids of the n distinct paragraphs; starts: [n], where each begins. positions, buckets:
    [m], tokens in paragraphs with the target marker and their distances from it (None: no such tokens).
    index, missing: [B, P], as in LevelInputs; query: [B, 1] and kinds: [B, P], rows and columns of the
    weights of paragraphs.
    """

    tokens: Array
    starts: Array
    positions: Array | None
    buckets: Array | None
    index: Array
    missing: Array
    query: Array
    kinds: Array


@dataclass(frozen=True)
class MeanLayout:
    """Lays out documents for a weighted mean. It holds no weights, so that other processes can have it.

    kinds: number of kinds of paragraphs. target_id: id of the target marker.
    """

    kinds: int
    target_id: int | None

    def prepare(self, documents: Documents) -> MeanInputs:
        """The inputs of documents."""
        positions, buckets = marker_distances(documents, self.target_id)
        query, types = paragraph_kinds(documents, self.kinds)
        return MeanInputs(
            documents.paragraphs.values.astype(np.int64),
            documents.paragraphs.offsets[:-1].copy(),
            positions if len(positions) else None,
            buckets if len(positions) else None,
            np.maximum(documents.index, 0),
            documents.index < 0,
            query,
            types,
        )


class MeanPath(nn.Module):
    """The trainable weights of a `MeanEncoder`."""

    def __init__(self, words: int, near: int = 0) -> None:
        """near: number of extra query paragraphs around the marker."""
        super().__init__()
        self.word_weight = nn.Parameter(torch.zeros(words))
        self.distance_weight = nn.Parameter(torch.zeros(2 * DISTANCE_BUCKETS))
        weights = torch.zeros(2, NEAR + near)
        for (kind, query), weight in INITIAL_WEIGHTS.items():
            weights[int(query), kind] = float(np.log(weight))
        weights[1, NEAR:] = float(np.log(INITIAL_NEAR_WEIGHT))
        self.paragraph_weight = nn.Parameter(weights)
        self.target_id: int | None = None
        self.dropout = 0.0

    def init_word_weights(self, weights: NDArray[np.float32]) -> None:
        """Initialise the word weights in proportion to non-negative weights [V], e.g. idf."""
        with torch.no_grad():
            scaled = torch.from_numpy(weights / weights.max() * 2.0).clamp(min=1e-3)
            self.word_weight.copy_(torch.log(torch.expm1(scaled)))  # inverse of softplus

    def layout(self) -> MeanLayout:
        """The layout of documents for it."""
        return MeanLayout(self.paragraph_weight.shape[1], self.target_id)

    def encode(self, word_vectors: Tensor, documents: Documents | MeanInputs) -> Tensor:
        """word_vectors [V, D] -> [B, D] of unit length; zeros for a document without words."""
        device = word_vectors.device
        if isinstance(documents, Documents):
            if not torch.is_grad_enabled() and not self.training and device.type == "cpu":
                return torch.from_numpy(
                    self.to_numpy(word_vectors).encode(documents)
                )  # several times as fast
            documents = to_device(self.layout().prepare(documents), device)
        vectors: Tensor = self(word_vectors, documents)
        return vectors

    def forward(self, word_vectors: Tensor, inputs: MeanInputs) -> Tensor:
        """Like `encode`, for inputs on the device of the vectors."""
        if len(inputs.starts) == 0:
            return word_vectors.new_zeros(len(inputs.index), word_vectors.shape[1])
        weights = F.softplus(self.word_weight)[inputs.tokens]
        if self.training and self.dropout > 0:
            weights = weights * (torch.rand_like(weights) >= self.dropout)
        if inputs.positions is not None:
            factor = self.distance_weight.exp()[inputs.buckets]
            weights = weights.index_put((inputs.positions,), weights[inputs.positions] * factor)
        bags = F.embedding_bag(
            inputs.tokens, word_vectors, inputs.starts, mode="sum", per_sample_weights=weights
        )
        bags = F.normalize(bags, dim=1)
        share = self.paragraph_weight.exp()[inputs.query, inputs.kinds].masked_fill(inputs.missing, 0.0)
        return F.normalize((bags[inputs.index] * share[:, :, None]).sum(1), dim=1)

    def to_numpy(self, word_vectors: Tensor) -> MeanEncoder:
        """Return the encoder in NumPy, over vectors [V, D]; on a CPU it shares memory with the tensors."""
        learned = {name: weight.detach().cpu().numpy() for name, weight in self.named_parameters()}
        return MeanEncoder(word_vectors.detach().cpu().numpy(), **learned, target_id=self.target_id)


class StaticEncoder(Encoder):
    """Encodes documents as unit vectors [B, D], weighted means of trainable word vectors."""

    fast_prefixes = ("word_vectors",)

    def __init__(self, word_vectors: NDArray[np.float32], vocabulary: Vocabulary, near: int = 0) -> None:
        """word_vectors [V, D] in the order of the vocabulary; near: see MeanPath."""
        super().__init__()
        self.word_vectors = nn.Parameter(torch.from_numpy(np.ascontiguousarray(word_vectors, np.float32)))
        self.mean = MeanPath(len(word_vectors), near)
        self.mean.target_id = int(vocabulary.lookup([TARGET_WORD])[0])
        self.dim = word_vectors.shape[1]

    @property
    def layout(self) -> MeanLayout:
        return self.mean.layout()

    def encode(self, documents: Documents | MeanInputs) -> Tensor:
        return self.mean.encode(self.word_vectors, documents)

    def to_numpy(self) -> MeanEncoder:
        """Return the encoder in NumPy; on a CPU it shares memory with the weights."""
        return self.mean.to_numpy(self.word_vectors)
