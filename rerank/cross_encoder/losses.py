"""Losses over the list of a query."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from citerec.rerank.settings import ListLossSettings


def list_loss(config: ListLossSettings, logits: Tensor, mask: Tensor, relevant: Tensor) -> Tensor:
    """Compute the configured loss. logits: [Q, n]; mask, relevant: bool [Q, n], as below -> scalar"""
    if config.name == "hinge":
        return hinge_loss(torch.sigmoid(logits), mask, config.margin)
    if config.name == "pointwise":
        return pointwise_loss(logits, mask, relevant)
    return listwise_loss(logits, mask, config.temperature)


def hinge_loss(scores: Tensor, mask: Tensor, margin: float = 0.1) -> Tensor:
    """Mean over queries of the mean over negatives of max(0, s(q, n) - s(q, p) + margin): Gu et al. 2022,
    equation 3, with one cited paper per query (section 4.3).

    scores: [Q, 1 + n] of the cited paper (first) and its negatives, after the sigmoid; mask: bool [Q, 1 + n],
    False for padding. A query without negatives has a loss of 0.
    """
    negatives = mask[:, 1:]
    hinges = F.relu(scores[:, 1:] - scores[:, :1] + margin).masked_fill(~negatives, 0.0)
    return (hinges.sum(1) / negatives.sum(1).clamp(min=1)).mean()


def pointwise_loss(logits: Tensor, mask: Tensor, relevant: Tensor) -> Tensor:
    """Mean over queries of the mean binary cross-entropy of their pairs: Nogueira et al. 2020, equation 1.

    logits: [Q, n], before the sigmoid; mask: bool [Q, n], False for padding; relevant: bool [Q, n], True for
    cited papers.
    """
    labels = relevant.to(logits.dtype)
    entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").masked_fill(~mask, 0.0)
    return (entropy.sum(1) / mask.sum(1)).mean()


def listwise_loss(logits: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """Mean over queries of the cross-entropy of the cited paper in a softmax over its list: ListNet's top-one
    probability with a single relevant paper, Cao et al. 2007.

    logits: [Q, 1 + n], before the sigmoid; mask: as for `hinge_loss`.
    """
    scaled = (logits / temperature).masked_fill(~mask, -torch.inf)
    return (torch.logsumexp(scaled, 1) - scaled[:, 0]).mean()
