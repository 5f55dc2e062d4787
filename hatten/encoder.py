"""HAtten, the hierarchical attention text encoder: Gu et al. 2022, section 4.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datasets.columns import Ragged
from datasets.errors import InputError
from datasets.records import MARKER_WORDS, TARGET_WORD
from hatten.documents import Documents, Vocabulary, from_padded
from hatten.layers import MeanPath, MultiHeadPooling, TransformerLayer, dropout, sinusoids
from hatten.settings import EncoderConfig
from retrieval.vectors import chunks, padded_length


class Encoder(nn.Module):
    """Documents to vectors that are compared by cosine."""

    dim: int
    precision: torch.dtype
    """in which it computes; weights are float32"""
    fast: tuple[str, ...] = ()
    """how the names of the weights begin that learn at their own rate (model.schedule.vectors)"""

    def encode(self, documents: Any) -> Tensor:
        """B documents, as the reader gives them -> [B, dim] float32; zeros for one without a known word."""
        raise NotImplementedError


class Level(nn.Module):
    """Transformer layers and a pooling: tokens to a paragraph, or paragraphs to a document."""

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

    def contextual(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """[n, L, D] -> [n, L, D] after positions and transformer layers."""
        x = dropout(x + self.positions[: x.shape[1]].to(x.dtype), self.dropout, self.training)
        for layer in self.layers:
            x = layer(x, absent)
        return x

    def forward(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """x [n, L, D], absent [n, L] -> [n, D] float32"""
        pooled: Tensor = self.pool(self.contextual(x, absent), absent)
        return pooled


class HAttenEncoder(Encoder):
    """Documents of up to three paragraphs (title, abstract, context) to vectors [B, D], compared by cosine.

    A word level turns each paragraph into a vector, a document level the typed paragraphs into one.
    Paragraphs are encoded in order of length, in chunks of at most `chunk_tokens` tokens: little is padded.
    """

    fast = ("word_vectors", "marker_vectors", "mean.")

    def __init__(
        self,
        config: EncoderConfig,
        word_vectors: NDArray[np.float32],
        pad_id: int = 0,
        marker_ids: Sequence[int] = (),
    ) -> None:
        """word_vectors [V, D]; marker_ids: words whose vectors trainable_vectors=markers trains.

        InputError when their dimension is not the configuration's.
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
            # The encoder starts as nothing but the mean path, and learns what to add to it.
            nn.init.zeros_(self.document_level.pool.out.weight)
            nn.init.zeros_(self.document_level.pool.out.bias)
        self.mean_only = False

    @property
    def idle(self) -> bool:
        """Whether the two levels add nothing to the mean path, as before they are trained."""
        out = self.document_level.pool.out
        return self.mean is not None and not bool(out.weight.any() or out.bias.any())

    def forward(self, token_ids: Tensor, paragraph_types: Tensor, paragraph_mask: Tensor) -> Tensor:
        """token_ids [B, P, L], paragraph_types [B, P], paragraph_mask [B, P] (True = absent) -> [B, D]"""
        ids, types, absent = (part.cpu().numpy() for part in (token_ids, paragraph_types, paragraph_mask))
        return self.encode(from_padded(ids, types, absent, self.pad_id))

    def encode(self, documents: Documents) -> Tensor:
        """B documents -> [B, D] float32 (not normalised); a document without a word gets zeros."""
        if self.mean is None:
            return self.hierarchical(documents)
        return self.with_mean(documents, None if self.mean_only else self.hierarchical(documents))

    def with_mean(self, documents: Documents, hierarchical: Tensor | None) -> Tensor:
        """The mean path's vectors [B, D] plus what the two levels gave for these documents; None: nothing."""
        assert self.mean is not None
        vectors: Tensor = self.mean(self.word_vectors, documents)
        return vectors if hierarchical is None else vectors + hierarchical

    def hierarchical(self, documents: Documents) -> Tensor:
        """The encoder of the paper: B documents -> [B, D]."""
        x, absent = self.typed(documents)
        empty = absent.all(1)
        if bool(empty.any()):
            absent = absent & ~empty[:, None]  # attend to something, and drop it below
        vectors: Tensor = self.document_level(x, absent if bool(absent.any()) else None)
        return vectors.masked_fill(empty[:, None], 0.0)

    def typed(self, documents: Documents) -> tuple[Tensor, Tensor]:
        """Paragraph vectors with their types, [B, P, D], and which are absent, [B, P]."""
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
        if len(lengths) and lengths.max() > self.config.max_tokens:
            raise ValueError(
                f"a paragraph has {lengths.max()} tokens, the encoder reads {self.config.max_tokens}"
            )
        if not len(lengths):
            return self.type_vectors.weight.new_zeros(0, self.config.dim)
        order = np.argsort(-lengths, kind="stable")
        pieces = (paragraphs.take(order[rows]) for rows in chunks(lengths[order], self.chunk_tokens))
        parts: list[Tensor] = []
        if self.word_vectors.requires_grad and torch.is_grad_enabled():
            # The gradient of a look-up is as large as the table of word vectors: one look-up for all chunks.
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
        """Word ids of paragraphs [n, L] and which places are empty [n, L]."""
        lengths = paragraphs.lengths
        place = np.arange(min(padded_length(int(lengths.max())), self.config.max_tokens))
        absent = place >= lengths[:, None]
        ids = np.zeros(absent.shape, np.int64)
        ids[~absent] = paragraphs.values
        return ids, absent

    def _encode_chunk(self, x: Tensor, absent: NDArray[np.bool_]) -> Tensor:
        vectors: Tensor = self.word_level(x, self._tensor(absent) if absent.any() else None)
        return vectors

    def embed(self, ids: Tensor) -> Tensor:
        """Word ids [...] -> vectors [..., D] in the working precision."""
        # Not F.embedding, whose backward pass takes twice as long on a CPU.
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
    """An encoder with random weights over a vocabulary's vectors [V, D]."""
    markers = vocabulary.lookup(MARKER_WORDS)
    encoder = HAttenEncoder(
        config, word_vectors, vocabulary.pad_id, [int(row) for row in markers if row >= 0]
    )
    if encoder.mean is not None:
        encoder.mean.target_id = int(vocabulary.lookup([TARGET_WORD])[0])
    return encoder
