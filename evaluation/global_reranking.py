"""Global citation recommendation in two stages (Nogueira et al. 2020, tables 2 and 3)."""

from __future__ import annotations

from dataclasses import replace

from evaluation.global_reranking_published import published_rerankers
from evaluation.pipeline import Pipeline
from evaluation.pipeline_report import About
from evaluation.pipeline_stages import Stages
from rerank.pair_scores import PairScores


class GlobalReranking(Pipeline):
    """Papers ask, the first candidates of a retriever are reranked; settings as for Pipeline.

    The paper's measures are F1@20 (`f1`), MRR of the first 1,000 papers, the largest cutoff, and R@1000.
    """

    name, heading = "global_rerank", "Global reranking"

    def _about(self, stages: Stages, scores: PairScores) -> About:
        return replace(super()._about(stages, scores), sections=[published_rerankers().markdown])
