"""Scores of given pairs by a retriever."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from datasets.progress import counting
from datasets.store import Corpus
from evaluation.global_benchmarks.pool_benchmark import some
from retrieval.base import Retriever
from retrieval.filters import Filters

log = logging.getLogger(__name__)

BATCH = 64
"""Queries between two steps of the progress bar."""


@dataclass(frozen=True)
class Pools(Filters):
    """Each query may get the papers of its own pool. rows: {context: papers}, rows of the corpus."""

    rows: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return True

    def groups(
        self, corpus: Corpus, contexts: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """One query after the other."""
        for place, context in enumerate(contexts.tolist()):
            allowed = np.zeros(len(corpus.paper_ids), np.bool_)
            allowed[self.rows[context]] = True
            yield np.array([place]), allowed & corpus.is_candidate


def pool_scores(
    retriever: Retriever, corpus: Corpus, pools: Mapping[str, Collection[str]]
) -> dict[str, dict[str, float]]:
    """{query: {candidate: score}}, higher is better, of pools {query: candidates}.

    The retriever has indexed the corpus, whose contexts are the queries. What it does not find for a query
    (BM25: papers without a word of it; papers without a text) gets a score below all others.
    """
    textless = sorted({paper for pool in pools.values() for paper in pool if not corpus.has_paper(paper)})
    if textless:
        log.warning("%s candidates without title and abstract come last: %s", len(textless), some(textless))
    row = {query: number for number, query in enumerate(corpus.context_ids)}
    rows = {
        row[query]: np.array([corpus.paper_row(paper) for paper in pool if corpus.has_paper(paper)], np.int64)
        for query, pool in pools.items()
    }
    filters, contexts = Pools(rows=rows), np.array(list(rows), np.int64)
    most = max(1, *(len(pool) for pool in rows.values()))
    found: dict[str, dict[str, float]] = {}
    with counting(f"{retriever.name}: scoring pools", len(contexts)) as advance:
        for start in range(0, len(contexts), BATCH):
            part = contexts[start : start + BATCH]
            ranking = retriever.search(part, most, filters)
            for context, papers, scores in zip(part.tolist(), ranking.papers, ranking.scores, strict=True):
                there = papers >= 0
                names = [corpus.paper_ids[paper] for paper in papers[there].tolist()]
                found[corpus.context_ids[context]] = dict(zip(names, scores[there].tolist(), strict=True))
            advance(len(part))
    lowest = min((score for scored in found.values() for score in scored.values()), default=0.0) - 1
    return {
        query: {paper: found[query].get(paper, lowest) for paper in pool} for query, pool in pools.items()
    }
