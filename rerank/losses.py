"""What a reranker is trained to minimise: for each query a list of papers.

The lists of `hinge_loss` and `listwise_loss` are a cited paper, the first, and its negatives; those of
`pointwise_loss` may hold any number of cited papers anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from datasets.errors import InputError


def hinge_loss(scores: Tensor, there: Tensor, margin: float = 0.1) -> Tensor:
    """Mean over queries of the mean over negatives of max(0, s(q, n) - s(q, p) + margin).

    Gu et al. 2022, equation 3, with one cited paper a query (section 4.3).

    scores: [Q, 1 + n] of the cited paper (first) and its negatives, after the sigmoid; there: bool, which of
    them are there; a query without negatives counts 0.
    """
    negatives = there[:, 1:]
    hinges = F.relu(scores[:, 1:] - scores[:, :1] + margin).masked_fill(~negatives, 0.0)
    return (hinges.sum(1) / negatives.sum(1).clamp(min=1)).mean()


def pointwise_loss(logits: Tensor, there: Tensor, relevant: Tensor) -> Tensor:
    """Mean over queries of the mean cross-entropy of its pairs, each by itself: Nogueira et al. 2020, eq. 1.

    logits: [Q, n], before the sigmoid; there, relevant: bool [Q, n], which pairs are there, and are of a
    cited paper.
    """
    labels = relevant.to(logits.dtype)
    entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").masked_fill(~there, 0.0)
    return (entropy.sum(1) / there.sum(1)).mean()


def listwise_loss(logits: Tensor, there: Tensor, temperature: float = 1.0) -> Tensor:
    """Mean over queries of the cross-entropy of the cited paper among its list (a softmax over the list).

    ListNet's top-one probability with a single relevant paper: Cao et al. 2007.

    logits: [Q, 1 + n], before the sigmoid; there: as for `hinge_loss`.
    """
    scaled = (logits / temperature).masked_fill(~there, -torch.inf)
    return (torch.logsumexp(scaled, 1) - scaled[:, 0]).mean()


@dataclass(frozen=True)
class LossConfig:
    """Which of them, on a reranker's logits."""

    name: str = "hinge"
    """hinge (of sigmoid scores; Gu et al. 2022) | pointwise (Nogueira et al. 2020) | listwise"""
    margin: float = 0.1
    """of hinge"""
    temperature: float = 1.0
    """of listwise"""

    def __post_init__(self) -> None:
        if self.name not in ("hinge", "pointwise", "listwise"):
            raise InputError(f"model.loss.name={self.name}: choose hinge, pointwise or listwise")
        if self.temperature <= 0:
            raise InputError(f"model.loss.temperature={self.temperature}: must be above 0")

    def __call__(self, logits: Tensor, there: Tensor, relevant: Tensor) -> Tensor:
        """logits [Q, n] of lists, `there` and `relevant` bool, as the loss wants them -> scalar"""
        if self.name == "hinge":
            return hinge_loss(torch.sigmoid(logits), there, self.margin)
        if self.name == "pointwise":
            return pointwise_loss(logits, there, relevant)
        return listwise_loss(logits, there, self.temperature)
