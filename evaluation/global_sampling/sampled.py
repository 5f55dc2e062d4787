"""What the dataset-level and the field-level evaluation have in common: the run from files to a report."""

from __future__ import annotations

import json
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.citations.graph import CitationGraph, open_graph
from datasets.errors import InputError
from evaluation.files import PER_QUERY, QRELS, RUN, write_text
from evaluation.global_benchmarks.pool_benchmark import PoolBenchmark, write_results
from evaluation.global_sampling.pools import Pool
from evaluation.global_sampling.ranking import MEASURES, PoolRanker
from evaluation.global_sampling.results import Group, Results, group_table
from evaluation.global_sampling.rules import Rules, Sampler
from evaluation.global_sampling.tuning import Tuned, Tuning, tune
from evaluation.per_query import PerQuery
from evaluation.qrels import Qrels
from evaluation.report import Provenance
from evaluation.summary import show
from retrieval.base import Retriever
from retrieval.bm25 import BM25
from retrieval.ranking import Ranking
from retrieval.runs import Run

log = logging.getLogger(__name__)

SAMPLE = "sample.json"


class SampledBenchmark(PoolBenchmark):
    """Queries and pools are drawn out of files of papers, and a retriever is measured on them.

    Subclasses say which pools there are (`pools`) and what stands in the report.
    """

    title: str
    column: str
    """what groups are"""
    averaged: bool
    """whether the mean over the groups is told"""

    def __init__(
        self,
        papers: str | Path | Sequence[str | Path] | None,
        rules: Rules,
        queries: int | None,
        samplings: int = 3,
        depth: int = 500,
        run_depth: int | None = 0,
        citations: str | Path | None = None,
        distractors: str | Path | Sequence[str | Path] | None = None,
        tune: Tuning | None = None,
        seed: int = 0,
        cache_dir: str | Path = ".cache",
        index_dir: str | Path | None = None,
    ) -> None:
        """papers, citations, distractors: as for datasets.citations.graph.open_graph. rules: who may ask.

        queries: how many are drawn; None: all. samplings: of pools. depth: papers retrieved for a query.
        run_depth: papers of each query of the first sampling in run.trec; None: all; 0: no such file.
        tune: what BM25's parameters are chosen from; None: they are the retriever's.
        Raises InputError for what is no whole number.
        """
        numbers = {"samplings": samplings, "depth": depth, "queries": 1 if queries is None else queries}
        for name, number in numbers.items():
            if type(number) is not int or number < 1:
                raise InputError(f"benchmark.{name}: {number!r} is no whole number from 1 on")
        if run_depth is not None and (type(run_depth) is not int or run_depth < 0):
            raise InputError(f"benchmark.run_depth: {run_depth!r} is no whole number from 0 on, nor null")
        self.files, self.rules, self.number, self.samplings = papers, rules, queries, samplings
        self.depth, self.run_depth, self.tuning, self.seed = depth, run_depth, tune, seed
        self.citations, self.distractors = citations, distractors
        self.cache_dir = cache_dir
        self.index_dir = None if index_dir is None else Path(index_dir)
        self.remarks: list[str] = []

    @abstractmethod
    def pools(self, sampler: Sampler, validation: Tuning | None) -> tuple[list[Pool], list[Pool]]:
        """Pools for test, and for validation where there is something to tune. Adds to `remarks`."""

    @abstractmethod
    def report(self, results: Results, folder: Path) -> list[str]:
        """Paragraphs about the results; draws the plots."""

    def sampler(self) -> Sampler:
        """What draws, on the files' graph."""
        graph = open_graph(self.files or [], self.citations, self.distractors, self.cache_dir)
        return Sampler(graph, self.rules, self.seed)

    def run(self, folder: Path, provenance: Provenance, retriever: Callable[[], Retriever]) -> None:
        """Draw, rank and measure; metrics.json is written last, after what stands beside it."""
        ranks = retriever()
        sampler, self.remarks = self.sampler(), []
        tuning = self.tuning if isinstance(ranks, BM25) else None
        tests, validations = self.pools(sampler, tuning)
        folder.mkdir(parents=True, exist_ok=True)
        name = self.name_of(sampler.graph)
        ranker = PoolRanker(sampler, tests, validations, name, self.cache_dir, self.depth)
        tuned: Tuned | None = None
        if tuning is not None and isinstance(ranks, BM25):
            tuned = tune(tuning, ranker, validations, ranks)
        elif isinstance(ranks, BM25):
            log.info("%s: its parameters are as set, not tuned", ranks.name)
        started = time.perf_counter()
        groups = self._measured(ranker, ranks, tests, folder)
        results = Results(
            ranks.name, name, groups, tuned, [*sampler.facts(), *self.remarks], time.perf_counter() - started
        )
        for line in results.remarks:
            log.info("%s", line)
        paragraphs = self.report(results, folder)
        show(group_table(groups, self.column, self.averaged), results.title)
        sample = self._sample(sampler, tests) | {"remarks": results.remarks, "tuned": tuned and str(tuned)}
        write_text(folder / SAMPLE, json.dumps(sample, indent=1) + "\n")
        metrics = results.metrics(self.averaged)
        write_results(folder, metrics, [f"# {self.title}: {results.title}", *paragraphs], provenance)

    def _measured(
        self, ranker: PoolRanker, retriever: Retriever, pools: Sequence[Pool], folder: Path
    ) -> list[Group]:
        """Measure all pools; write run.trec, qrels.trec and per_query.csv."""
        groups: dict[str, Group] = {}
        ids: list[str] = []
        papers: list[str] = []
        values: dict[str, list[Any]] = {name: [] for name in MEASURES}
        first: list[Run] = []
        qrels: dict[str, dict[str, int]] = {}
        for pool, run in zip(pools, ranker.ranked(retriever, pools, self.index_dir), strict=True):
            found = ranker.values(run, pool)
            group = groups.setdefault(pool.group, Group(pool.group, len(pool.queries), len(pool.papers), []))
            group.samplings.append(found)
            ids += [f"{pool.group}/{pool.sampling}/{paper}" for paper in ranker.ids(pool.queries)]
            papers += ranker.ids(pool.queries)
            for name in MEASURES:
                values[name].append(found[name])
            if pool.sampling == 0 and self.run_depth != 0:
                first.append(_cut(run, self.run_depth))
                qrels |= ranker.qrels(pool).judgements
        for name in (RUN, QRELS):
            (folder / name).unlink(missing_ok=True)
        if first:
            ranking = Ranking.concat([run.ranking for run in first])
            names = [name for run in first for name in run.query_ids]
            Run(names, ranker.corpus.paper_ids, ranking, retriever.name).write(folder / RUN)
            Qrels(qrels).write(folder / QRELS)
        columns = {name: np.concatenate(parts) for name, parts in values.items()}
        PerQuery(ids, papers, columns).write(folder / PER_QUERY)
        return list(groups.values())

    def _sample(self, sampler: Sampler, pools: Sequence[Pool]) -> dict[str, Any]:
        """What was drawn, so that others can ask the same."""
        ids = sampler.graph.ids
        queries = {
            pool.group: [ids[row] for row in pool.queries.tolist()] for pool in pools if pool.sampling == 0
        }
        rules = {
            name: getattr(self.rules, name) for name in ("year", "min_abstract", "min_citations", "min_cited")
        }
        return {"graph": sampler.graph.fingerprint, "rules": rules, "seed": self.seed, "queries": queries}

    @staticmethod
    def name_of(graph: CitationGraph) -> str:
        """What the collection is called: the folder of its first file."""
        return Path(graph.files[0]).resolve().parent.name


def _cut(run: Run, depth: int | None) -> Run:
    ranking = Ranking(run.ranking.papers[:, :depth], run.ranking.scores[:, :depth])
    return Run(run.query_ids, run.paper_ids, ranking, run.name)
