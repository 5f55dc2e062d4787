"""Losses over lists of papers: of a reranker, and of a student that learns a reranker's scores."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rerank.settings import DistilLossSettings, ListLossSettings


def list_loss(config: ListLossSettings, logits: Tensor, there: Tensor, relevant: Tensor) -> Tensor:
    """The loss that the settings name. logits: [Q, n]; there, relevant: bool [Q, n], as below -> scalar"""
    if config.name == "hinge":
        return hinge_loss(torch.sigmoid(logits), there, config.margin)
    if config.name == "pointwise":
        return pointwise_loss(logits, there, relevant)
    return listwise_loss(logits, there, config.temperature)


def hinge_loss(scores: Tensor, there: Tensor, margin: float = 0.1) -> Tensor:
    """Mean over queries of the mean over negatives of max(0, s(q, n) - s(q, p) + margin): Gu et al. 2022,
    equation 3, with one cited paper a query (section 4.3).

    scores: [Q, 1 + n] of the cited paper (first) and its negatives, after the sigmoid; there: bool [Q, 1 +
    n], which of them exist; a query without negatives counts 0.
    """
    negatives = there[:, 1:]
    hinges = F.relu(scores[:, 1:] - scores[:, :1] + margin).masked_fill(~negatives, 0.0)
    return (hinges.sum(1) / negatives.sum(1).clamp(min=1)).mean()


def pointwise_loss(logits: Tensor, there: Tensor, relevant: Tensor) -> Tensor:
    """Mean over queries of the mean cross-entropy of their pairs, each on its own: Nogueira et al. 2020, eq.
    1.

    logits: [Q, n], before the sigmoid; there, relevant: bool [Q, n], which pairs exist, and are of a cited
    paper.
    """
    labels = relevant.to(logits.dtype)
    entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").masked_fill(~there, 0.0)
    return (entropy.sum(1) / there.sum(1)).mean()


def listwise_loss(logits: Tensor, there: Tensor, temperature: float = 1.0) -> Tensor:
    """Mean over queries of the cross-entropy of the cited paper in a softmax over its list: ListNet's top-one
    probability with a single relevant paper, Cao et al. 2007.

    logits: [Q, 1 + n], before the sigmoid; there: as for `hinge_loss`.
    """
    scaled = (logits / temperature).masked_fill(~there, -torch.inf)
    return (torch.logsumexp(scaled, 1) - scaled[:, 0]).mean()


def distil_loss(config: DistilLossSettings, cosines: Tensor, teacher: Tensor, cited: Tensor) -> Tensor:
    """Cosines and the teacher's logits [Q, N] (NaN: not scored), cited: bool [Q, N] -> scalar"""
    if config.name == "margin_mse":
        return margin_mse(cosines / config.temperature, teacher / config.teacher_temperature, cited)
    return listwise_kl(cosines, teacher, config.temperature, config.teacher_temperature)


def margin_mse(student: Tensor, teacher: Tensor, cited: Tensor) -> Tensor:
    """Mean over (query, cited paper, other paper) of ((s+ - s-) - (t+ - t-))^2: Hofstätter et al. 2020.

    student, teacher: scores [Q, N], the teacher's NaN for pairs it did not score, which take no part. cited:
    bool [Q, N]. 0 where there is nothing to compare.
    """
    known = ~torch.isnan(teacher)
    query, positive = (cited & known).nonzero(as_tuple=True)
    others = (known & ~cited)[query]  # [cited, N]
    gaps = (student - torch.nan_to_num(teacher))[query]
    gaps = gaps.gather(1, positive[:, None]) - gaps
    return gaps.square().masked_fill(~others, 0.0).sum() / others.sum().clamp(min=1)


def listwise_kl(
    student: Tensor, teacher: Tensor, temperature: float = 1.0, teacher_temperature: float = 1.0
) -> Tensor:
    """Mean over queries of KL(teacher || student), softmax distributions over the papers that the teacher
    scored: Hinton et al. 2015, Cao et al. 2007.

    student, teacher: as for `margin_mse`; a query without scored papers counts nothing.
    """
    known = ~torch.isnan(teacher)
    some = known.any(1)
    known, student, teacher = known[some], student[some], teacher[some]
    if not len(known):
        return student.sum() * 0.0
    wanted = (teacher / teacher_temperature).masked_fill(~known, -torch.inf).log_softmax(1)
    given = (student / temperature).masked_fill(~known, -torch.inf).log_softmax(1)
    terms = wanted.exp() * (wanted.masked_fill(~known, 0.0) - given.masked_fill(~known, 0.0))
    return terms.sum(1).mean()
