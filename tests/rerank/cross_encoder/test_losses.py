"""Losses compared with plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from citerec.rerank.cross_encoder.losses import (
    hinge_loss,
    list_loss,
    listwise_kl,
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


def teacher_case(queries: int, papers: int, seed: int) -> tuple[Tensor, Tensor]:
    """Make scores of a student, and scores of a teacher with gaps."""
    rng = np.random.default_rng(seed)
    student, teacher = (torch.from_numpy(rng.normal(size=(queries, papers))) for _ in range(2))
    teacher[torch.from_numpy(rng.random((queries, papers)) < 0.4)] = torch.nan
    return student.requires_grad_(), teacher


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 10_000), st.sampled_from([0.05, 1.0, 3.0]))
def test_the_distillation_loss_matches_plain_loops(
    queries: int, papers: int, seed: int, temperature: float
) -> None:
    student, teacher = teacher_case(queries, papers, seed)
    divergences = []
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        known = [place for place in range(papers) if not math.isnan(t[place])]
        if known:
            p = [math.exp(t[place] / 2) for place in known]
            q = [math.exp(s[place] / temperature) for place in known]
            p, q = ([value / sum(part) for value in part] for part in (p, q))
            divergences.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    loss = listwise_kl(student, teacher, temperature, 2.0)
    assert loss.item() == pytest.approx(sum(divergences) / max(len(divergences), 1), abs=1e-9)
    loss.backward()
    assert student.grad is not None and torch.isfinite(student.grad).all()


def test_a_student_that_agrees_has_nothing_to_learn() -> None:
    _, teacher = teacher_case(5, 7, 1)
    same = torch.nan_to_num(teacher, nan=3.0) * 0.1 + 4.0  # papers without teacher scores are ignored
    assert float(listwise_kl(same, teacher, 0.1)) == pytest.approx(0, abs=1e-12)
    assert float(listwise_kl(-same, teacher, 0.1)) > 0.1
