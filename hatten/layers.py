"""The building blocks of HAtten: transformer layer, multi-head pooling, positions, their CPU kernels, and the
mean path, a weighted mean of word vectors around the encoder (`residual=mean`, not in the paper).

The encoder of the paper learns slowly from random weights, while an idf-weighted mean of word vectors
retrieves well untrained. Added to the output, it is the start from which the encoder learns the rest.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from hatten.documents import NEAR, Documents
from hatten.means import REACH, START, START_NEAR, MeanEncoder, marker_distances, paragraph_kinds

FAR = 30000.0
"""Taken off the score of an absent token: exp(-FAR) is 0 in every precision."""
LARGE = 1e30
"""Bound on sums of exponentials, far from where float32 and bfloat16 end."""


def sinusoids(length: int, dim: int) -> Tensor:
    """Positions of Vaswani et al. 2017, section 3.5: sines at even, cosines at odd places; [length, dim]."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * (-math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)[:, : dim // 2]
    return table


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    """The layer in the precision of x, whatever that of its weights: [..., in] -> [..., out]."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))


def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    return F.layer_norm(
        x, layer.normalized_shape, layer.weight.to(x.dtype), layer.bias.to(x.dtype), layer.eps
    )


class TransformerLayer(nn.Module):
    """One post-norm layer of Vaswani et al. 2017, ReLU in its feed-forward part."""

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
        """x [n, L, D]; absent [n, L] bool, True where there is no token (None: all are there) -> [n, L, D]"""
        drop = self.dropout if self.training else 0.0
        n, length, dim = x.shape
        # Dropout stands where Vaswani et al. 2017, section 5.4, has it: on what a part adds, not inside it.
        attended = attention(linear(x, self.qkv).view(n, length, 3, self.heads, dim // self.heads), absent)
        x = norm(x + dropout(linear(attended, self.out), drop), self.norm1)
        hidden = relu_in_place(linear(x, self.up))
        return norm(x + dropout(linear(hidden, self.down), drop), self.norm2)


class MultiHeadPooling(nn.Module):
    """One vector of many: Liu and Lapata 2019; Gu et al. 2022, equations 1 and 2."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.score = nn.Linear(dim, heads)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def attention(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """Share of each token in each head, x [n, L, D] -> [n, H, L] float32; sums to 1 over L."""
        scores = linear(x, self.score).transpose(1, 2).float()
        if absent is not None:
            scores = scores.masked_fill(absent[:, None], -torch.inf)
        return torch.softmax(scores, -1)

    def forward(self, x: Tensor, absent: Tensor | None) -> Tensor:
        """x [n, L, D]; absent [n, L] -> [n, D] float32; a row that is wholly absent gives NaN."""
        n, _, dim = x.shape
        share = self.attention(x, absent)
        # The sum over tokens goes before the linear map to values: the same vector for 1/L of the work.
        mixed = torch.bmm(share.to(x.dtype), x).float()  # [n, H, D]
        weight = self.value.weight.view(self.heads, dim // self.heads, dim)
        bias = self.value.bias.view(self.heads, -1)
        value = torch.einsum("nhd,hed->nhe", mixed, weight) + bias
        return F.linear(torch.relu(value.reshape(n, dim)), self.out.weight, self.out.bias)


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
    """Attention as plain matrix products: at small head sizes faster than torch's kernel for CPUs, in
    bfloat16 (half the time) and in the backward pass.

    Queries, keys and values carry one column more, so that the products do what would be passes over [L, L]
    arrays: it adds the mask to the scores, sums each row of weights (values), and in the backward pass takes
    the row's mean off. So weights stay as the exponential gives them, and rows are divided by their sums
    afterwards.
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
        if qkv.dtype == torch.bfloat16:  # in float32, torch's softmax is faster than its exponential
            weight = torch.bmm(q, k.transpose(1, 2)).exp_()
            out = torch.bmm(weight, v)
            low, high = torch.aminmax(out[..., size])
            if not 1 / LARGE < float(low) <= float(high) < LARGE:  # so large scores need the safe way
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
        of_out = torch.empty_like(parts[0])
        torch.div(grad, total, out=of_out[..., :size])
        of_out[..., size] = (of_out[..., :size] * result.transpose(1, 2)).sum(-1).neg_()
        of_out = of_out.view(n * heads, length, size + 1)
        q, k, v = parts.view(3, n * heads, length, size + 1)
        of_score = torch.bmm(of_out, v.transpose(1, 2)).mul_(weight)
        of_qkv = result.new_empty(n, length, 3, heads, size)
        each = of_qkv.permute(2, 0, 3, 1, 4)
        shape = (n, heads, length, size + 1)
        torch.mul(torch.bmm(of_score, k).view(shape)[..., :size], size**-0.5, out=each[0])
        each[1] = torch.bmm(of_score.transpose(1, 2), q).view(shape)[..., :size]
        each[2] = torch.bmm(weight.transpose(1, 2), of_out).view(shape)[..., :size]
        return of_qkv, None


def dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """Dropout, on a CPU with four random numbers to a draw: torch's own take longer than a matrix product.

    There the rate is the nearest one at which 1 / (1 - rate) is a bfloat16 (0.0986 for 0.1), so that the mean
    of x is kept. It follows from torch.manual_seed alone.
    """
    quick = x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16) and rate < 1.0
    if not training or rate == 0.0 or not quick:
        return F.dropout(x, rate, training)
    factor = torch.tensor(1.0 / (1.0 - rate), dtype=torch.bfloat16)
    kept = round(2**15 / float(factor))  # of 2 ** 15
    bits = int(factor.view(torch.int16))
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = draws.view(torch.int16)[: x.numel()].bitwise_right_shift_(1)  # -2 ** 14 to 2 ** 14 - 1
    # The sign bit, spread over all bits, says which are kept: those that get the bits of the factor.
    mask = numbers.sub_(kept - 2**14).bitwise_right_shift_(15).bitwise_and_(bits).view(torch.bfloat16)
    return x * mask.view(x.shape).to(x.dtype)


def relu_in_place(x: Tensor) -> Tensor:
    """ReLU in place."""
    if x.dtype == torch.bfloat16 and not torch.is_grad_enabled() and x.device.type == "cpu":
        # The sign bit of a bf16 is that of an int16, and torch clamps those several times faster on CPUs.
        x.view(torch.int16).clamp_(min=0)
        return x
    return F.relu_(x)


class MeanPath(nn.Module):
    """The weights of a `MeanEncoder`, to be trained."""

    def __init__(self, words: int, near: int = 0) -> None:
        """near: paragraphs of the words near the mark that queries have."""
        super().__init__()
        self.word_weight = nn.Parameter(torch.zeros(words))
        self.distance_weight = nn.Parameter(torch.zeros(2 * REACH))
        weights = torch.zeros(2, NEAR + near)
        for (kind, query), weight in START.items():
            weights[int(query), kind] = float(np.log(weight))
        weights[1, NEAR:] = float(np.log(START_NEAR))
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
        if not torch.is_grad_enabled() and not self.training and word_vectors.device.type == "cpu":
            return torch.from_numpy(self.frozen(word_vectors).encode(documents))  # several times as fast
        device = word_vectors.device
        index = torch.from_numpy(documents.index).to(device)
        if len(documents.paragraphs) == 0:
            return word_vectors.new_zeros(len(index), word_vectors.shape[1])
        tokens = torch.from_numpy(documents.paragraphs.values.astype(np.int64)).to(device)
        weights = F.softplus(self.word_weight)[tokens]
        if self.training and self.dropout > 0:
            weights = weights * (torch.rand_like(weights) >= self.dropout)
        places, buckets = marker_distances(documents, self.target_id)
        if len(places):
            near = self.distance_weight.exp()[torch.from_numpy(buckets).to(device)]
            weights = weights.index_put((torch.from_numpy(places).to(device),), weights[places] * near)
        starts = torch.from_numpy(documents.paragraphs.offsets[:-1].copy()).to(device)
        bags = F.embedding_bag(tokens, word_vectors, starts, mode="sum", per_sample_weights=weights)
        bags = F.normalize(bags, dim=1)
        query, types = paragraph_kinds(documents, self.paragraph_weight.shape[1])
        shares = self.paragraph_weight.exp()[torch.from_numpy(query), torch.from_numpy(types)]
        share = shares.masked_fill(index < 0, 0.0)
        return F.normalize((bags[index.clamp(min=0)] * share[:, :, None]).sum(1), dim=1)

    def frozen(self, word_vectors: Tensor) -> MeanEncoder:
        """What it has learned, without torch, over vectors [V, D] on the CPU; shares their memory."""
        learned = {name: weight.detach().numpy() for name, weight in self.named_parameters()}
        return MeanEncoder(word_vectors.detach().numpy(), **learned, target_id=self.target_id)
