"""The products behind attention and dropout against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hatten.layers import CpuAttention, dropout, rectify


def plain(qkv: Tensor, absent: Tensor | None) -> Tensor:
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    bias = None if absent is None else ~absent[:, None, None, :]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    return out.transpose(1, 2).reshape(*qkv.shape[:2], -1)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 60.0])  # at 60 the scores overflow a plain exponential
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.04)])
def test_attention_and_its_gradient_are_torchs(
    masked: bool, scale: float, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(3, 11, 3, 2, 5)
    qkv[:, :, :2] *= scale
    qkv = qkv.to(dtype).float()  # both sides start from the same numbers
    absent = (torch.arange(11) >= torch.tensor([11, 7, 1])[:, None]) if masked else None
    ours, theirs = qkv.clone().to(dtype).requires_grad_(), qkv.clone().double().requires_grad_()
    got, wanted = CpuAttention.apply(ours, absent), plain(theirs, absent)
    assert torch.isfinite(got).all()
    torch.testing.assert_close(got.double(), wanted, atol=tolerance, rtol=tolerance)
    direction = torch.randn(wanted.shape, dtype=torch.float64)
    got.backward(direction.to(dtype))
    wanted.backward(direction)
    assert ours.grad is not None and theirs.grad is not None
    difference = (ours.grad.double() - theirs.grad).norm()
    assert difference <= 3 * tolerance * (theirs.grad.norm() + scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_keeps_the_mean_and_follows_the_seed(dtype: torch.dtype) -> None:
    x = torch.ones(200_001, dtype=dtype)
    torch.manual_seed(3)
    once = dropout(x, 0.1)
    torch.manual_seed(3)
    assert torch.equal(once, dropout(x, 0.1))
    assert not torch.equal(once, dropout(x, 0.1))
    assert (once == 0).float().mean().item() == pytest.approx(0.1, abs=0.005)
    assert once.float().mean().item() == pytest.approx(1.0, abs=0.005)
    assert len(once.unique()) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_dropout_leaves_other_types_to_torch(dtype: torch.dtype) -> None:
    x = torch.ones(1000, dtype=dtype)
    torch.manual_seed(0)
    ours = dropout(x, 0.5)
    torch.manual_seed(0)
    assert torch.equal(ours, F.dropout(x, 0.5))
    assert torch.equal(dropout(x, 0.5, training=False), x)


def test_rectify_is_relu_in_bfloat16() -> None:
    values = torch.tensor([-1.5, -0.0, 0.0, 1e-30, 3.0, float("inf"), float("-inf")], dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(rectify(values.clone()), torch.relu(values))
