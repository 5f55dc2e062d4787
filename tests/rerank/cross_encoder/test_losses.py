"""Losses compared with plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from citerec.rerank.cross_encoder.train import (
    hinge_loss,
    list_loss,
    listwise_loss,
    pointwise_loss,
)
from citerec.rerank.settings import ListLossSettings

LISTS = st.lists(
    st.lists(st.tuples(st.floats(-8, 8), st.booleans()), min_size=4, max_size=4), min_size=1, max_size=4
)


def tensors(lists: list[list[tuple[float, bool]]]) -> tuple[Tensor, Tensor, Tensor]:
    """Make logits, mask and relevance; the first paper of each list is cited."""
    logits = torch.tensor([[value for value, _ in row] for row in lists], dtype=torch.float64)
    mask = torch.tensor([[here for _, here in row] for row in lists])
    mask[:, 0] = True
    return logits, mask, torch.arange(4).expand(mask.shape) == 0


@given(LISTS, st.lists(st.booleans(), min_size=16, max_size=16))
def test_losses_match_plain_loops(lists: list[list[tuple[float, bool]]], cited: list[bool]) -> None:
    logits, mask, _ = tensors(lists)
    relevant = torch.tensor(cited).view(4, 4)[: len(lists)] & mask  # pointwise lists may have any number
    hinge, pointwise, listwise = [], [], []
    for row, here, labels in zip(logits.tolist(), mask.tolist(), relevant.tolist(), strict=True):
        scores = [1 / (1 + math.exp(-value)) for value in row]
        negatives = [place for place in range(1, len(row)) if here[place]]
        hinges = [max(0.0, scores[place] - scores[0] + 0.3) for place in negatives]
        hinge.append(sum(hinges) / len(hinges) if hinges else 0.0)
        losses = [-math.log(scores[i] if labels[i] else 1 - scores[i]) for i in [0, *negatives]]
        pointwise.append(sum(losses) / len(losses))
        total = sum(math.exp(row[place] / 2) for place in [0, *negatives])
        listwise.append(-math.log(math.exp(row[0] / 2) / total))
    for found, expected in (
        (hinge_loss(torch.sigmoid(logits), mask, 0.3), hinge),
        (pointwise_loss(logits, mask, relevant), pointwise),
        (listwise_loss(logits, mask, 2.0), listwise),
    ):
        assert found.item() == pytest.approx(sum(expected) / len(expected), abs=1e-9)


@given(LISTS, st.sampled_from(["hinge", "pointwise", "listwise"]))
def test_padding_does_not_affect_losses(lists: list[list[tuple[float, bool]]], name: str) -> None:
    logits, mask, first = tensors(lists)
    other = torch.where(mask, logits, logits.flip(1) + 3.0).requires_grad_()
    loss = list_loss(ListLossSettings(name), other, mask, first)
    given = list_loss(ListLossSettings(name), logits, mask, first)
    assert loss.item() == pytest.approx(given.item(), abs=1e-12)
    loss.backward()
    assert other.grad is not None and torch.isfinite(other.grad).all()
    assert (other.grad[~mask] == 0).all()
