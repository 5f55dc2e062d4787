"""What a cross-encoder says of the papers that a student finds for training queries."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.schema import TRAIN
from datasets.store import Corpus, Split
from hatten.mining import padded
from hatten.options import at_least_1
from rerank.negatives import NegativesConfig
from rerank.pair_scores import CHUNK, PairScores
from rerank.pipeline import candidate_scores
from rerank.prefetching import Prefetcher
from rerank.reranker import Reranker, ScoringConfig

log = logging.getLogger(__name__)

CHOSEN = 14
"""Keeps these random numbers apart from others of the same seed."""


@dataclass(frozen=True)
class TeacherConfig:
    """Which training queries the teacher is asked for."""

    queries: int = 10_000
    """a sample where there are more; the student is trained with these alone"""
    chunk: int = CHUNK
    """pairs that are scored together"""

    def __post_init__(self) -> None:
        at_least_1(self, "model.teacher", "queries", "chunk")


@dataclass(frozen=True)
class ScoredLists:
    """Training queries, and the papers that the teacher has scored for each of them.

    split: Q queries. papers: int32 [Q, n], the cited and those that were drawn, -1: none. logits: float32
    [Q, n], NaN where there is no paper. key: a hash of all of it.
    """

    split: Split
    papers: NDArray[np.int32]
    logits: NDArray[np.float32]

    @property
    def key(self) -> str:
        digest = hashlib.blake2b(digest_size=10)
        for part in (self.split.contexts, self.papers, self.logits):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def of(self, queries: NDArray[np.int64], papers: NDArray[np.int64]) -> NDArray[np.float32]:
        """The teacher's logits of queries, rows [B] of the split, and distinct papers [N]: [B, N], NaN where
        it was not asked."""
        out = np.full((len(queries), len(papers)), np.nan, np.float32)
        order = np.argsort(papers)
        listed = self.papers[queries]
        place = np.minimum(np.searchsorted(papers, listed, sorter=order), len(papers) - 1)
        column = order[place]
        there = (papers[column] == listed) & (listed >= 0)
        row = np.broadcast_to(np.arange(len(queries))[:, None], listed.shape)
        out[row[there], column[there]] = self.logits[queries][there]
        return out


def scored_lists(
    teacher: str | Path,
    scoring: ScoringConfig,
    prefetcher: Prefetcher,
    corpus: Corpus,
    config: TeacherConfig,
    drawn: NegativesConfig,
    seed: int,
    scores_dir: str | Path,
) -> ScoredLists:
    """Prefetch, draw and score. What was scored before, by whomever, is not scored again (PairScores).

    drawn: which of the prefetched papers, beside the cited ones.
    """
    split = corpus.split(TRAIN)
    if len(split) == 0:
        raise InputError(f"corpus {corpus.name}: its train split is empty, there is nothing to train on")
    scorer = Reranker.open(teacher, scoring)
    rows = np.random.default_rng((seed, CHOSEN)).permutation(len(split))[: config.queries]
    rows = np.sort(rows)
    split = Split(split.name, split.contexts[rows], split.positives.take(rows))
    found = prefetcher(split.contexts, drawn.depth, "training queries")
    cited = padded(split.positives, corpus.citing[split.contexts])  # and the citing paper
    papers = np.full((len(split), cited.shape[1] - 1 + drawn.count), -1, np.int32)
    papers[:, : cited.shape[1] - 1] = cited[:, :-1]
    for query, row in enumerate(rows.tolist()):
        chosen = drawn.draw(found[query], cited[query], seed, 0, row)
        papers[query, cited.shape[1] - 1 :][: len(chosen)] = chosen
    log.info(
        f"{scorer.name} scores {np.count_nonzero(papers >= 0):,} pairs: {len(split):,} training queries, "
        f"up to {drawn.count} of the best {drawn.depth} papers of {prefetcher.retriever.name}, and the cited"
    )
    pairs = PairScores(scores_dir, scorer, corpus, config.chunk)
    scores, scored = candidate_scores(pairs, split.contexts, papers)
    log.info(
        f"scored: {scored.new:,} pairs now, the others before ({scored.pairs_per_second:,.0f} pairs/s; "
        f"{pairs.folder})"
    )
    logits = np.where(papers >= 0, logits_of(scores, scorer.model.head), np.nan).astype(np.float32)
    return ScoredLists(split, papers, logits)


def logits_of(scores: NDArray[np.float32], head: str) -> NDArray[np.float32]:
    """What scores were before the sigmoid, of a head that has one; 0 and 1 as far as float32 tells."""
    if head != "sigmoid":
        return scores
    least = np.finfo(np.float32).eps
    inside = np.clip(scores, least, 1 - least)
    return np.log(inside) - np.log1p(-inside)
