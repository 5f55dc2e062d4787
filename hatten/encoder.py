"""The networks: HAtten, the hierarchical attention text encoder (Gu et al. 2022, section 4.1), and the static
model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from citerec.datasets.records import MARKER_WORDS, TARGET_WORD
from citerec.hatten.documents import Documents, Vocabulary, from_padded
from citerec.hatten.inputs import Inputs, Layout, LevelInputs
from citerec.hatten.layers import MeanPath, MultiHeadPooling, TransformerLayer, dropout, sinusoids
from citerec.hatten.settings import EncoderConfig
from citerec.hatten.static.means import MeanEncoder
from citerec.retrieval.encoders.nets import as_numpy, fitting_tokens, precision, to_device
from citerec.retrieval.vectors import encode

CHUNK_TOKENS = 2048
"""Maximum padded tokens of a chunk of paragraphs on a CPU."""
TOKEN_BYTES = 16
"""Memory of a token's activations, per dimension and layer."""
GPU_BATCH = 1 << 14
"""Documents that are read together for a GPU."""


class Encoder(nn.Module):
    """Base class of encoders, which turn documents into vectors compared by cosine."""

    dim: int
    precision: torch.dtype = torch.float32
    """dtype of the computation; weights are float32"""
    fast_prefixes: tuple[str, ...] = ()
    """name prefixes of the weights with a learning-rate factor of their own (model.schedule.vectors)"""

    @property
    def layout(self) -> Any:
        """Has `prepare(documents, levels)`, which returns the inputs of the network, on the CPU."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def adapt(self, device: torch.device | str, arithmetic: str = "float32") -> None:
        """Choose precision and sizes for a device, to which the weights are moved elsewhere."""

    def encode(self, documents: Any) -> Tensor:
        """B documents from the reader, or their inputs on the device -> [B, dim] float32.

        Zeros for a document without known words.
        """
        raise NotImplementedError


class Mean(nn.Module):
    """The mean of vectors, in place of a level or of its pooling."""

    def forward(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """x [n, L, D], absent [n, L] -> [n, D] float32"""
        if absent is None:
            return x.mean(1, dtype=torch.float32)
        share = (~absent).float() / (~absent).sum(1, keepdim=True).clamp(
            min=1
        )  # none: zeros, and no gradient
        return (share[:, None] @ x.float())[:, 0]


class Level(nn.Module):
    """Transformer layers and pooling, from tokens to a paragraph or from paragraphs to a document."""

    def __init__(self, config: EncoderConfig, positions: int) -> None:
        super().__init__()
        sizes = (config.dim, config.heads)
        self.layers = nn.ModuleList(
            TransformerLayer(*sizes, config.hidden, config.dropout) for _ in range(config.layers)
        )
        self.pool: Any = MultiHeadPooling(*sizes) if config.pooling == "attention" else Mean()
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

        Raises InputError if D does not fit the configuration (EncoderConfig.fit).
        """
        super().__init__()
        config = config.fit(word_vectors.shape[1])
        self.config, self.dim, self.pad_id = config, config.dim, pad_id
        self.chunk_tokens = CHUNK_TOKENS
        table = torch.from_numpy(np.ascontiguousarray(word_vectors, np.float32))
        self.word_vectors = nn.Parameter(table, requires_grad=config.trainable_vectors == "all")
        self.marker_ids = list(marker_ids) if config.trainable_vectors == "markers" else []
        self.marker_vectors = nn.Parameter(table[self.marker_ids].clone()) if self.marker_ids else None
        self.word_level: Any = Mean() if config.levels == "paragraphs" else Level(config, config.max_tokens)
        self.document_level: Any = (
            Mean() if config.levels == "words" else Level(config, config.max_paragraphs)
        )
        self.type_vectors = nn.Embedding(config.paragraph_types, config.dim)
        self.mean: MeanPath | None = MeanPath(len(table)) if config.residual == "mean" else None
        if self.mean is not None:
            # Start as the mean path alone and learn what to add to it.
            out: nn.Linear = self.document_level.pool.out  # type: ignore[union-attr, assignment]
            nn.init.zeros_(out.weight)
            nn.init.zeros_(out.bias)
        self.mean_only = False

    @property
    def levels_are_zero(self) -> bool:
        """True if the two levels add nothing to the mean path, as before training."""
        if self.mean is None:
            return False
        out = self.document_level.pool.out
        return not bool(out.weight.any() or out.bias.any())

    def forward(self, token_ids: Tensor, paragraph_types: Tensor, paragraph_mask: Tensor) -> Tensor:
        """token_ids [B, P, L], paragraph_types [B, P], paragraph_mask [B, P] (True = absent) -> [B, D]"""
        ids, types, absent = (part.cpu().numpy() for part in (token_ids, paragraph_types, paragraph_mask))
        return self.encode(from_padded(ids, types, absent, self.pad_id))

    @property
    def layout(self) -> Layout:
        mean = self.mean
        return Layout(
            True,
            0 if mean is None else mean.kinds,
            self.chunk_tokens,
            self.config.max_tokens,
            tuple(self.marker_ids),
            None if mean is None else mean.target_id,
        )

    def adapt(self, device: torch.device | str, arithmetic: str = "float32") -> None:
        self.precision = precision(arithmetic, device)
        bytes_each = TOKEN_BYTES * self.config.layers * (self.config.dim + self.config.hidden)
        self.chunk_tokens = fitting_tokens(device, bytes_each, CHUNK_TOKENS)

    def encode(self, documents: Documents | Inputs) -> Tensor:
        """B documents -> [B, D] float32 (not normalised); zeros for a document without words."""
        if self.mean is None:
            return self.encode_levels(documents)
        return self.add_mean_path(documents, None if self.mean_only else self.encode_levels(documents))

    def add_mean_path(self, documents: Documents | Inputs, levels: Tensor | None) -> Tensor:
        """Add the mean path's vectors [B, D] to the output of `encode_levels`; None counts as zeros."""
        assert self.mean is not None
        vectors = mean_vectors(self.mean, self.word_vectors, documents)
        return vectors if levels is None else vectors + levels

    def encode_levels(self, documents: Documents | Inputs) -> Tensor:
        """B documents -> [B, D] through the two levels, as in the paper."""
        inputs = self.level_inputs(documents)
        vectors: Tensor = self.document_level(self.paragraph_inputs(inputs), inputs.absent)
        return vectors if inputs.empty is None else vectors.masked_fill(inputs.empty[:, None], 0.0)

    def level_inputs(self, documents: Documents | Inputs) -> LevelInputs:
        """The inputs of the two levels, on the device."""
        if isinstance(documents, Documents):
            documents = to_device(replace(self.layout, kinds=0).prepare(documents), self.device)
        assert documents.levels is not None
        return documents.levels

    def paragraph_inputs(self, inputs: LevelInputs) -> Tensor:
        """Return paragraph plus type vectors [B, P, D]."""
        paragraphs = self.encode_paragraphs(inputs)
        x = (
            paragraphs[inputs.index]
            if len(paragraphs)
            else paragraphs.new_zeros(*inputs.index.shape, self.config.dim)
        )
        types: Tensor = self.type_vectors(inputs.types)
        return x.masked_fill(inputs.missing[:, :, None], 0.0) + types

    def encode_paragraphs(self, inputs: LevelInputs) -> Tensor:
        """The distinct paragraphs of documents [n, D] float32."""
        found = inputs.chunks
        if not found:
            return self.type_vectors.weight.new_zeros(0, self.config.dim)
        if self.word_vectors.requires_grad and torch.is_grad_enabled():
            # The gradient of a lookup is as large as the word vector table, so all chunks share one lookup.
            x = self.embed(torch.cat([chunk.ids.flatten() for chunk in found]))
            grids = x.split([chunk.ids.numel() for chunk in found])
            parts = [
                self.word_level(grid.view(*chunk.ids.shape, -1), chunk.absent)
                for grid, chunk in zip(grids, found, strict=True)
            ]
        else:
            parts = [self.word_level(self.embed(chunk.ids, chunk.markers), chunk.absent) for chunk in found]
        return torch.cat(parts)[inputs.back]

    def embed(self, ids: Tensor, markers: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Word ids [...] -> vectors [..., D] in the working precision. markers: as in Chunk."""
        # index_select: the backward pass of F.embedding takes twice as long on a CPU.
        x = self.word_vectors.index_select(0, ids.flatten())
        if self.marker_vectors is not None and markers is not None:
            places, numbers = markers
            x = x.index_copy(0, places, self.marker_vectors[numbers])
        x = x.view(*ids.shape, -1)
        return (x * self.config.input_scale if self.config.input_scale != 1.0 else x).to(self.precision)


def mean_vectors(mean: MeanPath, word_vectors: Tensor, documents: Documents | Inputs) -> Tensor:
    """B documents -> [B, D] through a mean path over word vectors [V, D]."""
    if isinstance(documents, Documents):
        return mean.encode(word_vectors, documents)
    vectors: Tensor = mean(word_vectors, documents.mean)
    return vectors


def encode_documents(
    encoder: Encoder,
    read: Callable[[NDArray[np.int64]], Any],
    rows: NDArray[np.int64],
    what: str,
    forward: Callable[[Any], Tensor] | None = None,
) -> NDArray[np.float32]:
    """Encode rows as vectors [len(rows), dim] of unit length.

    On a GPU batches are large, and prepared while the one before is computed.

    read: rows -> documents. forward: documents or their inputs -> [B, dim], by default `encoder.encode`.
    """
    forward, device = forward or encoder.encode, encoder.device
    if device.type == "cpu":
        return encode(as_numpy(forward), read, rows, encoder.dim, what)
    layout = encoder.layout
    return encode(
        as_numpy(lambda inputs: forward(to_device(inputs, device))),
        lambda part: layout.prepare(read(part)),
        rows,
        encoder.dim,
        what,
        batch=GPU_BATCH,
        ahead=True,
    )


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
        self.dim = word_vectors.shape[1]

    @property
    def layout(self) -> Layout:
        return Layout(kinds=self.mean.kinds, target_id=self.mean.target_id)

    def encode(self, documents: Documents | Inputs) -> Tensor:
        return mean_vectors(self.mean, self.word_vectors, documents)

    def to_numpy(self) -> MeanEncoder:
        """Return the encoder in NumPy; on a CPU it shares memory with the weights."""
        return self.mean.to_numpy(self.word_vectors)
