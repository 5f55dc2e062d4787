"""A path around the encoder: a weighted mean of word vectors. Not in the paper; option `residual=mean`.

The encoder of the paper learns slowly from random weights, while a mean of word vectors that is weighted by
idf retrieves well untrained. Added to the encoder's output, it is the start from which the encoder learns the
rest.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from hatten.documents import ABSTRACT, CONTEXT, TITLE, Documents

REACH = 64
"""Distances from the marker, in words, that have a weight of their own; what is farther shares the last."""

START = {
    (TITLE, False): 0.5,
    (ABSTRACT, False): 1.0,
    (TITLE, True): 0.5,
    (ABSTRACT, True): 0.3,
    (CONTEXT, True): 1.0,
}
"""Weight of a paragraph by (type, whether the document is a query) before training."""


class MeanPath(nn.Module):
    """Unit vector of each paragraph: its words' vectors, each by its own weight and, in a context, by its
    distance from the target marker; then the sum over paragraphs by type, as a unit vector again."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.word_weight = nn.Parameter(torch.zeros(words))
        self.distance_weight = nn.Parameter(torch.zeros(2 * REACH))
        weights = torch.zeros(2, CONTEXT + 1)
        for (kind, query), weight in START.items():
            weights[int(query), kind] = float(np.log(weight))
        self.paragraph_weight = nn.Parameter(weights)
        self.target_id: int | None = None
        self.dropout = 0.0

    def start_from(self, weights: NDArray[np.float32]) -> None:
        """Give words these weights [V], such as inverse document frequencies, none below 0, at some scale."""
        with torch.no_grad():
            scaled = torch.from_numpy(weights / weights.max() * 2.0).clamp(min=1e-3)
            self.word_weight.copy_(torch.log(torch.expm1(scaled)))  # softplus of it gives `scaled`

    def forward(self, word_vectors: Tensor, documents: Documents) -> Tensor:
        """word_vectors [V, D] -> [B, D] of unit length, zeros for a document without words."""
        device = word_vectors.device
        index = torch.from_numpy(documents.index).to(device)
        if len(documents.paragraphs) == 0:
            return word_vectors.new_zeros(len(index), word_vectors.shape[1])
        tokens = torch.from_numpy(documents.paragraphs.values.astype(np.int64)).to(device)
        weights = F.softplus(self.word_weight)[tokens]
        if self.training and self.dropout > 0:
            weights = weights * (torch.rand_like(weights) >= self.dropout)
        places, buckets = self._distances(documents)
        if len(places):
            near = self.distance_weight.exp()[torch.from_numpy(buckets).to(device)]
            weights = weights.index_put((torch.from_numpy(places).to(device),), weights[places] * near)
        starts = torch.from_numpy(documents.paragraphs.offsets[:-1].copy()).to(device)
        bags = F.embedding_bag(tokens, word_vectors, starts, mode="sum", per_sample_weights=weights)
        bags = F.normalize(bags, dim=1)
        query = torch.from_numpy(documents.is_query.astype(np.int64)).to(device)
        types = torch.from_numpy(np.minimum(documents.types, CONTEXT)).to(device)
        share = self.paragraph_weight.exp()[query[:, None], types].masked_fill(index < 0, 0.0)
        return F.normalize((bags[index.clamp(min=0)] * share[:, :, None]).sum(1), dim=1)

    def _distances(self, documents: Documents) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the tokens in paragraphs with a target marker, and the buckets of their distances."""
        paragraphs = documents.paragraphs
        if self.target_id is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        markers = np.flatnonzero(paragraphs.values == self.target_id)
        row = np.searchsorted(paragraphs.offsets, markers, side="right") - 1
        row, first = np.unique(row, return_index=True)
        starts, lengths = paragraphs.offsets[row], paragraphs.lengths[row]
        ends = np.cumsum(lengths)
        within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        places = within + np.repeat(starts, lengths)
        distance = places - np.repeat(markers[first], lengths)
        return places, np.clip(np.abs(distance), 0, REACH - 1) + REACH * (distance > 0)
