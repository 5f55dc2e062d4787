"""Rankings of pools: one corpus holds all papers of all pools, and each query finds those of its own.

Vectors are made once for all pools. BM25 is indexed again for each: its statistics are those of the pool.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ir_measures import AP, R, nDCG
from numpy.typing import NDArray

from datasets.citations.corpus import corpus_of
from datasets.citations.questions import Asked
from datasets.progress import counting
from datasets.store import Corpus
from evaluation.global_sampling.pools import Pool
from evaluation.global_sampling.rules import TEST, VALIDATION, Rows, Sampler
from evaluation.measures import Values, per_query
from evaluation.qrels import Qrels
from retrieval.base import Retriever
from retrieval.bm25 import BM25
from retrieval.dense import DenseRetriever
from retrieval.filters import Filters
from retrieval.ranking import Ranking
from retrieval.runs import Run
from retrieval.sentences import SentenceRetriever

log = logging.getLogger(__name__)

MEASURES = {"map": AP, "ndcg": nDCG, "recall_30": R @ 30}
"""By the names of trec_eval; of what was retrieved, at most `depth` papers."""
BATCH = 1024
"""Queries that are searched at a time."""


@dataclass(frozen=True)
class PoolFilter(Filters):
    """Papers of a pool [P of the corpus]; by_year: those not later than the query. free [P]: of any year."""

    papers: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    by_year: bool = False
    free: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))

    def __bool__(self) -> bool:
        return True

    def groups(
        self, corpus: Corpus, contexts: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """Queries of one year after those of another, where the year counts."""
        if not self.by_year:
            yield np.arange(len(contexts)), self.papers
            return
        years = corpus.years[corpus.citing[contexts]]
        for year in np.unique(years):
            yield np.flatnonzero(years == year), self.papers & ((corpus.years <= year) | self.free)


class PoolRanker:
    """Ranks pools by a retriever; corpus: of the papers of all pools and of the queries."""

    def __init__(
        self,
        sampler: Sampler,
        tests: Sequence[Pool],
        validations: Sequence[Pool],
        name: str,
        cache_dir: str | Path,
        depth: int,
    ) -> None:
        self.sampler, self.depth = sampler, depth
        asked = {TEST: _asking(tests), VALIDATION: _asking(validations)}
        used = np.zeros(len(sampler.graph), np.bool_)
        for rows in [*asked.values(), *(pool.papers for pool in [*tests, *validations])]:
            used[rows] = True
        self.papers: Rows = np.flatnonzero(used)
        self.asked: Rows = np.union1d(*asked.values())
        splits = {
            split: Asked(rows, sampler.relevant.take(rows)) for split, rows in asked.items() if len(rows)
        }
        self.corpus = corpus_of(sampler.graph, self.papers, splits, name, cache_dir)

    def ranked(self, retriever: Retriever, pools: Sequence[Pool], index_dir: Path | None) -> Iterator[Run]:
        """The first papers of each pool, queries named GROUP/PAPER. index_dir: where indexes are kept."""
        of_pool = isinstance(retriever, BM25)
        if not of_pool:
            retriever.open(self.corpus, index_dir)
        if isinstance(retriever, DenseRetriever | SentenceRetriever):
            retriever.remember_queries()  # each is asked in every pool
        with counting(f"{retriever.name}: searching", sum(len(pool.queries) for pool in pools)) as advance:
            for pool in pools:
                filters = self._filter(pool)
                if of_pool:
                    view = pool_view(self.corpus, filters.papers)
                    retriever.open(view, None if index_dir is None else index_dir / view.fingerprint)
                    # What is indexed is the pool already: a mask is needed for years alone.
                    wanted = filters if filters.by_year else None
                else:
                    wanted = filters
                parts = []
                contexts = np.searchsorted(self.asked, pool.queries)
                for start in range(0, len(contexts), BATCH):
                    parts.append(retriever.search(contexts[start : start + BATCH], self.depth, wanted))
                    advance(len(parts[-1]))
                yield Run(self.names(pool), self.corpus.paper_ids, Ranking.concat(parts), retriever.name)

    def names(self, pool: Pool) -> list[str]:
        """Of the queries of a pool."""
        return [f"{pool.group}/{paper}" for paper in self.ids(pool.queries)]

    def ids(self, rows: Rows) -> list[str]:
        """Of papers."""
        return [self.sampler.graph.ids[row] for row in rows.tolist()]

    def qrels(self, pool: Pool) -> Qrels:
        """What the queries of a pool are to find."""
        relevant = self.sampler.relevant.take(pool.queries)
        found = (dict.fromkeys(self.ids(rows.astype(np.int64)), 1) for rows in relevant)
        return Qrels(dict(zip(self.names(pool), found, strict=True)))

    def values(self, run: Run, pool: Pool) -> Values:
        """Measures of the queries of a pool, by trec_eval."""
        return per_query(run, self.qrels(pool), dict(MEASURES))

    def _filter(self, pool: Pool) -> PoolFilter:
        mask = np.zeros(len(self.papers), np.bool_)
        mask[np.searchsorted(self.papers, pool.papers)] = True
        free = self.sampler.graph.is_distractor[self.papers]
        return PoolFilter(papers=mask, by_year=self.sampler.rules.year is None, free=free)


def pool_view(corpus: Corpus, papers: NDArray[np.bool_]) -> Corpus:
    """The corpus with these candidates [P] alone, under a fingerprint of its own."""
    corpus.words  # noqa: B018 (the views share what is read once)
    view = copy.copy(corpus)
    view.is_candidate = papers
    digest = hashlib.blake2b(np.packbits(papers).tobytes(), digest_size=6).hexdigest()
    view.fingerprint = f"{corpus.fingerprint}-{digest}"
    return view


def means(values: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Percent of each measure, the mean over queries."""
    return {name: 100 * float(found.mean()) for name, found in values.items()}


def _asking(pools: Sequence[Pool]) -> Rows:
    return np.unique(np.concatenate([np.empty(0, np.int64), *(pool.queries for pool in pools)]))
