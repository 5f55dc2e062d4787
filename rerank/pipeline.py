"""The second stage: a ranking's first candidates in the order of a reranker (Gu et al. 2022, section 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rerank.pair_scores import PairScores, Scored
from retrieval.ranking import Ranking


def head_of(ranking: Ranking, k: int) -> Ranking:
    """The first k papers of each query, or all where there are fewer."""
    return Ranking(ranking.papers[:, :k], ranking.scores[:, :k])


def candidate_scores(
    scores: PairScores, contexts: NDArray[np.int64], papers: NDArray[np.int32]
) -> tuple[NDArray[np.float32], Scored]:
    """Scores [Q, K] of each query's candidates, and how they came to be.

    contexts: [Q], papers: [Q, K], -1 (a score of -inf) where there are fewer than K.
    """
    there = papers >= 0
    scored = scores.of(np.repeat(contexts, there.sum(axis=1)), papers[there])
    found = np.full(papers.shape, -np.inf, np.float32)
    found[there] = scored.scores
    return found, scored


def reranked(ranking: Ranking, scores: NDArray[np.floating]) -> Ranking:
    """The first K papers of each query by their scores [Q, K], the others behind them in their order.

    scores: -inf where `ranking` has no paper. Papers of equal score keep the order of `ranking`. So that
    every tool sees this order, scores of the result are all different: an equal one is lowered by the last
    bit, and below the first K each is 1 less than the one before.
    """
    queries, k = scores.shape
    order = np.argsort(-scores, axis=1, kind="stable")
    papers, values = ranking.papers.copy(), np.full(ranking.papers.shape, -np.inf, np.float32)
    papers[:, :k] = np.take_along_axis(ranking.papers[:, :k], order, axis=1)
    best = np.take_along_axis(scores, order, axis=1).astype(np.float32)
    last = np.full(queries, np.inf, np.float32)
    for column in range(ranking.k):
        below = np.nextafter(last, np.float32(-np.inf))
        last = np.minimum(best[:, column], below) if column < k else np.minimum(last - 1, below)
        values[:, column] = last
    return Ranking(papers, np.where(papers >= 0, values, np.float32(-np.inf)))
