"""Kernels of HAtten's network (hatten.encoder), which imports them in place of torch's own.

Each computes what torch.nn.functional does, in the dtype of its input whatever that of the weights: faster on
a CPU, where F.dropout is slower than a matrix product and small heads are slow; and for a GPU, heads are
padded to a size that its kernels are fast for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PADDED_HEAD = 8
"""Multiples to which the size of heads is padded on a GPU."""
FAR = 30000.0
"""Subtracted from the score of an absent token: exp(-FAR) is 0 in every precision."""
LARGE = 1e30
"""Bound on sums of exponentials, well within the range of float32 and bfloat16."""


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    """Apply the layer in the dtype of x, whatever the dtype of its weights: [..., in] -> [..., out]."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))


def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    """Like `linear`, for layer normalisation."""
    return F.layer_norm(
        x, layer.normalized_shape, layer.weight.to(x.dtype), layer.bias.to(x.dtype), layer.eps
    )


def self_attention(x: Tensor, absent: Tensor | None, qkv: nn.Linear, out: nn.Linear, heads: int) -> Tensor:
    """Multi-head self-attention of Vaswani et al. 2017 with its output layer.

    x [n, L, D]; absent [n, L] bool, True for padding (None: no padding); qkv: D -> 3 D, out: D -> D.
    """
    if not attended_on_cpu(x):
        return _padded_attention(x, absent, qkv, out, heads)
    n, length, dim = x.shape
    parts = linear(x, qkv).view(n, length, 3, heads, dim // heads)
    if parts.dtype == torch.bfloat16 or torch.is_grad_enabled():
        attended: Tensor = CpuAttention.apply(parts, absent)
        return linear(attended, out)
    q, k, v = parts.permute(2, 0, 3, 1, 4)  # each [n, H, L, E]
    present = None if absent is None else ~absent[:, None, None, :]
    fused = F.scaled_dot_product_attention(q, k, v, attn_mask=present)
    return linear(fused.transpose(1, 2).flatten(2), out)


def attended_on_cpu(x: Tensor) -> bool:
    """Whether to use the attention of CPUs."""
    return x.device.type == "cpu"


def _padded_attention(x: Tensor, absent: Tensor | None, qkv: nn.Linear, out: nn.Linear, heads: int) -> Tensor:
    """`self_attention` with zeros added to each head.

    The fast kernels of GPUs need heads of a multiple of 8 numbers, unlike the paper's 25. Padded are the
    weights, not the activations.
    """
    n, length, dim = x.shape
    size = dim // heads
    more = -size % PADDED_HEAD
    weight = F.pad(qkv.weight.view(3, heads, size, dim), (0, 0, 0, more)).flatten(0, 2)
    bias = F.pad(qkv.bias.view(3, heads, size), (0, more)).flatten()
    last = F.pad(out.weight.view(dim, heads, size), (0, more)).flatten(1)
    q, k, v = (
        F.linear(x, weight.to(x.dtype), bias.to(x.dtype))
        .view(n, length, 3, heads, size + more)
        .permute(2, 0, 3, 1, 4)
    )
    present = None if absent is None else ~absent[:, None, None, :]
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=present, scale=size**-0.5)
    return F.linear(attended.transpose(1, 2).flatten(2), last.to(x.dtype), out.bias.to(x.dtype))


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
