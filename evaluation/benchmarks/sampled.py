"""Field-level evaluation: queries and pools of single fields (Medić and Šnajder 2022, section 3.2).

What the dataset-level and the field-level evaluation have in common: the run from files to a report.
Dataset-level evaluation: random queries, pools of growing sizes (Medić and Šnajder 2022, section 3.1).
"""

from __future__ import annotations

import json
import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.citations.graph import CitationGraph, open_graph
from datasets.errors import InputError
from evaluation.benchmark import Benchmark, Data, Output, RetrieverMaker
from evaluation.benchmarks.pools import ABOUT, Table, read_json, some
from evaluation.benchmarks.sampling import (
    MEASURES,
    Group,
    Pool,
    PoolRanker,
    Results,
    Rows,
    Rules,
    Sampler,
    Tuned,
    Tuning,
    dataset_pools,
    field_pools,
    group_table,
    tune,
)
from evaluation.measures import PerQuery
from evaluation.plots import size_plot
from evaluation.protocol import Qrels
from evaluation.report import (
    METRICS,
    PER_QUERY,
    QRELS,
    RUN,
    Metrics,
    Provenance,
    by_group,
    markdown_table,
    show,
    write_results,
    write_text,
)
from retrieval.base import Ranking, Retriever
from retrieval.run import Run

log = logging.getLogger(__name__)

SAMPLE = "sample.json"
TABLES = {"map": "MAP", "ndcg": "nDCG", "recall_30": "R@30"}
"""Measures that a page of results has a table of."""


class SampledBenchmark(Benchmark):
    """Queries and pools are drawn out of files of papers, and a retriever is measured on them.

    Subclasses say which pools there are (`pools`) and what stands in the report.
    """

    title: str
    column: str
    """what groups are"""
    averaged: bool
    """whether the mean over the groups is told"""
    about = ABOUT

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

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverMaker, data: Data | None = None
    ) -> Metrics:
        """Draw, rank and measure; metrics.json is written last, after what stands beside it."""
        ranks = retriever()
        sampler, self.remarks = self.sampler(), []
        tuning = self.tuning if ranks.tunable else None
        tests, validations = self.pools(sampler, tuning)
        folder.mkdir(parents=True, exist_ok=True)
        name = self.name_of(sampler.graph)
        ranker = PoolRanker(sampler, tests, validations, name, self.cache_dir, self.depth)
        tuned: Tuned | None = None
        if tuning is not None:
            tuned = tune(tuning, ranker, validations, ranks)
        elif ranks.tunable:
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
        return metrics

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


PLOT = "map.png"


class DatasetLevel(SampledBenchmark):
    """Queries of the whole collection, asked in pools of several sizes."""

    title, column, averaged = "Dataset-level evaluation", "pool size", False
    columns = ("[0-9]*/map", "[0-9]*/ndcg", "[0-9]*/recall_30")

    def __init__(
        self,
        papers: str | Path | Sequence[str | Path] | None,
        rules: Rules,
        sizes: Sequence[int],
        **more: Any,
    ):
        """sizes: papers of a pool. more: settings of all such benchmarks (SampledBenchmark).

        Raises InputError for sizes that are none.
        """
        super().__init__(papers, rules, **more)
        if isinstance(sizes, str | int) or not sizes or not all(type(n) is int and n >= 1 for n in sizes):
            raise InputError(
                f"benchmark.sizes: {sizes!s} is no list of whole numbers from 1 on, as [10000,20000]"
            )
        self.sizes = sorted(set(sizes))

    def pools(self, sampler: Sampler, validation: Tuning | None) -> tuple[list[Pool], list[Pool]]:
        test, val = sampler.queries(self.number, validation.queries if validation else 0)
        self._note(test, sampler)
        tests = dataset_pools(sampler, test, self.sizes, self.samplings)
        if validation is None or not len(val):
            return tests, []
        size = validation.size or max(self.sizes[0], len(sampler.cited(val)))
        return tests, dataset_pools(sampler, val, [size], 1, "validation pool")

    def report(self, results: Results, folder: Path) -> list[str]:
        curve = {group.candidates: group.mean("map") for group in results.groups}
        size_plot(folder / PLOT, {results.retriever: curve}, f"{results.title}: MAP by the size of the pool")
        return [
            *opening(results, self.rules, self.depth),
            markdown_table(*head_and_rows(group_table(results.groups, self.column, False))),
            f"![MAP by the size of the pool]({PLOT})",
            cost(results),
        ]

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        tables = read_curves({name: output.folder for name, output in outputs.items()})
        curves = {name: {int(size): row["map"] for size, row in of.items()} for name, of in tables.items()}
        size_plot(plot, curves, "MAP by the number of papers in the pool")
        asked = next(iter(next(iter(tables.values())).values()))
        sizes = sorted({size for table in tables.values() for size in table}, key=int)
        ordered = {name: {size: of[size] for size in sizes if size in of} for name, of in tables.items()}
        return [
            f"{int(asked['queries']):,} queries. {drawn(outputs)}",
            *by_group(ordered, TABLES, lambda size: f"{int(size):,}"),
            f"![MAP by the size of the pool]({plot.name})",
        ]

    def _note(self, queries: Rows, sampler: Sampler) -> None:
        if not len(queries):
            raise InputError(
                f"{self.rules.queries_file}: none of its test queries{sampler.of_year} passes the filters "
                "and cites a candidate"
            )
        if self.number is not None and len(queries) < self.number:
            self.remarks.append(f"There are {len(queries):,} queries, where {self.number:,} were asked for.")


def drawn(outputs: Mapping[str, Output]) -> str:
    """What was drawn and left out, and what was tuned."""
    samples = {name: read_json(output.folder / SAMPLE) for name, output in outputs.items()}
    remarks = next(iter(samples.values())).get("remarks", [])
    tuned = [f"{name}: {sample['tuned']}." for name, sample in samples.items() if sample.get("tuned")]
    return " ".join([*remarks, *tuned])


def opening(results: Results, rules: Rules, depth: int) -> list[str]:
    """What was asked and measured, in paragraphs."""
    when = "not later than itself" if rules.year is None else f"of {rules.year} or earlier"
    papers = f"with a title, a year and an abstract of {rules.min_abstract} characters or more, cited "
    papers += f"{rules.min_citations} times or more" if rules.min_citations else "or not"
    asks = "A query" if rules.year is None else f"A query is of {rules.year}; it"
    return [
        f"{asks} asks by its title and abstract; the candidates that it cites are to be found. Candidates "
        f"are papers {papers}, {when}. Each pool holds all that its queries cite, and others at random.",
        f"Measures of trec_eval in percent, of the first {depth} papers: mean over queries, then over "
        "samplings of pools, ± the standard deviation of the samplings.",
        " ".join(results.remarks),
        *([f"BM25: {results.tuned}."] if results.tuned else []),
    ]


def cost(results: Results) -> str:
    """How long it took."""
    asked = sum(group.queries * len(group.samplings) for group in results.groups)
    return f"Indexing, search and measures: {results.seconds:.1f} s for {asked:,} queries in all pools."


def head_and_rows(table: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """A table as markdown_table takes it."""
    return table[0], table[1:]


class FieldLevel(SampledBenchmark):
    """Queries of each field, asked among papers that papers of the field cite."""

    title, column, averaged = "Field-level evaluation", "field", True
    columns = ("AVG/map", "AVG/ndcg", "AVG/recall_30")

    def __init__(
        self,
        papers: str | Path | Sequence[str | Path] | None,
        rules: Rules,
        size: int,
        fields: Sequence[str] | None = None,
        min_queries: int = 1,
        **more: Any,
    ) -> None:
        """size: papers of a pool. fields: which are asked; None: all that have `min_queries` queries or more.

        more: settings of all such benchmarks (SampledBenchmark). Raises InputError for values that are none.
        """
        super().__init__(papers, rules, **more)
        for name, number in (("size", size), ("min_queries", min_queries)):
            if type(number) is not int or number < 1:
                raise InputError(f"benchmark.{name}: {number!r} is no whole number from 1 on")
        if fields is not None and (isinstance(fields, str) or not fields):
            raise InputError(f"benchmark.fields: {fields!r} is no list of fields")
        self.size, self.min_queries = size, min_queries
        self.fields = None if fields is None else [str(name) for name in fields]

    def pools(self, sampler: Sampler, validation: Tuning | None) -> tuple[list[Pool], list[Pool]]:
        tests, vals = self.drawn(sampler, validation.queries if validation else 0)
        pools = field_pools(sampler, tests, self.size, self.samplings)
        whole = {pool.group for pool in pools if pool.sampling == 0 and len(pool.papers) < self.size}
        if whole:
            self.remarks.append(
                f"{len(whole)} fields have fewer than {self.size:,} candidates, all of which are there, in "
                f"one sampling: {some(sorted(whole), 20)}."
            )
        if validation is None or not (there := {field: rows for field, rows in vals.items() if len(rows)}):
            return pools, []
        return pools, field_pools(sampler, there, validation.size or self.size, 1, "validation pool")

    def drawn(self, sampler: Sampler, validation: int = 0) -> tuple[dict[str, Rows], dict[str, Rows]]:
        """Queries for test and validation by field. Raises InputError that names fields without queries."""
        graph = sampler.graph
        if not graph.field_names:
            raise InputError(f"{graph.files[0]}: its papers have no fields")
        tests: dict[str, Rows] = {}
        vals: dict[str, Rows] = {}
        lacking, few = [], []
        for field in sorted(graph.field_names) if self.fields is None else self.fields:
            test, val = sampler.queries(self.number, validation, graph.in_field(field), field)
            if len(test) < self.min_queries:
                lacking.append(f"{field} ({len(test)})")
                continue
            tests[field], vals[field] = test, val
            if self.number is not None and len(test) < self.number:
                few.append(f"{field} ({len(test)})")
        if lacking and (self.fields is not None or not tests):
            raise InputError(
                f"{graph.files[0]}: {len(lacking)} fields have fewer than {self.min_queries} "
                f"queries{sampler.of_year}: {some(lacking, 20)}; leave them out of benchmark.fields"
            )
        if lacking:
            self.remarks.append(
                f"{len(lacking)} fields have fewer than {self.min_queries} queries and are left out: "
                f"{some(lacking, 20)}."
            )
        if few:
            self.remarks.append(f"{len(few)} fields have fewer than {self.number} queries: {some(few, 20)}.")
        asked = np.concatenate(list(tests.values()))  # a paper of two fields may be for test in the other
        return tests, {field: rows[~np.isin(rows, asked)] for field, rows in vals.items()}

    def report(self, results: Results, folder: Path) -> list[str]:
        return [
            *opening(results, self.rules, self.depth),
            "Of each field, the others are drawn from the papers that papers of the field cite.",
            markdown_table(*head_and_rows(group_table(results.groups, self.column, True))),
            cost(results),
        ]

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        tables = {name: output.metrics for name, output in outputs.items()}
        first = next(iter(tables.values()))
        counts = [[name, row.get("queries"), row.get("candidates")] for name, row in first.items()]
        rows = [[str(name), f"{int(q):,}", f"{int(c):,}"] for name, q, c in counts if q and c]
        return [
            drawn(outputs),
            *by_group(tables, TABLES),
            markdown_table(["field", "queries", "candidates"], rows),
        ]


def read_curves(folders: Mapping[str, str | Path]) -> dict[str, Table]:
    """The metrics in outputs of benchmark=dataset_level by label.

    Raises InputError for a folder that is no such output, and for one of other queries.
    """
    tables: dict[str, Table] = {}
    asked: dict[str, object] = {}
    for label, name in folders.items():
        folder = Path(name)
        metrics, sample = (read_json(folder / file) for file in (METRICS, SAMPLE))
        if not metrics or not all(size.isdecimal() for size in metrics):
            raise InputError(
                f"{folder}: its groups are no sizes of pools; name outputs of benchmark=dataset_level"
            )
        tables[label] = metrics
        asked[label] = (
            next(iter(sample["queries"].values())),
            sample["graph"],
            sample["rules"],
            sample["seed"],
        )
        if asked[label] != asked[next(iter(folders))]:
            first = next(iter(folders.values()))
            raise InputError(f"{folder}: has other queries, papers, rules or another seed than {first}")
    return tables
