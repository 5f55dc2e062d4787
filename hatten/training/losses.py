"""Training losses over the similarities of a batch, independent of the encoder; model.loss._target_ names one
of them, or another class with the interface of Loss.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from citerec.base.errors import InputError
from citerec.base.settings import Settings, setting

CITED, RELEVANT, OTHER, OTHER_QUERY = 1, 2, 3, 4
"""Irrelevance levels of a paper for a query (0 is the query itself): cited; prefetched, not cited, but with
as much word overlap as a cited paper; other prefetched; random, or of another query in the batch."""

EXCLUDED = 0
"""A paper to ignore for a query: its own citing paper."""


class Loss(Protocol):
    """Turns the cosines of a batch into a number to minimise."""

    positives: Sequence[int]
    """levels whose places in `levels` are given as `pairs`; () for none"""

    def __call__(
        self, similarity: Tensor, levels: Tensor, log_rate: Tensor, pairs: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Cosines [Q, N], irrelevance levels int [Q, N], log of the sampling rate of each paper [N], and rows
        and columns of the positives in `levels` (None: not known yet) -> scalar."""


@dataclass(frozen=True)
class Triplet(Settings):
    """Sum over all (query, positive, negative) of max(0, s(q, n) - s(q, p) + margin * (level_n - level_p)).

    Gu et al. 2022, equation 3, with the levels of their code. The negatives of a positive are all papers with
    a higher level; EXCLUDED (0) is ignored. Memory grows with (query, positive) pairs x papers, not queries x
    papers x papers.

    positives: [1] ignores mined positives.
    """

    where: ClassVar[str] = "model.loss"
    margin: float = 0.05
    positives: tuple[int, ...] = (CITED, RELEVANT)

    def __call__(
        self,
        similarity: Tensor,
        levels: Tensor,
        log_rate: Tensor | None = None,
        pairs: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        query, positive = pairs or torch.isin(levels, levels.new_tensor(self.positives)).nonzero(
            as_tuple=True
        )
        level = levels[query, positive]
        gap = levels[query] - level[:, None]  # [pairs, N]
        hinge = similarity[query] - similarity[query, positive][:, None] + self.margin * gap
        return torch.relu(hinge).masked_fill(gap <= 0, 0.0).sum()


@dataclass(frozen=True)
class InfoNCE(Settings):
    """Mean over queries of the cross-entropy of cited papers against all others: van den Oord et al. 2018.

    Columns are distinct papers, so a paper cited by several queries is a negative for none of them. Papers
    with level RELEVANT or EXCLUDED are ignored: with as much word overlap as a cited paper, the former are
    likely to be false negatives.

    correct_rate: in-batch negatives are sampled in proportion to their citations; subtracting the log rate
    from the logits corrects for it (Yi et al. 2019).
    """

    where: ClassVar[str] = "model.loss"
    temperature: float = setting(0.05, above=0)
    correct_rate: bool = True
    positives: ClassVar[Sequence[int]] = ()

    def __call__(
        self,
        similarity: Tensor,
        levels: Tensor,
        log_rate: Tensor,
        pairs: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        ignored = (levels == EXCLUDED) | (levels == RELEVANT)
        logits = similarity / self.temperature
        if self.correct_rate:
            logits = logits - log_rate
        logits = logits.masked_fill(ignored, -torch.inf)
        cited = logits.masked_fill(levels != CITED, -torch.inf)
        return (torch.logsumexp(logits, 1) - torch.logsumexp(cited, 1)).mean()


def build_loss(settings: Mapping[str, Any]) -> Loss:
    """Build a loss from its `_target_` and options (model.loss); InputError if that fails."""
    loss: Loss = build_object("model.loss", settings)
    return loss


def build_object(where: str, settings: Mapping[str, Any]) -> Any:
    """Build an object from its `_target_` and options; `where`: their key, for the InputError if it fails."""
    options = {name: value for name, value in settings.items() if name != "_target_"}
    target = settings.get("_target_")
    try:
        return pkgutil.resolve_name(str(target))(**options)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{where}._target_={target}: no such class ({error})") from None
    except TypeError as error:
        raise InputError(f"{where}: {error}") from None
