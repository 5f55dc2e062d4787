"""The reranking benchmark: candidates that hold the cited paper for certain (Gu et al. 2022, table 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datasets.store import Corpus, Split
from evaluation.pipeline import ALL, Pipeline
from evaluation.pipeline_report import About
from evaluation.pipeline_stages import Stages
from evaluation.reranking_published import published_rerankers
from rerank.pair_scores import PairScores
from retrieval.base import Retriever
from retrieval.filters import Filters
from retrieval.ranking import Ranking, nothing


class Reranking(Pipeline):
    """How well a reranker orders the first candidates of an oracle, or the whole database.

    Candidates are those of the retriever and, behind them, the cited papers that it missed; with
    `candidates=all` every paper that a query may find. All of them are reranked. Other settings: as for
    Pipeline.
    """

    name, heading = "rerank", "Reranking"

    def _prefetched(
        self, retriever: Retriever, queries: Split, filters: Filters, pool: int
    ) -> tuple[Ranking, int, float]:
        count = pool if isinstance(self.candidates, str) else min(self.candidates, pool)
        ranking, seconds = self.search(retriever, queries.contexts, count, filters)
        completed = appended(ranking, _certain(retriever.corpus, queries, filters, self.candidates == ALL))
        return completed, completed.k, seconds

    def _about(self, stages: Stages, scores: PairScores) -> About:
        name, retriever = scores.scorer.name, stages.base.run.name.partition("+")[0]
        if self.candidates == ALL:
            line = (
                f"{name} ranks the whole database: every paper that a query may find. In the base order, "
                f"what {retriever} does not find stands last."
            )
        else:
            line = (
                f"{name} reranks the candidates of an oracle: the first {self.candidates:,} of {retriever} "
                "and, behind them, the cited papers that it missed. Up to there the base order is "
                f"{retriever}'s own. benchmark=pipeline is what a user would see."
            )
        return About(self.heading, str(scores.folder), [line], published_rerankers())


def _certain(corpus: Corpus, queries: Split, filters: Filters, whole: bool) -> list[NDArray[np.integer]]:
    """What each query's candidates hold for certain [Q][n]: its cited papers, or every paper it may find."""
    found: list[NDArray[np.integer]] = [np.empty(0, np.int32)] * len(queries)
    for places, allowed in filters.groups(corpus, queries.contexts):
        everything = np.flatnonzero(allowed)
        for place in places.tolist():
            papers = everything if whole else queries.positives[place]
            own = corpus.citing[queries.contexts[place]]
            found[place] = papers[allowed[papers] & (papers != own)]
    return found


def appended(ranking: Ranking, papers: Sequence[NDArray[np.integer]]) -> Ranking:
    """Each query's ranking with some papers [Q][n] behind what it has, but for those that it has.

    Scores go on below the last, each 1 less than the one before.
    """
    missing = [
        np.setdiff1d(more, found[found >= 0]) for more, found in zip(papers, ranking.papers, strict=True)
    ]
    counts = np.count_nonzero(ranking.papers >= 0, axis=1)
    lengths = counts + np.array([len(more) for more in missing], np.int64)
    rows, scores = nothing(len(ranking), int(lengths.max(initial=1)))
    keep = min(ranking.k, rows.shape[1])
    rows[:, :keep], scores[:, :keep] = ranking.papers[:, :keep], ranking.scores[:, :keep]
    for row, (count, more) in enumerate(zip(counts.tolist(), missing, strict=True)):
        last = scores[row, count - 1] if count else np.float32(0)
        rows[row, count : count + len(more)] = more
        scores[row, count : count + len(more)] = last - 1 - np.arange(len(more), dtype=np.float32)
    return Ranking(rows, scores)
