"""What a student learns of a teacher's scores: their differences, or their softmax over a list."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from datasets.errors import InputError


def margin_mse(student: Tensor, teacher: Tensor, cited: Tensor) -> Tensor:
    """Mean over (query, cited paper, other paper) of ((s+ - s-) - (t+ - t-))^2: Hofstätter et al. 2020.

    student, teacher: scores [Q, N], those of the teacher NaN for pairs that it was not asked for, which take
    no part. cited: bool [Q, N]. 0 where there is nothing to compare.
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
    """Mean over queries of the Kullback-Leibler divergence of the softmax of the student's scores from that
    of the teacher's, over the papers that the teacher was asked for: Hinton et al. 2015, Cao et al. 2007.

    student, teacher: as for `margin_mse`. 0 where a query has no paper of the teacher's.
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


@dataclass(frozen=True)
class DistilConfig:
    """How the student's cosines are to follow the teacher's logits."""

    name: str = "kl"
    """kl (listwise) | margin_mse"""
    weight: float = 0.5
    """of the distillation; the rest is that of the student's own loss (model.loss)"""
    temperature: float = 0.05
    """the student's cosines are divided by it"""
    teacher_temperature: float = 1.0
    """the teacher's logits are divided by it"""

    def __post_init__(self) -> None:
        if self.name not in ("kl", "margin_mse"):
            raise InputError(f"model.distil.name={self.name}: choose kl or margin_mse")
        if not 0 < self.weight <= 1:
            raise InputError(f"model.distil.weight={self.weight}: must be above 0, at most 1")
        for name in ("temperature", "teacher_temperature"):
            if getattr(self, name) <= 0:
                raise InputError(f"model.distil.{name}={getattr(self, name)}: must be above 0")

    def __call__(self, similarity: Tensor, teacher: Tensor, cited: Tensor) -> Tensor:
        """Cosines and the teacher's logits [Q, N] (NaN: not asked for), which papers are cited -> scalar"""
        if self.name == "margin_mse":
            return margin_mse(similarity / self.temperature, teacher / self.teacher_temperature, cited)
        return listwise_kl(similarity, teacher, self.temperature, self.teacher_temperature)
