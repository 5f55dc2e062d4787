"""Building blocks of HAtten: transformer layer, multi-head pooling, positions and their CPU kernels, and the
mean path, a weighted mean of word vectors added to the encoder's output (`residual=mean`, not in the paper).

The encoder of the paper learns slowly from random weights, whereas an idf-weighted mean of word vectors
retrieves well without training. With the mean path, the encoder only has to learn a residual.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from citerec.hatten.documents import NEAR, Documents
from citerec.hatten.inputs import MeanInputs, mean_inputs
from citerec.hatten.static.means import (
    DISTANCE_BUCKETS,
    INITIAL_NEAR_WEIGHT,
    INITIAL_WEIGHTS,
    MeanEncoder,
)
from citerec.retrieval.encoders.nets import to_device

PADDED_HEAD = 8
"""Multiples to which the size of heads is padded on a GPU."""
FAR = 30000.0
"""Subtracted from the score of an absent token: exp(-FAR) is 0 in every precision."""
LARGE = 1e30
"""Bound on sums of exponentials, well within the range of float32 and bfloat16."""


def sinusoids(length: int, dim: int) -> Tensor:
    """Sinusoidal positions [length, dim] of Vaswani et al. 2017, section 3.5: even sines, odd cosines."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * (-math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)[:, : dim // 2]
    return table


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    """Apply the layer in the dtype of x, whatever the dtype of its weights: [..., in] -> [..., out]."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))


def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    """Like `linear`, for layer normalisation."""
    return F.layer_norm(
        x, layer.normalized_shape, layer.weight.to(x.dtype), layer.bias.to(x.dtype), layer.eps
    )


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
        drop = self.dropout if self.training else 0.0
        n, length, dim = x.shape
        # As in Vaswani et al. 2017, section 5.4, dropout applies to the output of a part, not inside it.
        if attended_on_cpu(x):
            qkv = linear(x, self.qkv).view(n, length, 3, self.heads, dim // self.heads)
            attended = linear(attention(qkv, absent), self.out)
        else:
            attended = self._padded_attention(x, absent)
        x = norm(x + dropout(attended, drop), self.norm1)
        hidden = relu_in_place(linear(x, self.up))
        return norm(x + dropout(linear(hidden, self.down), drop), self.norm2)

    def _padded_attention(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """Self-attention and its output layer, x [n, L, D] -> [n, L, D], with zeros added to each head.

        The fast kernels of GPUs need heads of a multiple of 8 numbers, unlike the paper's 25. Padded are the
        weights, not the activations.
        """
        n, length, dim = x.shape
        size = dim // self.heads
        more = -size % PADDED_HEAD
        qkv = F.pad(self.qkv.weight.view(3, self.heads, size, dim), (0, 0, 0, more)).flatten(0, 2)
        bias = F.pad(self.qkv.bias.view(3, self.heads, size), (0, more)).flatten()
        out = F.pad(self.out.weight.view(dim, self.heads, size), (0, more)).flatten(1)
        heads = F.linear(x, qkv.to(x.dtype), bias.to(x.dtype)).view(n, length, 3, self.heads, size + more)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each [n, H, L, E]
        present = None if absent is None else ~absent[:, None, None, :]
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=present, scale=size**-0.5)
        return F.linear(attended.transpose(1, 2).flatten(2), out.to(x.dtype), self.out.bias.to(x.dtype))


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


def attended_on_cpu(x: Tensor) -> bool:
    """Whether to use the attention of CPUs."""
    return x.device.type == "cpu"


def attention(qkv: Tensor, absent: Tensor | None) -> Tensor:
    """Scaled dot-product attention; qkv [n, L, 3, H, E], absent [n, L] -> [n, L, H * E]."""
    n, length, _, heads, size = qkv.shape
    if qkv.device.type == "cpu" and (qkv.dtype == torch.bfloat16 or torch.is_grad_enabled()):
        attended: Tensor = CpuAttention.apply(qkv, absent)
        return attended
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [n, H, L, E]
    bias = None if absent is None else ~absent[:, None, None, :]
    fused = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    return fused.transpose(1, 2).reshape(n, length, heads * size)


class CpuAttention(torch.autograd.Function):
    """Attention as plain matrix products. At small head sizes it is faster than torch's CPU kernel, both in
    bfloat16 (half the time) and in the backward pass.

    Queries, keys and values get an extra column, so that matrix products replace passes over [L, L] arrays:
    it adds the mask to the scores, sums each row of weights and, in the backward pass, subtracts the row's
    mean. The weights therefore stay unnormalised, and each output row is divided by its sum.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, absent: Tensor | None) -> Tensor:
        n, length, _, heads, size = qkv.shape
        parts = qkv.new_empty(3, n, heads, length, size + 1)
        torch.mul(qkv[:, :, 0].transpose(1, 2), size**-0.5, out=parts[0, ..., :size])
        parts[1:, ..., :size] = qkv[:, :, 1:].permute(2, 0, 3, 1, 4)
        parts[..., size] = 1.0
        parts[1, ..., size] = 0.0 if absent is None else absent[:, None].to(qkv.dtype) * -FAR
        q, k, v = parts.view(3, n * heads, length, size + 1)
        weight, out = None, None
        if qkv.dtype == torch.bfloat16:  # in float32, softmax is faster than exp
            weight = torch.bmm(q, k.transpose(1, 2)).exp_()
            out = torch.bmm(weight, v)
            low, high = torch.aminmax(out[..., size])
            if not 1 / LARGE < float(low) <= float(high) < LARGE:  # exp may overflow: use softmax below
                out = None
        if out is None:
            weight = torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1, torch.float32).to(qkv.dtype)
            out = torch.bmm(weight, v)
        out = out.view(n, heads, length, size + 1)
        result = qkv.new_empty(n, length, heads, size)
        torch.div(out[..., :size], out[..., size:], out=result.transpose(1, 2))
        ctx.save_for_backward(parts, weight, out[..., size:], result)
        return result.view(n, length, heads * size)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        parts, weight, total, result = ctx.saved_tensors
        n, length, heads, size = result.shape
        grad = grad.reshape(n, length, heads, size).transpose(1, 2)
        grad_out = torch.empty_like(parts[0])
        torch.div(grad, total, out=grad_out[..., :size])
        grad_out[..., size] = (grad_out[..., :size] * result.transpose(1, 2)).sum(-1).neg_()
        grad_out = grad_out.view(n * heads, length, size + 1)
        q, k, v = parts.view(3, n * heads, length, size + 1)
        grad_score = torch.bmm(grad_out, v.transpose(1, 2)).mul_(weight)
        grad_qkv = result.new_empty(n, length, 3, heads, size)
        grad_q, grad_k, grad_v = grad_qkv.permute(2, 0, 3, 1, 4)
        shape = (n, heads, length, size + 1)
        torch.mul(torch.bmm(grad_score, k).view(shape)[..., :size], size**-0.5, out=grad_q)
        grad_k[:] = torch.bmm(grad_score.transpose(1, 2), q).view(shape)[..., :size]
        grad_v[:] = torch.bmm(weight.transpose(1, 2), grad_out).view(shape)[..., :size]
        return grad_qkv, None


def dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """Dropout; on a CPU, one 64-bit draw serves four elements, since F.dropout is slower than a matmul there.

    On a CPU the rate is rounded so that 1 / (1 - rate) is a bfloat16 (0.0986 for 0.1), which preserves the
    mean of x. The result depends only on torch.manual_seed.
    """
    use_fast = x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16) and rate < 1.0
    if not training or rate == 0.0 or not use_fast:
        return F.dropout(x, rate, training)
    factor = torch.tensor(1.0 / (1.0 - rate), dtype=torch.bfloat16)
    kept = round(2**15 / float(factor))  # out of 2 ** 15
    bits = int(factor.view(torch.int16))
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = draws.view(torch.int16)[: x.numel()].bitwise_right_shift_(1)  # -2 ** 14 to 2 ** 14 - 1
    # Spreading the sign bit over all bits gives a mask, which leaves kept elements the bits of the factor.
    mask = numbers.sub_(kept - 2**14).bitwise_right_shift_(15).bitwise_and_(bits).view(torch.bfloat16)
    return x * mask.view(x.shape).to(x.dtype)


def relu_in_place(x: Tensor) -> Tensor:
    """ReLU in place."""
    if x.dtype == torch.bfloat16 and not torch.is_grad_enabled() and x.device.type == "cpu":
        # bfloat16 and int16 share the sign bit, and torch clamps int16 several times faster on CPUs.
        x.view(torch.int16).clamp_(min=0)
        return x
    return F.relu_(x)


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

    def encode(self, word_vectors: Tensor, documents: Documents) -> Tensor:
        """word_vectors [V, D] -> [B, D] of unit length; zeros for a document without words."""
        device = word_vectors.device
        if not torch.is_grad_enabled() and not self.training and device.type == "cpu":
            return torch.from_numpy(self.to_numpy(word_vectors).encode(documents))  # several times as fast
        inputs = mean_inputs(documents, self.target_id, self.kinds)
        vectors: Tensor = self(word_vectors, to_device(inputs, device))
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

    @property
    def kinds(self) -> int:
        """Number of kinds of paragraphs."""
        return self.paragraph_weight.shape[1]

    def to_numpy(self, word_vectors: Tensor) -> MeanEncoder:
        """Return the encoder in NumPy, over vectors [V, D]; on a CPU it shares memory with the tensors."""
        learned = {name: weight.detach().cpu().numpy() for name, weight in self.named_parameters()}
        return MeanEncoder(word_vectors.detach().cpu().numpy(), **learned, target_id=self.target_id)
