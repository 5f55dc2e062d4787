"""Training losses over the similarities of a batch, independent of the encoder; model.loss._target_ names one
or another class with the interface of Loss.
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


def triplet_loss(
    similarity: Tensor,
    levels: Tensor,
    positives: Sequence[int] = (1, 2),
    margin: float = 0.05,
    pairs: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Sum over all (query, positive, negative) of max(0, s(q, n) - s(q, p) + margin * (level_n - level_p)).

    Gu et al. 2022, equation 3, with the levels of their code. The negatives of a positive are all papers with
    a higher level. Memory grows with (query, positive) pairs x papers, not queries x papers x papers.

    similarity: cosines [Q, N]; levels: int [Q, N], EXCLUDED (0) is ignored; positives: levels of positives;
    pairs: their rows and columns in `levels`, if these are known, so that no device is waited for.
    """
    if pairs is None:
        wanted = torch.tensor(tuple(positives), dtype=levels.dtype, device=levels.device)
        query, positive = torch.isin(levels, wanted).nonzero(as_tuple=True)
    else:
        query, positive = pairs
    level = levels[query, positive]
    gap = levels[query] - level[:, None]  # [pairs, N]
    hinge = similarity[query] - similarity[query, positive][:, None] + margin * gap
    return torch.relu(hinge).masked_fill(gap <= 0, 0.0).sum()


def infonce_loss(
    similarity: Tensor, levels: Tensor, temperature: float, log_rate: Tensor | None = None
) -> Tensor:
    """Mean over queries of the cross-entropy of cited papers against all others: van den Oord et al. 2018.

    Columns are distinct papers, so a paper cited by several queries is a negative for none of them. Papers
    with level RELEVANT or EXCLUDED are ignored: with as much word overlap as a cited paper, the former are
    likely to be false negatives.

    log_rate: [N] log of the sampling rate of each paper. In-batch negatives are sampled in proportion to
    their citations; subtracting the log rate from the logits corrects for it (Yi et al. 2019).
    """
    ignored = (levels == EXCLUDED) | (levels == RELEVANT)
    logits = similarity / temperature
    if log_rate is not None:
        logits = logits - log_rate
    logits = logits.masked_fill(ignored, -torch.inf)
    cited = logits.masked_fill(levels != CITED, -torch.inf)
    return (torch.logsumexp(logits, 1) - torch.logsumexp(cited, 1)).mean()


class Loss(Protocol):
    """Turns the cosines of a batch into a number to minimise."""

    positives: Sequence[int]
    """levels of which `pairs` lists the places; () for none"""

    def __call__(
        self, similarity: Tensor, levels: Tensor, log_rate: Tensor, pairs: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """similarity [Q, N], levels [Q, N], log_rate [N] -> scalar; all as for the functions above."""


@dataclass(frozen=True)
class Triplet(Settings):
    """`triplet_loss`. positives: [1] ignores mined positives."""

    where: ClassVar[str] = "model.loss"
    margin: float = 0.05
    positives: tuple[int, ...] = (CITED, RELEVANT)

    def __call__(
        self, similarity: Tensor, levels: Tensor, log_rate: Tensor, pairs: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        return triplet_loss(similarity, levels, self.positives, self.margin, pairs)


@dataclass(frozen=True)
class InfoNCE(Settings):
    """`infonce_loss`. correct_rate: correct for popular papers being negatives more often (logQ)."""

    where: ClassVar[str] = "model.loss"
    temperature: float = setting(0.05, above=0)
    correct_rate: bool = True
    positives: ClassVar[Sequence[int]] = ()

    def __call__(
        self, similarity: Tensor, levels: Tensor, log_rate: Tensor, pairs: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        return infonce_loss(similarity, levels, self.temperature, log_rate if self.correct_rate else None)


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
