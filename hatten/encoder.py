"""The networks: HAtten, the hierarchical attention text encoder (Gu et al. 2022, section 4.1), and the static
model's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.records import MARKER_WORDS, TARGET_WORD
from citerec.hatten.documents import Documents, Vocabulary, from_padded
from citerec.hatten.layers import MeanPath, MultiHeadPooling, TransformerLayer, dropout, sinusoids
from citerec.hatten.settings import EncoderConfig
from citerec.hatten.static.means import MeanEncoder
from citerec.retrieval.vectors import chunks, padded_length


class Encoder(nn.Module):
    """Base class of encoders, which turn documents into vectors compared by cosine."""

    dim: int
    precision: torch.dtype
    """dtype of the computation; weights are float32"""
    fast_prefixes: tuple[str, ...] = ()
    """name prefixes of the weights with a learning-rate factor of their own (model.schedule.vectors)"""

    def encode(self, documents: Any) -> Tensor:
        """B documents from the reader -> [B, dim] float32; zeros for a document without known words."""
        raise NotImplementedError


class Level(nn.Module):
    """Transformer layers and pooling, from tokens to a paragraph or from paragraphs to a document."""

    def __init__(self, config: EncoderConfig, positions: int) -> None:
        super().__init__()
        sizes = (config.dim, config.heads)
        self.layers = nn.ModuleList(
            TransformerLayer(*sizes, config.hidden, config.dropout) for _ in range(config.layers)
        )
        self.pool = MultiHeadPooling(*sizes)
        self.dropout = config.input_dropout
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(positions, config.dim), persistent=False)

    def contextualise(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """Add positions and apply the transformer layers, [n, L, D] -> [n, L, D]."""
        x = dropout(x + self.positions[: x.shape[1]].to(x.dtype), self.dropout, self.training)
        for layer in self.layers:
            x = layer(x, absent)
        return x

    def forward(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """x [n, L, D], absent [n, L] -> [n, D] float32"""
        pooled: Tensor = self.pool(self.contextualise(x, absent), absent)
        return pooled


class HAttenEncoder(Encoder):
    """Encodes documents of up to three paragraphs (title, abstract, context) as vectors [B, D].

    The word level encodes each paragraph; the document level combines the paragraph vectors and their types.
    Paragraphs are sorted by length and encoded in chunks of at most `chunk_tokens` tokens to limit padding.
    """

    fast_prefixes = ("word_vectors", "marker_vectors", "mean.")

    def __init__(
        self,
        config: EncoderConfig,
        word_vectors: NDArray[np.float32],
        pad_id: int = 0,
        marker_ids: Sequence[int] = (),
    ) -> None:
        """word_vectors [V, D]; marker_ids: words to train with trainable_vectors=markers.

        Raises InputError if D differs from the configured dimension.
        """
        super().__init__()
        if word_vectors.ndim != 2 or word_vectors.shape[1] != config.dim:
            raise InputError(
                f"word vectors of {word_vectors.shape[-1]} dimensions do not fit an encoder of {config.dim}; "
                f"set model.encoder.dim={word_vectors.shape[-1]} or choose other vectors"
            )
        self.config, self.dim, self.pad_id = config, config.dim, pad_id
        self.precision = torch.float32
        self.chunk_tokens = 2048
        table = torch.from_numpy(np.ascontiguousarray(word_vectors, np.float32))
        self.word_vectors = nn.Parameter(table, requires_grad=config.trainable_vectors == "all")
        self.marker_ids = list(marker_ids) if config.trainable_vectors == "markers" else []
        self.marker_vectors = nn.Parameter(table[self.marker_ids].clone()) if self.marker_ids else None
        self.word_level = Level(config, config.max_tokens)
        self.document_level = Level(config, config.max_paragraphs)
        self.type_vectors = nn.Embedding(config.paragraph_types, config.dim)
        self.mean: MeanPath | None = MeanPath(len(table)) if config.residual == "mean" else None
        if self.mean is not None:
            # Start as the mean path alone and learn what to add to it.
            nn.init.zeros_(self.document_level.pool.out.weight)
            nn.init.zeros_(self.document_level.pool.out.bias)
        self.mean_only = False

    @property
    def levels_are_zero(self) -> bool:
        """True if the two levels add nothing to the mean path, as before training."""
        out = self.document_level.pool.out
        return self.mean is not None and not bool(out.weight.any() or out.bias.any())

    def forward(self, token_ids: Tensor, paragraph_types: Tensor, paragraph_mask: Tensor) -> Tensor:
        """token_ids [B, P, L], paragraph_types [B, P], paragraph_mask [B, P] (True = absent) -> [B, D]"""
        ids, types, absent = (part.cpu().numpy() for part in (token_ids, paragraph_types, paragraph_mask))
        return self.encode(from_padded(ids, types, absent, self.pad_id))

    def encode(self, documents: Documents) -> Tensor:
        """B documents -> [B, D] float32 (not normalised); zeros for a document without words."""
        if self.mean is None:
            return self.encode_levels(documents)
        return self.add_mean_path(documents, None if self.mean_only else self.encode_levels(documents))

    def add_mean_path(self, documents: Documents, levels: Tensor | None) -> Tensor:
        """Add the mean path's vectors [B, D] to the output of `encode_levels`; None counts as zeros."""
        assert self.mean is not None
        vectors: Tensor = self.mean(self.word_vectors, documents)
        return vectors if levels is None else vectors + levels

    def encode_levels(self, documents: Documents) -> Tensor:
        """B documents -> [B, D] through the two levels, as in the paper."""
        x, absent = self.paragraph_inputs(documents)
        empty = absent.all(1)
        if bool(empty.any()):
            absent = absent & ~empty[:, None]  # avoids NaN from rows without keys; masked below
        vectors: Tensor = self.document_level(x, absent if bool(absent.any()) else None)
        return vectors.masked_fill(empty[:, None], 0.0)

    def paragraph_inputs(self, documents: Documents) -> tuple[Tensor, Tensor]:
        """Return paragraph plus type vectors [B, P, D], and which paragraphs are absent [B, P]."""
        index = self._tensor(documents.index)
        absent = index < 0
        paragraphs = self.encode_paragraphs(documents.paragraphs)
        x = (
            paragraphs[index.clamp(min=0)]
            if len(paragraphs)
            else paragraphs.new_zeros(*index.shape, self.config.dim)
        )
        types = self.type_vectors(self._tensor(documents.types))
        return x.masked_fill(absent[:, :, None], 0.0) + types, absent

    def encode_paragraphs(self, paragraphs: Ragged) -> Tensor:
        """n paragraphs -> [n, D] float32."""
        lengths = paragraphs.lengths
        if not len(lengths):
            return self.type_vectors.weight.new_zeros(0, self.config.dim)
        order = np.argsort(-lengths, kind="stable")
        pieces = (paragraphs.take(order[rows]) for rows in chunks(lengths[order], self.chunk_tokens))
        parts: list[Tensor] = []
        if self.word_vectors.requires_grad and torch.is_grad_enabled():
            # The gradient of a lookup is as large as the word vector table, so all chunks share one lookup.
            grids = [self._grid(piece) for piece in pieces]
            x = self.embed(self._tensor(np.concatenate([ids.ravel() for ids, _ in grids])))
            for part, (ids, absent) in zip(x.split([ids.size for ids, _ in grids]), grids, strict=True):
                parts.append(self._encode_chunk(part.view(*ids.shape, -1), absent))
        else:
            for piece in pieces:
                ids, absent = self._grid(piece)
                parts.append(self._encode_chunk(self.embed(self._tensor(ids)), absent))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return torch.cat(parts)[self._tensor(back)]

    def _grid(self, paragraphs: Ragged) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Pad paragraphs: word ids [n, L], and which positions are padding [n, L]."""
        lengths = paragraphs.lengths
        position = np.arange(min(padded_length(int(lengths.max())), self.config.max_tokens))
        absent = position >= lengths[:, None]
        ids = np.zeros(absent.shape, np.int64)
        ids[~absent] = paragraphs.values
        return ids, absent

    def _encode_chunk(self, x: Tensor, absent: NDArray[np.bool_]) -> Tensor:
        vectors: Tensor = self.word_level(x, self._tensor(absent) if absent.any() else None)
        return vectors

    def embed(self, ids: Tensor) -> Tensor:
        """Word ids [...] -> vectors [..., D] in the working precision."""
        # index_select: the backward pass of F.embedding takes twice as long on a CPU.
        x = self.word_vectors.index_select(0, ids.flatten()).view(*ids.shape, -1)
        if self.marker_vectors is not None:
            for marker, vector in zip(self.marker_ids, self.marker_vectors, strict=True):
                x = x.index_put((ids == marker).nonzero(as_tuple=True), vector)
        return (x * self.config.input_scale if self.config.input_scale != 1.0 else x).to(self.precision)

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.type_vectors.weight.device)


def build_encoder(
    config: EncoderConfig, word_vectors: NDArray[np.float32], vocabulary: Vocabulary
) -> HAttenEncoder:
    """Build an encoder with random weights over a vocabulary and its vectors [V, D]."""
    markers = vocabulary.lookup(MARKER_WORDS)
    encoder = HAttenEncoder(config, word_vectors, vocabulary.pad_id, markers[markers >= 0].tolist())
    if encoder.mean is not None:
        encoder.mean.target_id = int(vocabulary.lookup([TARGET_WORD])[0])
    return encoder


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
