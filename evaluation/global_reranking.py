"""Global citation recommendation in two stages (Nogueira et al. 2020, tables 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from datasets.store import Corpus
from evaluation.benchmark import Metrics
from evaluation.global_reranking_published import published_rerankers
from evaluation.pipeline import Pipeline
from evaluation.pipeline_report import About
from evaluation.pipeline_stages import Stages
from rerank.pair_scores import PairScores
from rerank.reranker import Reranker


class GlobalReranking(Pipeline):
    """Papers ask, the first candidates of a retriever are reranked.

    The paper's measures are F1@20 (`f1`), MRR of the first 1,000 papers, the largest cutoff, and R@1000.
    query_tokens: of the tokens of a pair those that the query has, the others are the candidate's
    (rerank.pairs); None: as the reranker was trained. Other settings: as for Pipeline.
    """

    name, heading = "global_rerank", "Global reranking"

    def __init__(self, *given: Any, query_tokens: int | None = None, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.scoring = replace(self.scoring, query_tokens=query_tokens)
        self._tokens: Metrics = {}

    def _scores(self, corpus: Corpus) -> PairScores:
        scores = super()._scores(corpus)
        assert isinstance(scores.scorer, Reranker)
        pairs = scores.scorer.model.config
        if pairs.query_tokens is not None:
            query, candidate = pairs.query_tokens, pairs.max_tokens - pairs.query_tokens
            self._tokens = {"query_tokens": query, "candidate_tokens": candidate}
        return scores

    def _metrics(self, stages: list[Stages], weight: Callable[[int], float]) -> Metrics:
        return super()._metrics(stages, weight) | self._tokens

    def _about(self, stages: Stages, scores: PairScores) -> About:
        about = super()._about(stages, scores)
        lines = [f"Tokens: {of:,} {name.replace('_', ' ')} at most." for name, of in self._tokens.items()]
        return replace(about, lines=about.lines + lines, sections=[published_rerankers().markdown])
