"""The building blocks of HAtten: a transformer layer, multi-head pooling, sinusoidal positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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
        qkv = linear(x, self.qkv).view(n, length, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [n, H, L, D/H]
        attended = attention(q, k, v, absent).transpose(1, 2).reshape(n, length, dim)
        x = norm(x + F.dropout(linear(attended, self.out), drop), self.norm1)
        hidden = rectify(linear(x, self.up))
        return norm(x + F.dropout(linear(hidden, self.down), drop), self.norm2)


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


def attention(q: Tensor, k: Tensor, v: Tensor, absent: Tensor | None) -> Tensor:
    """Scaled dot-product attention; q, k, v [n, H, L, E], absent [n, L] -> [n, H, L, E]."""
    if q.dtype == torch.float32:
        bias = None if absent is None else ~absent[:, None, None, :]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    # Torch's fused kernel is slow in bf16 on CPUs at this head size: two products and a softmax need half its
    # time.
    n, heads, length, size = q.shape
    q, k, v = (part.reshape(n * heads, length, size) for part in (q / math.sqrt(size), k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(n, heads, length, length)
    if absent is not None:
        bias = torch.zeros(n, 1, 1, length, dtype=q.dtype, device=q.device)
        scores += bias.masked_fill_(absent[:, None, None, :], -torch.inf)
    share = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(share.view(n * heads, length, length), v).view(n, heads, length, size)


def rectify(x: Tensor) -> Tensor:
    """ReLU in place."""
    if x.dtype == torch.bfloat16 and not torch.is_grad_enabled() and x.device.type == "cpu":
        # The sign bit of a bf16 is that of an int16, and torch clamps those several times faster on CPUs.
        x.view(torch.int16).clamp_(min=0)
        return x
    return F.relu_(x)
