"""MDCR: citation recommendation in 19 fields of science (Medić and Šnajder 2022, section 4).

Equal to the benchmark's own evaluation script: means over the queries of a field, in percent of four places,
and the mean of these over the fields.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from datasets.errors import InputError
from datasets.obtain import obtain, present
from evaluation.files import PER_QUERY, write_text
from evaluation.global_benchmarks.mdcr_format import Mdcr, read_scores
from evaluation.global_benchmarks.mdcr_measures import (
    AVERAGE,
    MEASURES,
    Values,
    field_table,
    query_values,
    type_table,
)
from evaluation.global_benchmarks.pool_benchmark import PoolBenchmark, Table, some, write_results
from evaluation.global_benchmarks.pool_scores import pool_scores
from evaluation.global_benchmarks.texts import Question, open_texts
from evaluation.per_query import PerQuery
from evaluation.report import Provenance, markdown_table
from evaluation.summary import show
from retrieval.base import Retriever

log = logging.getLogger(__name__)

SPLITS = ("val", "test")
TYPES, SCORES = "candidate_types.json", "scores.json"


class MDCR(PoolBenchmark):
    """Measures anyone's scores of the benchmark's pairs, or those of a retriever."""

    def __init__(
        self,
        file: str | Path | None = None,
        scores_file: str | Path | None = None,
        texts: str | Path | None = None,
        split: str = "test",
        cache_dir: str | Path = ".cache",
        index_dir: str | Path | None = None,
    ) -> None:
        """file: of the benchmark; None: that of the split (val or test), downloaded on first use.

        scores_file: {"QUERY_CANDIDATE": score}; None: a retriever scores, and writes such a file.
        texts: titles and abstracts for it, JSON lines; None: NAME_data.jsonl beside NAME.json, or downloaded.
        index_dir: for the retriever's index. Raises InputError for another split.
        """
        if file is None and split not in SPLITS:
            raise InputError(f"benchmark.split={split}: MDCR has {' and '.join(SPLITS)}")
        self.file, self.texts, self.name = file, texts, f"mdcr_{split}"
        self.scores_file, self.cache_dir, self.index_dir = scores_file, cache_dir, index_dir

    def run(self, folder: Path, provenance: Provenance, retriever: Callable[[], Retriever]) -> None:
        """By field (metrics.json), by type of candidates (candidate_types.json), and by query."""
        benchmark = Mdcr.read(self.file or published(f"{self.name}.json", self.cache_dir))
        scores_file = self.scores_file or self._score(benchmark, folder / SCORES, retriever)
        scores, unused = read_scores(scores_file, benchmark)
        values = query_values(benchmark, scores)
        metrics = field_table(values)
        types, asked = type_table(benchmark, scores)
        remarks = [
            f"{len(benchmark) - number:,} queries have no candidates of the type {kind}: left out there."
            for kind, number in asked.items()
            if number < len(benchmark)
        ]
        if unused:
            remarks.append(f"{len(unused):,} scores are of no pair of the benchmark: {some(unused)}.")
        for remark in remarks:
            log.warning("%s", remark)
        print("\n".join(official_lines(metrics)))
        show([["type", *MEASURES], *_rows(types)], "by type of candidates")
        _per_query(benchmark, values).write(folder / PER_QUERY)
        write_text(folder / TYPES, json.dumps(types, indent=1) + "\n")
        report = [
            f"# MDCR: {scores_file} on {benchmark.path}",
            f"{len(benchmark):,} queries of {len(benchmark.fields)} fields. Measures of trec_eval, percent, "
            f"means over the queries of a field; {AVERAGE} is the mean of these over the fields.",
            *remarks,
            markdown_table(["field", *MEASURES], _rows(metrics)),
            "The cited candidates and those of one type alone, mean over the fields (Medić and Šnajder 2022, "
            "section 4.4):",
            markdown_table(["type", *MEASURES], _rows(types)),
        ]
        write_results(folder, metrics, report, provenance)

    def _score(self, benchmark: Mdcr, path: Path, make: Callable[[], Retriever]) -> Path:
        """Scores of a retriever, written to a file in the benchmark's format."""
        pools: dict[str, dict[str, int]] = {}
        for queries in benchmark.fields.values():
            for name, query in queries.items():
                pools[name] = pools.get(name, {}) | query.pool()
        questions = {
            name: Question(name, tuple(paper for paper, cited in pool.items() if cited))
            for name, pool in pools.items()
        }
        candidates = {paper for pool in pools.values() for paper in pool}
        corpus = open_texts("MDCR", self._texts(), questions, candidates, self.cache_dir)
        retriever = make()
        retriever.open(corpus, self.index_dir)
        found = pool_scores(retriever, corpus, pools)
        scores = {f"{query}_{paper}": s for query, of_pool in found.items() for paper, s in of_pool.items()}
        write_text(path, json.dumps(scores))
        return path

    def _texts(self) -> Path:
        if self.texts is not None:
            return Path(self.texts)
        if self.file is None:
            return published(f"{self.name}_data.jsonl", self.cache_dir)
        file = Path(self.file)
        beside = present(file.parent, f"{file.name.removesuffix('.gz').removesuffix('.json')}_data.jsonl")
        if beside is None:
            raise InputError(
                f"{file}: to score its pairs takes their texts, benchmark.texts=FILE of paper_id, title and "
                "abstract in JSON lines; or give scores: scores_file=FILE"
            )
        return beside


def published(file: str, cache_dir: str | Path) -> Path:
    """One of MDCR's own files, downloaded on first use; InputError where it cannot be had."""
    path = present(obtain("mdcr", cache_dir, files=[file]), file)
    assert path is not None
    return path


def official_lines(metrics: Table) -> list[str]:
    """The results as MDCR's evaluation script prints them."""
    lines = ["\t".join([name, *(f"{m}: {v}" for m, v in row.items())]) for name, row in metrics.items()]
    return [*lines[:-1], "", lines[-1]]


def _rows(table: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    return [[name, *(f"{value:.4f}" for value in row.values())] for name, row in table.items()]


def _per_query(benchmark: Mdcr, values: Values) -> PerQuery:
    pairs = [(field, query) for field, queries in benchmark.fields.items() for query in queries]
    columns = {name: np.concatenate([found[name] for found in values.values()]) for name in MEASURES}
    return PerQuery([f"{field}/{query}" for field, query in pairs], [query for _, query in pairs], columns)
