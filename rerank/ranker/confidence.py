"""Confidence: the probability that a candidate is the paper meant.

The softmax over a list with an outside option, "none of them" (McFadden 1974; reject option: Chow 1970),
whose logit depends on how well the best candidates fit in absolute terms. So the probabilities of a list sum
to less than 1. Fitted to lists of which some lack the cited papers, asked as in a draft and alone.

A paper that the draft cites elsewhere is meant more often than its score tells: its logit is higher, by how
much depends on the number of the other papers, which share the chance of a first citation (as the tables of
a Chinese restaurant: Aldous 1985), and on the passages that cite it: their number, how similar the nearest is
in words, which tells more the more papers are cited, how near one is, and whether all overlap with the
context. Scores of these papers, and of the others beside them, have scales of their own.

Passages beside the context mostly speak of the same thing: papers that they cite, papers like these, and
those that the author added with these, are meant more often, too (co-citation: Small 1973).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from citerec.rerank.ranker.linear import Lists, TrainingLists, centre, share_with_text
from citerec.retrieval.arrays import Floats, Mask

MISSING = 0.1
"""Share of the training lists that lose their cited papers."""
SCALE, NONE = "scale", "none"
"""Parameters: of scores, and of the outside option. Further ones are weights: of list inputs in the outside
option, and of papers cited elsewhere."""
CITED, OTHERS = "cited elsewhere", "cited elsewhere, others"
OWN_SCALE, OTHERS_SCALE = "cited elsewhere, score", "cited elsewhere, scores of others"
OVERLAPS = "cited elsewhere, overlaps"
"""Inputs of papers cited elsewhere: 1; the logarithm of the number of other candidates; the score, less the
mean of these papers'; 1 if only passages cite it that overlap with the context; PASSAGES. Of the others, if
any paper is cited elsewhere: the score, less their mean."""
WORDS = "elsewhere_words"
PASSAGES = ("elsewhere_count", WORDS, "elsewhere_distance")
"""Columns of papers that passages of the draft cite, less their mean over the list; WORDS also times the
logarithm of the number of papers cited elsewhere."""
BESIDE_WORDS = "beside_words"
BESIDE_ENCODER = "beside_encoder"
BESIDE = ("beside_cosine", BESIDE_ENCODER, "beside_order")
"""Columns of papers like those that passages beside the context cite, or next to them in the library, less
their mean over the list; with weights of their own for papers cited elsewhere (AGAIN)."""
AGAIN = "cited elsewhere, "
BEST = ("dense.context", "title_share_near", "name_near", "author_and_year", "encoder")
"""Columns whose highest value tells how well a list fits: they mean the same in every library."""
TEXTS, TEXTS_SCALE = "full texts", "full texts, score"
"""Inputs where candidates have full texts: their share in the outside option, and times the score."""
L2 = 1e-4


def list_inputs(lists: Lists) -> dict[str, Floats]:
    """Inputs of the outside option, [Q] each: the logarithm of the number of candidates, and the highest
    value of each column of BEST, 0 if unknown."""
    starts, columns = lists.offsets[:-1], list(lists.columns)
    found = {"size": np.log(lists.lengths).astype(np.float32)}
    for name in BEST:
        values = lists.values[:, columns.index(name)] if name in columns else np.zeros(len(lists.familiar))
        found[name] = np.maximum.reduceat(np.nan_to_num(values.astype(np.float32)), starts)
    return found


def _draft_inputs(lists: Lists, scores: Floats) -> dict[str, Floats]:
    """Inputs of candidates by what the draft cites elsewhere, [n] each; 0 if that is unknown."""
    columns, starts, query = list(lists.columns), lists.offsets[:-1], lists.query
    of_beside = (*BESIDE, *(AGAIN + name for name in BESIDE))
    names = (CITED, OTHERS, OVERLAPS, OWN_SCALE, OTHERS_SCALE, *PASSAGES, BESIDE_WORDS, *of_beside)
    found = {name: np.zeros(len(scores), np.float32) for name in names}
    known = lists.values[:, columns.index("known")] > 0 if "known" in columns else np.zeros(len(scores), bool)
    given = [name for name in BESIDE if name in columns]
    for name, values in zip(given, centre(lists.only(given))[0].T if given else (), strict=True):
        found[name], found[AGAIN + name] = np.where(known, 0, values), np.where(known, values, 0)
    if not known.any():
        return found
    count = np.add.reduceat(known, starts, dtype=np.float32)
    others = np.log(lists.lengths - count + 1).astype(np.float32)
    found |= {CITED: known.astype(np.float32), OTHERS: np.where(known, others[query], 0)}
    parts = {OWN_SCALE: np.where(known, scores, np.nan)}
    parts[OTHERS_SCALE] = np.where(~known & (count > 0)[query], scores, np.nan)
    for name in (name for name in PASSAGES if name in columns):
        parts[name] = np.where(known, lists.values[:, columns.index(name)], np.nan)
    centred, _ = centre(replace(lists, columns=list(parts), values=np.stack(list(parts.values()), axis=1)))
    found |= dict(zip(parts, centred.T, strict=True))
    if WORDS in parts:
        found[WORDS] *= np.log(np.maximum(count, 1))[query]
        there = np.isfinite(parts[WORDS])
        found[OVERLAPS] = (known & ~there & np.logical_or.reduceat(there, starts)[query]).astype(np.float32)
    if BESIDE_WORDS in columns:
        found[BESIDE_WORDS] = np.nan_to_num(lists.values[:, columns.index(BESIDE_WORDS)].astype(np.float32))
    return found


@dataclass(frozen=True)
class Confidence:
    """parameters: by name; without any, scores stay as they are."""

    parameters: Mapping[str, float] = field(default_factory=dict)

    def log_probabilities(self, lists: Lists, scores: Floats) -> Floats:
        """Return the logarithm of each candidate's probability [n], from the scores of its model."""
        of = self.parameters
        if not of:
            return scores
        logits = of[SCALE] * scores.astype(np.float64)
        for name, values in _draft_inputs(lists, scores).items():
            logits += of.get(name, 0.0) * values
        inputs, starts = list_inputs(lists), lists.offsets[:-1]
        none = np.full(len(lists), of[NONE])
        if TEXTS in of and (share := share_with_text(lists)).any():
            logits += of[TEXTS_SCALE] * share[lists.query] * scores
            none += of[TEXTS] * share
        for name, values in inputs.items():
            none += of.get(name, 0.0) * values
        highest = np.maximum(np.maximum.reduceat(logits, starts), none)
        total = np.add.reduceat(np.exp(logits - highest[lists.query]), starts) + np.exp(none - highest)
        return (logits - (highest + np.log(total))[lists.query]).astype(np.float32)

    def fit_texts(self, lists: TrainingLists, scores: Floats) -> Confidence:
        """Fit the parameters of full texts, as `fit_confidence`, with all others fixed."""
        from scipy.optimize import minimize  # not needed to rank

        starts = lists.offsets[:-1]
        found = np.logical_or.reduceat(lists.cited, starts)

        def loss(values: NDArray[np.float64]) -> float:
            of = Confidence({**self.parameters, TEXTS: float(values[0]), TEXTS_SCALE: float(values[1])})
            probabilities = np.exp(of.log_probabilities(lists, scores).astype(np.float64))
            cited = np.add.reduceat(np.where(lists.cited, probabilities, 0), starts)
            outside = 1 - np.add.reduceat(probabilities, starts)
            likely = np.log(np.maximum(np.where(found, cited, outside), 1e-9))
            return float(L2 * values @ values - likely.mean())

        texts, scale = minimize(loss, np.zeros(2), method="Nelder-Mead").x.tolist()
        return Confidence({**self.parameters, TEXTS: texts, TEXTS_SCALE: scale})


def without_cited(lists: TrainingLists, seed: int) -> Mask:
    """Choose all candidates [n] but the cited papers of MISSING of the lists."""
    missing = np.random.default_rng(seed).random(len(lists)) < MISSING
    kept = ~(lists.cited & missing[lists.query])
    kept[lists.offsets[:-1][~np.logical_or.reduceat(kept, lists.offsets[:-1])]] = True
    return kept


def fit_confidence(lists: TrainingLists, scores: Floats) -> Confidence:
    """Fit to scores [n] of a model that was not fitted to these lists: the least mean cross entropy between
    the cited papers, or the outside option in lists without any, and the probabilities."""
    from scipy.optimize import minimize  # not needed to rank

    inputs, starts, query = list_inputs(lists), lists.offsets[:-1], lists.query
    of_draft = _draft_inputs(lists, scores)
    of_candidate = np.stack([scores, *of_draft.values()], axis=1).astype(np.float64)
    names, size = [SCALE, *of_draft, NONE, *inputs], of_candidate.shape[1]
    of_list = np.stack([np.ones(len(lists)), *inputs.values()], axis=1)
    cited = np.add.reduceat(lists.cited, starts, dtype=np.float64)
    share = lists.cited / np.maximum(cited, 1)[query]
    target = np.add.reduceat(share[:, None] * of_candidate, starts)
    missing = (cited == 0).astype(np.float64)

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logits, none = of_candidate @ parameters[:size], of_list @ parameters[size:]
        highest = np.maximum(np.maximum.reduceat(logits, starts), none)
        weights, outside = np.exp(logits - highest[query]), np.exp(none - highest)
        total = np.add.reduceat(weights, starts) + outside
        entropy = np.log(total) + highest - target @ parameters[:size] - missing * none
        means = np.add.reduceat(weights[:, None] * of_candidate, starts) / total[:, None]
        gradient = np.append((means - target).mean(0), of_list.T @ (outside / total - missing) / len(lists))
        penalised = parameters.copy()
        penalised[[0, size]] = 0
        return float(entropy.mean() + L2 * penalised @ penalised), gradient + 2 * L2 * penalised

    start = np.zeros(len(names))
    start[0] = 1
    positive = [(1e-3, None)] + [(None, None)] * (len(names) - 1)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=positive)
    return Confidence(dict(zip(names, found.x.tolist(), strict=True)))
