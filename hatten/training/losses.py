"""Training losses over the similarities of a batch, independent of the encoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from citerec.hatten.settings import EncoderLossSettings

CITED, RELEVANT, OTHER, OTHER_QUERY = 1, 2, 3, 4
"""Irrelevance levels of a paper for a query (0 is the query itself): cited; prefetched, not cited, but with
as much word overlap as a cited paper; other prefetched or random; a paper of another query in the batch, and
with model.batch.random_level=4 a random paper."""

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


def encoder_loss(
    settings: EncoderLossSettings,
    similarity: Tensor,
    levels: Tensor,
    log_rate: Tensor,
    pairs: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The configured loss of a batch: similarity [Q, N], levels [Q, N], log_rate [N] -> scalar.

    pairs: as for `triplet_loss`.
    """
    if settings.name == "triplet":
        return triplet_loss(similarity, levels, settings.positives, settings.margin, pairs)
    return infonce_loss(similarity, levels, settings.temperature, log_rate if settings.correct_rate else None)
