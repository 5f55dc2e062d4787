"""MDCR: citation recommendation in 19 fields of science (Medić and Šnajder 2022, section 4).

Equal to the benchmark's own evaluation script: means over the queries of a field, in percent of four places,
and the mean of these over the fields.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
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
from evaluation.per_query import PerQuery
from evaluation.report import Provenance, markdown_table
from evaluation.summary import show

log = logging.getLogger(__name__)

SPLITS = ("val", "test")
TYPES = "candidate_types.json"


class MDCR(PoolBenchmark):
    """Measures anyone's scores of the benchmark's pairs."""

    def __init__(
        self,
        file: str | Path | None = None,
        scores_file: str | Path | None = None,
        split: str = "test",
        cache_dir: str | Path = ".cache",
    ) -> None:
        """file: of the benchmark; None: that of the split (val or test), downloaded on first use.

        scores_file: {"QUERY_CANDIDATE": score}. Raises InputError if there is none, and for another split.
        """
        if scores_file is None:
            raise InputError("benchmark=mdcr needs scores_file=FILE: {QUERY_CANDIDATE: score} of all pairs")
        if file is None and split not in SPLITS:
            raise InputError(f"benchmark.split={split}: MDCR has {' and '.join(SPLITS)}")
        self.file, self.scores_file, self.split, self.cache_dir = file, scores_file, split, cache_dir

    def run(self, folder: Path, provenance: Provenance) -> None:
        """By field (metrics.json), by type of candidates (candidate_types.json), and by query."""
        benchmark = Mdcr.read(self.file or published(f"mdcr_{self.split}.json", self.cache_dir))
        scores, unused = read_scores(self.scores_file, benchmark)
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
            f"# MDCR: {self.scores_file} on {benchmark.path}",
            f"{len(benchmark):,} queries of {len(benchmark.fields)} fields. Measures of trec_eval, percent, "
            f"means over the queries of a field; {AVERAGE} is the mean of these over the fields.",
            *remarks,
            markdown_table(["field", *MEASURES], _rows(metrics)),
            "The cited candidates and those of one type alone, mean over the fields (Medić and Šnajder 2022, "
            "section 4.4):",
            markdown_table(["type", *MEASURES], _rows(types)),
        ]
        write_results(folder, metrics, report, provenance)


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
