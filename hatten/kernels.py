"""Kernels of HAtten's network (hatten.encoder), which imports them in place of torch's own.

Each computes the same as torch.nn.functional, in the dtype of its input, whatever that of the weights: faster
on a CPU, where F.dropout is slower than a matrix product, and with heads of a size for which torch is fast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PADDED_HEAD, SMALL_HEAD = 8, 16
"""Heads are padded to a multiple of PADDED_HEAD numbers: all heads on a GPU, whose fast kernels need it; on a
CPU those of less than SMALL_HEAD, which halves the time for the five heads of 10 of GloVe's 50 dimensions."""


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

    Zeros are added to each head, by padding the weights, not the activations.

    x [n, L, D]; absent [n, L] bool, True for padding (None: no padding); qkv: D -> 3 D, out: D -> D.
    """
    n, length, dim = x.shape
    size = dim // heads
    more = -size % PADDED_HEAD if size < SMALL_HEAD or x.device.type != "cpu" else 0
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


class _FeedForward(torch.autograd.Function):
    """`feed_forward` with gradients. Its hidden layer is written once and then changed in place; torch's ops
    copy it three times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        up, up_bias, down, down_bias = weights
        inputs = F.pad(x.flatten(0, -2), (0, 1), value=1.0)  # the bias is the weight of a column of ones
        weight = torch.cat([up, up_bias[:, None]], 1)
        hidden = (inputs @ weight.T).relu_()
        ctx.save_for_backward(inputs, weight, hidden, down)
        return torch.addmm(down_bias, hidden, down.T).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        inputs, weight, hidden, down = ctx.saved_tensors
        grad = grads[0].flatten(0, -2)
        inner = grad @ down
        torch.ops.aten.threshold_backward.grad_input(inner, hidden, 0, grad_input=inner)
        weight_grad = (inputs.T @ inner).T
        return (
            (inner @ weight[:, :-1]).view(grads[0].shape),
            weight_grad[:, :-1],
            weight_grad[:, -1],
            grad.T @ hidden,
            grad.sum(0),
        )


def feed_forward(x: Tensor, up: nn.Linear, down: nn.Linear) -> Tensor:
    """`down(relu(up(x)))` in the dtype of x, [..., D] -> [..., D]."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and torch.is_grad_enabled():
        result: Tensor = _FeedForward.apply(x, up.weight, up.bias, down.weight, down.bias)
        return result
    return linear(relu_in_place(linear(x, up)), down)


def relu_in_place(x: Tensor) -> Tensor:
    """ReLU in place."""
    if x.dtype == torch.bfloat16 and not torch.is_grad_enabled() and x.device.type == "cpu":
        # bfloat16 and int16 share the sign bit, and torch clamps int16 several times faster on CPUs.
        x.view(torch.int16).clamp_(min=0)
        return x
    return F.relu_(x)
