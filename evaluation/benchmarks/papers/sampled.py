"""Dataset-level and field-level evaluation: random queries and pools (Medić and Šnajder 2022, section 3)."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from ir_measures import AP, R, nDCG
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.base.progress import count_progress
from citerec.datasets.citations.graph import open_graph
from citerec.datasets.citations.queries import QuerySet, graph_corpus
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import TRAIN
from citerec.evaluation.benchmark import Output, RetrieverFactory
from citerec.evaluation.benchmarks.papers.pools import Findings, Percent, PoolBenchmark, first_few, read_json
from citerec.evaluation.benchmarks.papers.sampling import (
    TEST,
    VALIDATION,
    Rows,
    SampledPool,
    Sampler,
    dataset_pools,
    field_pools,
)
from citerec.evaluation.measures import QUERIES, PerQuery, Values, per_query
from citerec.evaluation.plots import Curves
from citerec.evaluation.protocol import Qrels
from citerec.evaluation.report import (
    AVERAGE,
    Column,
    Metrics,
    Part,
    Report,
    Table,
    group_tables,
)
from citerec.evaluation.settings import DatasetLevelSettings, FieldLevelSettings, SampledSettings, Tuning
from citerec.retrieval.base import Ranking, Retriever, empty_rankings
from citerec.retrieval.run import Run

log = logging.getLogger(__name__)

SAMPLE = "sample.json"
MEASURES = {"map": AP, "ndcg": nDCG, "recall_30": R @ 30}
"""Measures by trec_eval's names; computed on the top `depth` papers."""
LABELS = {"map": "MAP", "ndcg": "nDCG", "recall_30": "R@30"}
COLUMNS = (
    *(Column(measure, measure, decimals=2, spread=True) for measure in MEASURES),
    *(Column(count, count) for count in ("queries", "candidates", "samplings")),
)
"""Columns of a report, whose rows are the groups."""
BATCH = 1024
"""Queries searched together."""


class PoolRanker:
    """Ranks sampled pools with a retriever; corpus: the papers of all pools and the queries."""

    def __init__(
        self,
        sampler: Sampler,
        tests: Sequence[SampledPool],
        validations: Sequence[SampledPool],
        name: str,
        cache_dir: str | Path,
        depth: int,
        training: bool = False,
    ) -> None:
        """training: add the collection's other papers as training queries for retrievers reading contexts."""
        self.sampler, self.depth = sampler, depth
        queries = {
            split: np.unique(np.concatenate([np.empty(0, np.int64), *(pool.queries for pool in pools)]))
            for split, pools in ((TEST, tests), (VALIDATION, validations))
        }
        if training:
            queries[TRAIN] = sampler.training(np.concatenate(list(queries.values())))
        splits = {split: QuerySet(q, sampler.relevant.take(q)) for split, q in queries.items() if len(q)}
        pools = [pool.papers for pool in [*tests, *validations]]
        relevant = [split.relevant.values.astype(np.int64) for split in splits.values()]
        self.papers: Rows = np.unique(np.concatenate([*queries.values(), *pools, *relevant]))
        self.queries: Rows = np.unique(np.concatenate(list(queries.values())))
        self.corpus = graph_corpus(sampler.graph, self.papers, splits, name, cache_dir)

    def open(self, retriever: Retriever, index_dir: Path | None) -> None:
        """Index all papers, unless the retriever has an index for each pool; index_dir: where to keep it."""
        if not retriever.per_pool:
            retriever.open(self.corpus, index_dir)

    def rank(self, retriever: Retriever, pool: SampledPool, index_dir: Path | None) -> Run:
        """Return the run of a pool, with queries named GROUP/PAPER, after `open`."""
        allowed = np.isin(self.papers, pool.papers, assume_unique=True)
        if retriever.per_pool:
            view = pool_view(self.corpus, allowed)
            retriever.open(view, None if index_dir is None else index_dir / view.fingerprint)
        contexts = np.searchsorted(self.queries, pool.queries)
        papers, scores = empty_rankings(len(contexts), self.depth)
        with count_progress(f"{retriever.name}: searching", len(contexts)) as advance:
            for start in range(0, len(contexts), BATCH):
                batch = contexts[start : start + BATCH]
                for positions, of_year in self._group_by_year(batch, allowed):
                    # An index of the pool itself only needs a mask for years.
                    mask = None if retriever.per_pool and of_year is allowed else of_year
                    ranking = retriever.search_allowed(batch[positions], self.depth, mask)
                    papers[start + positions], scores[start + positions] = ranking.papers, ranking.scores
                    advance(len(positions))
        return Run(self.names(pool), self.corpus.paper_ids, Ranking(papers, scores), retriever.name)

    def _group_by_year(
        self, contexts: Rows, allowed: NDArray[np.bool_]
    ) -> Iterator[tuple[Rows, NDArray[np.bool_]]]:
        """Yield positions in `contexts` with the papers [P] they may find.

        Unless `rules.year` is set, queries do not find later papers.
        """
        if self.sampler.rules.year is not None:
            yield np.arange(len(contexts)), allowed
            return
        years, is_distractor = self.corpus.years, self.sampler.graph.is_distractor[self.papers]
        query_years = years[self.corpus.citing[contexts]]
        for year in np.unique(query_years):
            yield np.flatnonzero(query_years == year), allowed & ((years <= year) | is_distractor)

    def ids(self, rows: Rows) -> list[str]:
        """Return the ids of papers."""
        return [self.sampler.graph.ids[row] for row in rows.tolist()]

    def names(self, pool: SampledPool) -> list[str]:
        """Return the names of a pool's queries, GROUP/PAPER."""
        return [f"{pool.group}/{paper}" for paper in self.ids(pool.queries)]

    def qrels(self, pool: SampledPool) -> Qrels:
        """Return the relevant papers of a pool's queries."""
        relevant = self.sampler.relevant.take(pool.queries)
        judgements = (dict.fromkeys(self.ids(rows.astype(np.int64)), 1) for rows in relevant)
        return Qrels(dict(zip(self.names(pool), judgements, strict=True)))

    def measure(self, run: Run, pool: SampledPool) -> Values:
        """Measure the run of a pool per query with trec_eval."""
        return per_query(run.batches(QUERIES), self.qrels(pool), MEASURES)


def pool_view(corpus: Corpus, papers: NDArray[np.bool_]) -> Corpus:
    """Return a view of the corpus with only these candidates [P], under its own fingerprint."""
    corpus.words  # noqa: B018 (loads the words once for all views)
    view = copy.copy(corpus)
    view.is_candidate = papers
    digest = hashlib.blake2b(np.packbits(papers).tobytes(), digest_size=6).hexdigest()
    view.fingerprint = f"{corpus.fingerprint}-{digest}"
    return view


@dataclass(frozen=True)
class TuningResult:
    """The best parameters (ties go to the first), and the validation MAP of all pairs, in percent."""

    k1: float
    b: float
    maps: dict[tuple[float, float], float]
    group: str = ""
    """pool size that the parameters are for; empty: all"""

    def __str__(self) -> str:
        best, where = self.maps[self.k1, self.b], f"{int(self.group):,} papers: " if self.group else ""
        return (
            f"{where}k1 = {self.k1:g}, b = {self.b:g}: MAP {best:.2f} on validation, the best of "
            f"{len(self.maps)} pairs ({min(self.maps.values()):.2f} to {max(self.maps.values()):.2f})"
        )


def tune(
    tuning: Tuning,
    ranker: PoolRanker,
    pools: Sequence[SampledPool],
    retriever: Retriever,
    group: str = "",
) -> TuningResult:
    """Return the k1 and b with the highest MAP on the pools, averaged over groups; InputError if none."""
    if not pools:
        raise InputError(
            "benchmark.tune: no queries left for validation; sample fewer (queries=N) or set it to null"
        )
    maps: dict[tuple[float, float], float] = {}
    for k1, b in product(tuning.k1, tuning.b):
        retriever.set_parameters(k1=k1, b=b)
        ranker.open(retriever, None)
        runs = [(ranker.rank(retriever, pool, None), pool) for pool in pools]
        maps[k1, b] = 100 * float(np.mean([ranker.measure(run, pool)["map"].mean() for run, pool in runs]))
    result = TuningResult(*max(maps, key=lambda pair: maps[pair]), maps, group)
    log.info("%s: %s", retriever.name, result)
    return result


def group_table(measured: Sequence[tuple[SampledPool, Values]], averaged: bool) -> Percent:
    """Average the measures of each group over its queries, then over its samplings, in percent.

    Rows have each measure and its standard deviation over samplings (MEASURE_sd), and the numbers of queries,
    candidates and samplings. measured: pools with their per-query values. averaged: add the mean over groups.
    """
    groups: dict[str, list[tuple[SampledPool, Values]]] = {}
    for pool, values in measured:
        groups.setdefault(pool.group, []).append((pool, values))
    table: Percent = {}
    for name, samplings in groups.items():
        row: dict[str, float] = {}
        for measure in MEASURES:
            means = [100 * float(values[measure].mean()) for _, values in samplings]
            deviation = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
            row |= {measure: float(np.mean(means)), f"{measure}_sd": deviation}
        pool = samplings[0][0]
        counts = {"queries": len(pool.queries), "candidates": len(pool.papers), "samplings": len(samplings)}
        table[name] = row | counts
    if averaged:
        table[AVERAGE] = {m: float(np.mean([row[m] for row in table.values()])) for m in MEASURES}
    return {name: {key: round(value, 4) for key, value in row.items()} for name, row in table.items()}


DrawnPools = tuple[list[SampledPool], list[SampledPool], list[str]]
"""Test pools, validation pools (if there is something to tune), and remarks."""


class SampledBenchmark(PoolBenchmark):
    """Evaluates a retriever on queries and pools sampled from files of papers."""

    settings: SampledSettings
    title: str
    column: str
    """what the groups are"""
    averaged: bool
    """whether to report the mean over the groups"""

    @abstractmethod
    def draw(self, sampler: Sampler, tuning: Tuning | None) -> DrawnPools:
        """Draw queries and pools; tuning: None if there is nothing to tune."""

    def tuned_on(self, pools: Sequence[SampledPool]) -> dict[str, Sequence[SampledPool]]:
        """Return the validation pools to tune parameters on, by group of test queries; "": all groups."""
        return {"": pools}

    def make_sampler(self) -> Sampler:
        """Return a sampler of the files' citation graph."""
        settings = self.settings
        graph = open_graph(
            settings.papers or [], distractors=settings.distractors, cache_dir=settings.cache_dir
        )
        return Sampler(graph, settings.rules, settings.seed)

    def measure(self, folder: Path, retriever: RetrieverFactory) -> Findings:
        """Draw, rank and measure; writes sample.json."""
        settings, ranks, sampler = self.settings, retriever(), self.make_sampler()
        tuning = settings.tune if ranks.tunable else None
        tests, validations, remarks = self.draw(sampler, tuning)
        name = Path(sampler.graph.files[0]).resolve().parent.name
        cache, training = settings.cache_dir, ranks.reads_contexts
        ranker = PoolRanker(sampler, tests, validations, name, cache, settings.depth, training)
        tuned: dict[str, TuningResult] = {}
        if tuning is not None:
            groups = self.tuned_on(validations)
            tuned = {group: tune(tuning, ranker, pools, ranks, group) for group, pools in groups.items()}
        if ranks.tunable and not tuned:
            log.info("%s: uses the configured parameters, without tuning", ranks.name)
        started = time.perf_counter()
        measured: list[tuple[SampledPool, Values]] = []
        index_dir = None if settings.index_dir is None else Path(settings.index_dir)
        ranker.open(ranks, index_dir)
        for pool in tests:
            if best := tuned.get(pool.group) or tuned.get(""):
                ranks.set_parameters(k1=best.k1, b=best.b)
            measured.append((pool, ranker.measure(ranker.rank(ranks, pool, index_dir), pool)))
        seconds = time.perf_counter() - started
        remarks = [*sampler.facts(), *remarks]
        for remark in remarks:
            log.info("%s", remark)
        sample: dict[str, Any] = {
            "collection": int(sampler.candidates.sum()) if len(sampler.distractors) else None,
            "queries": {pool.group: ranker.ids(pool.queries) for pool in tests if pool.sampling == 0},
            "remarks": remarks,
            "tuned": "; ".join(map(str, tuned.values())) or None,
        }
        write_text(folder / SAMPLE, json.dumps(sample, indent=1) + "\n")
        metrics = group_table(measured, self.averaged)
        values = PerQuery.from_groups(
            {f"{pool.group}/{pool.sampling}": (ranker.ids(pool.queries), scores) for pool, scores in measured}
        )
        parts: list[Part] = [
            " ".join(remarks),
            *([f"BM25: {sample['tuned']}."] if tuned else []),
            Table.of(metrics, COLUMNS, self.column),
            f"Indexing, search and measures: {seconds:.1f} s for {len(values):,} queries over all pools.",
        ]
        return Findings(Report(f"{self.title}: {ranks.name} on {name}", metrics, parts), values)


class DatasetLevel(SampledBenchmark):
    """Queries from the whole collection, in pools of several sizes (section 3.1)."""

    settings: DatasetLevelSettings
    settings_class = DatasetLevelSettings
    title, column, averaged = "Dataset-level evaluation", "pool size", False
    compared_by_group = True

    @classmethod
    def headlines(cls, outputs: Mapping[str, Output]) -> tuple[dict[str, Metrics], Sequence[Column]]:
        """Return MAP in the smallest and the largest pool."""
        rows, _ = super().headlines(outputs)
        sizes = sorted({int(size) for output in outputs.values() for size in output.metrics})
        chosen = dict.fromkeys((sizes[0], sizes[-1]))
        return rows, [
            Column(f"{size}/map", f"MAP, {size:,} papers", decimals=2, best=True) for size in chosen
        ]

    def draw(self, sampler: Sampler, tuning: Tuning | None) -> DrawnPools:
        settings = self.settings
        test, val = sampler.queries(settings.queries, tuning.queries if tuning else 0)
        if not len(test):
            raise InputError(
                f"{settings.rules.queries_file}: none of its test queries{sampler.of_year} passes the "
                "filters and cites a candidate; change benchmark.rules"
            )
        tests = dataset_pools(sampler, test, settings.sizes, settings.samplings)
        if tuning is None or not len(val):
            return tests, [], []
        least = len(sampler.cited_by(val))  # a pool holds all that its queries cite
        sizes = sorted({max(size, least) for size in settings.sizes})
        return tests, dataset_pools(sampler, val, sizes, 1, "validation pool"), []

    def tuned_on(self, pools: Sequence[SampledPool]) -> dict[str, Sequence[SampledPool]]:
        """Each size has its own parameters, as in the paper, from a validation pool of that size or more."""
        by_size = {int(pool.group): [pool] for pool in pools}
        return {
            str(size): by_size[min(other for other in by_size if other >= size)]
            for size in self.settings.sizes
            if by_size
        } or {"": pools}

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        tables = {name: output.metrics for name, output in outputs.items()}
        sample = read_json(next(iter(outputs.values())).folder / SAMPLE)
        first = next(iter(next(iter(tables.values())).values()))
        sizes = sorted({size for table in tables.values() for size in table}, key=int)
        ordered = {
            name: {size: metrics[size] for size in sizes if size in metrics}
            for name, metrics in tables.items()
        }
        return [
            f"{int(first['queries']):,} queries. {sampling_facts(outputs)}",
            *group_tables(ordered, LABELS, lambda size: f"{int(size):,}"),
            *([size_curves(tables, title, sample["collection"])] if len(sizes) > 2 else []),
        ]


class FieldLevel(SampledBenchmark):
    """Queries of each field, in pools of papers that the field cites (section 3.2)."""

    settings: FieldLevelSettings
    settings_class = FieldLevelSettings
    title, column, averaged = "Field-level evaluation", "field", True
    headline = (Column(f"{AVERAGE}/map", "MAP", decimals=2, best=True),)

    def draw(self, sampler: Sampler, tuning: Tuning | None) -> DrawnPools:
        tests, vals, remarks = self.queries_by_field(sampler, tuning.queries if tuning else 0)
        size = self.settings.size
        pools = field_pools(sampler, tests, size, self.settings.samplings)
        vals = {field: rows for field, rows in vals.items() if len(rows)}
        if tuning is None or not vals:
            return pools, [], remarks
        return pools, field_pools(sampler, vals, size, 1, "validation pool"), remarks

    def queries_by_field(
        self, sampler: Sampler, validation: int = 0
    ) -> tuple[Mapping[str, Rows], Mapping[str, Rows], list[str]]:
        """Return test and validation queries by field, and remarks.

        InputError names fields with too few queries.
        """
        graph, settings = sampler.graph, self.settings
        if not graph.field_names:
            raise InputError(f"{graph.files[0]}: the papers have no fields")
        fields = settings.fields or sorted(graph.field_names)
        drawn = {
            field: sampler.queries(settings.queries, validation, graph.in_field(field), field)
            for field in fields
        }
        tests = {field: test for field, (test, _) in drawn.items() if len(test) >= settings.min_queries}
        lacking = [f"{field} ({len(test)})" for field, (test, _) in drawn.items() if field not in tests]
        text = f"{len(lacking)} fields have fewer than {settings.min_queries} queries"
        if lacking and (settings.fields or not tests):
            raise InputError(
                f"{graph.files[0]}: {text}{sampler.of_year}: {first_few(lacking, 20)}; leave them out of "
                "benchmark.fields"
            )
        remarks = [f"{text} and are left out: {first_few(lacking, 20)}."] if lacking else []
        in_test = np.concatenate(list(tests.values()))  # a test query of one field may be drawn in another
        vals = {field: val[~np.isin(val, in_test)] for field, (_, val) in drawn.items() if field in tests}
        return tests, vals, remarks

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        tables = {name: output.metrics for name, output in outputs.items()}
        first = next(iter(tables.values()))
        fields = {name: row for name, row in first.items() if name != AVERAGE}
        counts = [Column("queries", "queries", decimals=0), Column("candidates", "candidates", decimals=0)]
        return [sampling_facts(outputs), *group_tables(tables, LABELS), Table.of(fields, counts, "field")]


def sampling_facts(outputs: Mapping[str, Output]) -> str:
    """Return the remarks of the first output's sample, and the tuned parameters of all outputs."""
    samples = {name: read_json(output.folder / SAMPLE) for name, output in outputs.items()}
    remarks = next(iter(samples.values()))["remarks"]
    tuned = [f"{name}: {sample['tuned']}." for name, sample in samples.items() if sample["tuned"]]
    return " ".join([*remarks, *tuned])


def size_curves(tables: Mapping[str, Percent], title: str, collection: int | None) -> Curves:
    """Declare MAP by pool size of dataset-level evaluations, {label: metrics}.

    collection: papers without distractors, which fill up larger pools and are easier to tell from the cited.
    """
    curves = {
        name: {int(size): row["map"] for size, row in metrics.items()} for name, metrics in tables.items()
    }
    marks = {collection: "whole collection; larger: with distractors"} if collection else {}
    axes = "papers in the pool", "MAP, percent"
    return Curves("map", f"{title}: MAP by pool size", *axes, curves, "MAP by pool size", marks=marks)
