"""Losses of rerankers against loops and against torch's own."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from datasets.errors import InputError
from rerank.module import LossConfig, hinge_loss, listwise_loss, pointwise_loss

LISTS = st.lists(
    st.lists(st.tuples(st.floats(-8, 8), st.booleans()), min_size=4, max_size=4), min_size=1, max_size=4
)


def tensors(lists: list[list[tuple[float, bool]]]) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.tensor([[value for value, _ in row] for row in lists], dtype=torch.float64)
    there = torch.tensor([[here for _, here in row] for row in lists])
    there[:, 0] = True
    return logits, there


def first(there: torch.Tensor) -> torch.Tensor:
    """The first of each list is the cited one."""
    return torch.arange(there.shape[1]).expand(there.shape) == 0


@settings(deadline=None)
@given(LISTS)
def test_losses_are_what_loops_compute(lists: list[list[tuple[float, bool]]]) -> None:
    logits, there = tensors(lists)
    hinge, pointwise, listwise = [], [], []
    for row, here in zip(logits.tolist(), there.tolist(), strict=True):
        scores = [1 / (1 + math.exp(-value)) for value in row]
        negatives = [place for place in range(1, len(row)) if here[place]]
        hinges = [max(0.0, scores[place] - scores[0] + 0.3) for place in negatives]
        hinge.append(sum(hinges) / len(hinges) if hinges else 0.0)
        losses = [-math.log(scores[0]), *(-math.log(1 - scores[place]) for place in negatives)]
        pointwise.append(sum(losses) / len(losses))
        total = sum(math.exp(row[place] / 2) for place in [0, *negatives])
        listwise.append(-math.log(math.exp(row[0] / 2) / total))
    for found, expected in (
        (hinge_loss(torch.sigmoid(logits), there, 0.3), hinge),
        (pointwise_loss(logits, there, first(there)), pointwise),
        (listwise_loss(logits, there, 2.0), listwise),
    ):
        assert found.item() == pytest.approx(sum(expected) / len(expected), abs=1e-9)


@settings(deadline=None)
@given(LISTS, st.sampled_from(["hinge", "pointwise", "listwise"]))
def test_absent_pairs_have_no_part(lists: list[list[tuple[float, bool]]], name: str) -> None:
    logits, there = tensors(lists)
    other = torch.where(there, logits, logits.flip(1) + 3.0).requires_grad_()
    loss = LossConfig(name)(other, there, first(there))
    given = LossConfig(name)(logits, there, first(there))
    assert loss.item() == pytest.approx(given.item(), abs=1e-12)
    loss.backward()
    assert other.grad is not None and torch.isfinite(other.grad).all()
    assert (other.grad[~there] == 0).all()


@settings(deadline=None)
@given(LISTS, st.lists(st.booleans(), min_size=16, max_size=16))
def test_pointwise_lists_may_have_any_number_of_cited_papers(
    lists: list[list[tuple[float, bool]]], cited: list[bool]
) -> None:
    logits, there = tensors(lists)
    relevant = torch.tensor(cited).view(4, 4)[: len(lists)] & there
    expected = []
    for row, here, labels in zip(logits.tolist(), there.tolist(), relevant.tolist(), strict=True):
        losses = [
            -math.log(1 / (1 + math.exp(-value if label else value)))
            for value, there_too, label in zip(row, here, labels, strict=True)
            if there_too
        ]
        expected.append(sum(losses) / len(losses))
    found = pointwise_loss(logits, there, relevant).item()
    assert found == pytest.approx(sum(expected) / len(expected), abs=1e-9)


def test_torch_agrees_on_whole_lists() -> None:
    logits, there = torch.randn(5, 7, generator=torch.manual_seed(0)), torch.ones(5, 7, dtype=torch.bool)
    cited = torch.zeros(5, dtype=torch.long)
    torch.testing.assert_close(listwise_loss(logits, there), F.cross_entropy(logits, cited))
    pairs = torch.sigmoid(logits[:, :1].expand(-1, 6)), torch.sigmoid(logits[:, 1:])
    ranking = F.margin_ranking_loss(*pairs, torch.ones(5, 6), margin=0.1)
    torch.testing.assert_close(hinge_loss(torch.sigmoid(logits), there), ranking)


def test_a_pair_beyond_the_margin_teaches_the_hinge_nothing() -> None:
    logits = torch.tensor([[3.0, -3.0, 2.9]], requires_grad=True)
    hinge_loss(torch.sigmoid(logits), torch.ones(1, 3, dtype=torch.bool), 0.1).backward()
    assert logits.grad is not None
    cited, far, near = logits.grad[0].tolist()
    assert far == 0 and cited < 0 < near


@pytest.mark.parametrize(
    ("given", "message"),
    [({"name": "triplet"}, "model.loss.name=triplet: choose hinge"), ({"temperature": 0.0}, "above 0")],
)
def test_options_that_do_not_work_are_named(given: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LossConfig(**given)
