"""Confidence: the probability that a candidate is the paper meant.

The softmax over a list with an outside option, "none of them" (McFadden 1974; reject option: Chow 1970),
whose logit depends on how well the best candidates fit in absolute terms. So the probabilities of a list sum
to less than 1. It is fitted to lists some of which lack the cited papers, asked as in a draft that is being
written and alone. As a passage may cite several papers, a logistic curve then maps these probabilities to how
often the first papers of complete lists are cited (Platt 1999); the order stays.

What a draft tells is added to the logits. A paper that it cites elsewhere is meant more often than its score
suggests: by how much depends on the number of the other papers, which share the chance of a first citation
(as the tables of a Chinese restaurant: Aldous 1985), and on the passages that cite it. Passages beside the
context mostly speak of the same thing: papers that they cite, papers like these, and those that the author
added with these, are meant more often, too (co-citation: Small 1973).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from citerec.rerank.ranker.linear import Lists, TrainingLists, centre, minimise
from citerec.retrieval.arrays import Floats, Mask

MISSING = 0.05
"""Share of the training lists that lose their cited papers."""
SCALE, NONE = "scale", "none"
"""Parameters: the factor on scores, and the constant of the outside option. Others weight further inputs."""
KNOWN, OTHERS = "known", "known, others"
"""Inputs for papers cited elsewhere: 1; the logarithm of the number of other candidates."""
KNOWN_SCALE = "known, score"
"""Input for the same papers: their score, less the mean of their scores."""
WORDS = "elsewhere_words"
ELSEWHERE = ("elsewhere_count", WORDS, "elsewhere_distance")
"""Columns of papers cited elsewhere, less their mean; WORDS also times the logarithm of their number."""
BESIDE_WORDS = "beside_words"
BESIDE = ("beside_cosine", "beside_encoder", "beside_order")
"""Columns of papers like those that passages beside the context cite, or next to them in the library, less
their mean over the list; with other weights for papers cited elsewhere (AGAIN)."""
AGAIN = "known, "
BEST = ("dense", "encoder")
"""Columns whose highest value tells how well a list fits: they mean the same in every library."""
L2, LEAST_SCALE = 1e-4, 1e-3
SLOPE, LEVEL, DRAFT_LEVEL = "slope", "level", "level, draft"
"""Parameters of the curve: factor on the log-odds; constant; constant if the draft cites papers elsewhere."""
FIRST = 3
"""Number of first papers of a list to which the curve is fitted."""


def list_inputs(lists: Lists) -> dict[str, Floats]:
    """Return inputs of the outside option, [Q] each: the logarithm of the number of candidates, and the
    highest value of each column of BEST, 0 if unknown."""
    starts = lists.offsets[:-1]
    highest = {name: np.maximum.reduceat(np.nan_to_num(lists.column(name)), starts) for name in BEST}
    return {"size": np.log(lists.lengths).astype(np.float32), **highest}


def has_texts(lists: Lists) -> Mask:
    """Return which lists have a candidate with a full text, [Q]."""
    return np.logical_or.reduceat(np.isfinite(lists.column("passage_near")), lists.offsets[:-1])


def draft_inputs(lists: Lists, scores: Floats) -> dict[str, Floats]:
    """Return inputs of candidates by what the draft tells, [n] each; 0 if that is unknown."""
    starts, query = lists.offsets[:-1], lists.query
    is_known = lists.column("known") > 0
    count = np.add.reduceat(is_known, starts, dtype=np.float32)
    others = np.log(lists.lengths - count + 1).astype(np.float32)[query]
    columns = {name: np.where(is_known, lists.column(name), np.nan) for name in ELSEWHERE}
    columns[KNOWN_SCALE] = np.where(is_known, scores, np.nan)
    columns |= {name: lists.column(name) for name in BESIDE}
    centred, _ = centre(Lists(list(columns), np.stack(list(columns.values()), axis=1), lists.offsets))
    inputs = dict(zip(columns, centred.T, strict=True))
    inputs[WORDS] *= np.log(np.maximum(count, 1))[query]
    for name in BESIDE:
        inputs[name], inputs[AGAIN + name] = (
            np.where(is_known, 0, inputs[name]),
            np.where(is_known, inputs[name], 0),
        )
    inputs |= {KNOWN: is_known.astype(np.float32), OTHERS: np.where(is_known, others, 0)}
    return inputs | {BESIDE_WORDS: np.nan_to_num(lists.column(BESIDE_WORDS))}


@dataclass(frozen=True)
class Confidence:
    """parameters: by name; without any, scores stay as they are."""

    parameters: Mapping[str, float] = field(default_factory=dict)

    def log_probabilities(self, lists: Lists, scores: Floats) -> Floats:
        """Return the logarithm of each candidate's probability [n], from the scores of its model."""
        weights, starts = self.parameters, lists.offsets[:-1]
        if not weights:
            return scores
        logits = weights[SCALE] * scores.astype(np.float64)
        for name, values in draft_inputs(lists, scores).items():
            logits += weights.get(name, 0.0) * values
        none = np.full(len(lists), weights[NONE])
        for name, values in list_inputs(lists).items():
            none += weights.get(name, 0.0) * values
        highest = np.maximum(np.maximum.reduceat(logits, starts), none)
        total = np.add.reduceat(np.exp(logits - highest[lists.query]), starts) + np.exp(none - highest)
        logs = logits - (highest + np.log(total))[lists.query]
        curve = weights.get(LEVEL, 0.0) + weights.get(DRAFT_LEVEL, 0.0) * cites_elsewhere(lists)[lists.query]
        return (-np.logaddexp(0, -(weights.get(SLOPE, 1.0) * log_odds(logs) + curve))).astype(np.float32)


def log_odds(logs: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the log-odds of probabilities of which these are the logarithms."""
    return logs - np.log(np.maximum(-np.expm1(logs), 1e-9))


def cites_elsewhere(lists: Lists) -> Mask:
    """Return the lists that have papers which the draft cites elsewhere, [Q]."""
    return np.logical_or.reduceat(lists.column("known") > 0, lists.offsets[:-1])


def without_cited(lists: TrainingLists, seed: int) -> Mask:
    """Choose all candidates [n] but the cited papers of MISSING of the lists."""
    missing = np.random.default_rng(seed).random(len(lists)) < MISSING
    kept = ~(lists.cited & missing[lists.query])
    kept[lists.offsets[:-1][~np.logical_or.reduceat(kept, lists.offsets[:-1])]] = True
    return kept


def fit_confidence(lists: TrainingLists, scores: Floats) -> Confidence:
    """Fit to scores [n] of a model that was not fitted to these lists: the least mean cross entropy between
    the cited papers, or the outside option in lists without any, and the probabilities."""
    papers = {SCALE: scores, **draft_inputs(lists, scores)}
    none = {NONE: np.ones(len(lists), np.float32), **list_inputs(lists)}
    # The outside option is the last row of each list.
    values = np.zeros((len(scores) + len(lists), len(papers) + len(none)), np.float32)
    rows, last = np.arange(len(scores)) + lists.query, lists.offsets[1:] + np.arange(len(lists))
    values[rows, : len(papers)] = np.stack(list(papers.values()), axis=1)
    values[last, len(papers) :] = np.stack(list(none.values()), axis=1)
    cited = np.zeros(len(values), np.bool_)
    cited[rows], cited[last] = lists.cited, ~lists.useful
    offsets = lists.offsets + np.arange(len(lists) + 1)
    weights = dict(zip([*papers, *none], minimise(values, offsets, cited, L2).tolist(), strict=True))
    return Confidence({**weights, SCALE: max(weights[SCALE], LEAST_SCALE)})


def fit_curve(confidence: Confidence, lists: TrainingLists, logs: Floats) -> Confidence:
    """Fit the curve of a confidence to how often the FIRST papers of lists are cited.

    logs: logarithms of the probabilities [n] that confidences gave which were not fitted to these lists.
    """
    order = np.lexsort((-logs, lists.query))
    first = order[np.arange(len(logs)) - lists.offsets[lists.query] < FIRST]
    cited, drafts = lists.cited[first], cites_elsewhere(lists)[lists.query[first]]
    # A softmax over two rows, the second of which is "not cited", is the logistic curve.
    values = np.zeros((2 * len(first), 3), np.float32)
    values[::2] = np.stack([log_odds(logs[first]), np.ones(len(first)), drafts], axis=1)
    ends = np.arange(0, len(values) + 1, 2)
    weights = minimise(values, ends, np.stack([cited, ~cited], axis=1).ravel(), L2).tolist()
    curve = {SLOPE: max(weights[0], LEAST_SCALE), LEVEL: weights[1], DRAFT_LEVEL: weights[2]}
    return Confidence({**confidence.parameters, **curve})
