"""HAtten's network, the hierarchical attention text encoder (Gu et al. 2022, section 4.1): one level for the
words of a paragraph, one for its document's paragraphs, each a transformer layer and multi-head pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from citerec.hatten.documents import Documents, Layout, LevelInputs

# The same as torch's own, but faster on a CPU; imported only here.
from citerec.hatten.kernels import dropout, feed_forward, linear, norm, self_attention
from citerec.hatten.settings import EncoderConfig
from citerec.retrieval.encoders.nets import as_numpy, fitting_tokens, precision, to_device
from citerec.retrieval.vectors import encode

CHUNK_TOKENS = 1024
"""Maximum padded tokens of a chunk of paragraphs on a CPU."""
TOKEN_BYTES = 16
"""Memory of a token's activations, per dimension and layer."""
MEAN_BIAS, MEAN_LENGTH = 3.0, 8.0
"""For pooling that starts as a mean: a bias, added before the ReLU so that this cuts little, and subtracted
after it; a factor on the mean, so that positions, of .7 per number, do not hide it in the next level."""
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
        """An object whose `prepare(documents)` returns the inputs of the network, on the CPU."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def adapt(self, device: torch.device | str, arithmetic: str = "float32") -> None:
        """Choose precision and sizes for a device. The weights are moved there elsewhere."""

    def encode(self, documents: Any) -> Tensor:
        """B documents from the reader, or their inputs on the device -> [B, dim] float32.

        Zeros for a document without known words.
        """
        raise NotImplementedError


def sinusoids(length: int, dim: int) -> Tensor:
    """Sinusoidal positions [length, dim] of Vaswani et al. 2017, section 3.5: even sines, odd cosines."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * (-math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)[:, : dim // 2]
    return table


class TransformerLayer(nn.Module):
    """A post-norm layer of Vaswani et al. 2017 with ReLU in the feed-forward part."""

    def __init__(self, dim: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """x [n, L, D]; absent [n, L] bool, True for padding (None: no padding) -> [n, L, D]"""
        # As in Vaswani et al. 2017, section 5.4, dropout applies to the output of a part, not inside it.
        attended = self_attention(x, absent, self.qkv, self.out, self.heads)
        x = norm(x + dropout(attended, self.dropout, self.training), self.norm1)
        passed = feed_forward(x, self.up, self.down)
        return norm(x + dropout(passed, self.dropout, self.training), self.norm2)


class MultiHeadPooling(nn.Module):
    """Multi-head attention pooling: Liu and Lapata 2019; Gu et al. 2022, equations 1 and 2."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.score = nn.Linear(dim, heads)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def attention(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """Attention weight of each token in each head, x [n, L, D] -> [n, H, L] float32; sums to 1 over L."""
        scores = linear(x, self.score).transpose(1, 2).float()
        if absent is not None:
            scores = scores.masked_fill(absent[:, None], -torch.inf)
        return torch.softmax(scores, -1)

    def forward(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """x [n, L, D]; absent [n, L] -> [n, D] float32; NaN for a row without tokens."""
        n, _, dim = x.shape
        share = self.attention(x, absent)
        # Summing over tokens before the linear map to values gives the same vector for 1/L of the work.
        mixed = torch.bmm(share.to(x.dtype), x).float()  # [n, H, D]
        weight = self.value.weight.view(self.heads, dim // self.heads, dim)
        bias = self.value.bias.view(self.heads, -1)
        value = torch.einsum("nhd,hed->nhe", mixed, weight) + bias
        return F.linear(torch.relu(value.reshape(n, dim)), self.out.weight, self.out.bias)


class Mean(nn.Module):
    """The mean of vectors, in place of a level or of its pooling."""

    def forward(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """x [n, L, D], absent [n, L] -> [n, D] float32"""
        if absent is None:
            return x.mean(1, dtype=torch.float32)
        share = (~absent).float() / (~absent).sum(1, keepdim=True).clamp(
            min=1
        )  # a row without tokens: zeros, and no gradient
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
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(positions, config.dim), persistent=False)

    def contextualise(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """Add positions and apply the transformer layers, [n, L, D] -> [n, L, D]."""
        x = x + self.positions[: x.shape[1]].to(x.dtype)
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

    fast_prefixes = ("word_vectors",)

    def __init__(self, config: EncoderConfig, word_vectors: NDArray[np.float32]) -> None:
        """word_vectors [V, D]; InputError if D does not fit the configuration (EncoderConfig.fit)."""
        super().__init__()
        config = config.fit(word_vectors.shape[1])
        self.config, self.dim = config, config.dim
        self.chunk_tokens = CHUNK_TOKENS
        table = torch.from_numpy(np.ascontiguousarray(word_vectors, np.float32))
        self.word_vectors = nn.Parameter(table, requires_grad=config.trainable_vectors == "all")
        self.word_level: Any = Mean() if config.levels == "paragraphs" else Level(config, config.max_tokens)
        self.document_level: Any = (
            Mean() if config.levels == "words" else Level(config, config.max_paragraphs)
        )
        self.type_vectors = nn.Embedding(config.paragraph_types, config.dim)
        if config.initial == "mean":
            self.start_as_mean()

    @torch.no_grad()
    def start_as_mean(self) -> None:
        """Set initial weights with which each level returns the mean of its normalised tokens, so that
        training starts from a mean of word vectors and not from noise.

        The other matrices are drawn as in Glorot and Bengio 2010.
        """
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                nn.init.zeros_(part.bias)
        nn.init.normal_(self.type_vectors.weight, std=0.02)  # torch's std of 1 hides the paragraphs
        for part in self.modules():
            if isinstance(part, TransformerLayer):  # adds nothing to its input
                nn.init.zeros_(part.out.weight)
                nn.init.zeros_(part.down.weight)
            elif isinstance(part, MultiHeadPooling):  # attends equally to all
                nn.init.zeros_(part.score.weight)
                nn.init.eye_(part.value.weight)
                nn.init.constant_(part.value.bias, MEAN_BIAS)
                nn.init.eye_(part.out.weight).mul_(MEAN_LENGTH)
                nn.init.constant_(part.out.bias, -MEAN_LENGTH * MEAN_BIAS)

    @property
    def layout(self) -> Layout:
        return Layout(self.chunk_tokens, self.config.max_tokens)

    def adapt(self, device: torch.device | str, arithmetic: str = "float32") -> None:
        self.precision = precision(arithmetic, device)
        bytes_each = TOKEN_BYTES * self.config.layers * (self.config.dim + self.config.hidden)
        self.chunk_tokens = fitting_tokens(device, bytes_each, CHUNK_TOKENS)

    def encode(self, documents: Documents | LevelInputs) -> Tensor:
        """B documents -> [B, D] float32 (not normalised); zeros for a document without words."""
        if isinstance(documents, Documents):
            documents = to_device(self.layout.prepare(documents), self.device)
        vectors: Tensor = self.document_level(self.paragraph_inputs(documents), documents.absent)
        return vectors if documents.empty is None else vectors.masked_fill(documents.empty[:, None], 0.0)

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
        chunks = inputs.chunks
        if not chunks:
            return self.type_vectors.weight.new_zeros(0, self.config.dim)
        if self.word_vectors.requires_grad and torch.is_grad_enabled():
            # The gradient of a lookup is as large as the word vector table, so all chunks share one lookup.
            x = self.embed(torch.cat([chunk.ids.flatten() for chunk in chunks]))
            grids = x.split([chunk.ids.numel() for chunk in chunks])
            parts = [
                self.word_level(grid.view(*chunk.ids.shape, -1), chunk.absent)
                for grid, chunk in zip(grids, chunks, strict=True)
            ]
        else:
            parts = [self.word_level(self.embed(chunk.ids), chunk.absent) for chunk in chunks]
        return torch.cat(parts)[inputs.back]

    def embed(self, ids: Tensor) -> Tensor:
        """Word ids [...] -> vectors [..., D] in the working precision."""
        # index_select: the backward pass of F.embedding takes twice as long on a CPU.
        x = self.word_vectors.index_select(0, ids.flatten()).view(*ids.shape, -1)
        return (x * self.config.input_scale if self.config.input_scale != 1.0 else x).to(self.precision)


def encode_documents(
    encoder: Encoder, read: Callable[[NDArray[np.int64]], Any], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Encode rows as vectors [len(rows), dim] of unit length.

    On a GPU, batches are large, and each is prepared while the one before it is computed.

    read: rows -> documents.
    """
    device = encoder.device
    if device.type == "cpu":
        return encode(as_numpy(encoder.encode), read, rows, encoder.dim, "papers")
    layout = encoder.layout
    return encode(
        as_numpy(lambda inputs: encoder.encode(to_device(inputs, device))),
        lambda part: layout.prepare(read(part)),
        rows,
        encoder.dim,
        "papers",
        batch=GPU_BATCH,
        ahead=True,
    )
