"""What HAtten is trained to minimise. Nets and losses meet only in similarities: each can be used alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hatten.settings import EncoderLossSettings

CITED, RELEVANT, OTHER, OTHER_QUERY = 1, 2, 3, 4
"""Irrelevance levels of a paper to a query (0 is the query itself): cited; prefetched, not cited, and in its
words as close as the cited one; other prefetched or random; any paper of another query of the batch."""

EXCLUDED = 0
"""A paper that must not be compared with the query: its own citing paper."""


def triplet_loss(
    similarity: Tensor, levels: Tensor, positives: Sequence[int] = (1, 2), margin: float = 0.05
) -> Tensor:
    """Sum over all (query, positive, negative) of max(0, s(q, n) - s(q, p) + margin * (level_n - level_p)).

    Gu et al. 2022, equation 3, with the levels of their code. Every paper of a higher level than the positive
    is a negative to it. Memory grows with (query, positive) pairs x papers, not queries x papers x papers.

    similarity: cosines [Q, N]; levels: int [Q, N], EXCLUDED (0) takes no part; positives: their levels.
    """
    query, positive = torch.isin(levels, torch.tensor(tuple(positives), device=levels.device)).nonzero(
        as_tuple=True
    )
    level = levels[query, positive]
    gap = levels[query] - level[:, None]  # [pairs, N]
    hinge = similarity[query] - similarity[query, positive][:, None] + margin * gap
    return torch.relu(hinge).masked_fill(gap <= 0, 0.0).sum()


def infonce_loss(
    similarity: Tensor, levels: Tensor, temperature: float, log_rate: Tensor | None = None
) -> Tensor:
    """Mean over queries of the cross-entropy of the cited paper against all others: van den Oord et al. 2018.

    Columns are distinct papers, so a paper that several queries cite is a negative to none of them. Papers of
    level RELEVANT and EXCLUDED take no part: what is as close in words as the cited paper is likely to be a
    false negative.

    log_rate: [N] log of how often a paper is in a batch by chance. In-batch negatives come in proportion to
    how often they are cited; subtracting this from the logits makes up for it (Yi et al. 2019).
    """
    out = (levels == EXCLUDED) | (levels == RELEVANT)
    logits = similarity / temperature
    if log_rate is not None:
        logits = logits - log_rate
    logits = logits.masked_fill(out, -torch.inf)
    cited = logits.masked_fill(levels != CITED, -torch.inf)
    return (torch.logsumexp(logits, 1) - torch.logsumexp(cited, 1)).mean()


def encoder_loss(
    settings: EncoderLossSettings, similarity: Tensor, levels: Tensor, log_rate: Tensor
) -> Tensor:
    """The configured loss of a batch: cosines and levels [Q, N], rates [N] -> scalar."""
    if settings.name == "triplet":
        return triplet_loss(similarity, levels, settings.positives, settings.margin)
    return infonce_loss(similarity, levels, settings.temperature, log_rate if settings.correct_rate else None)
