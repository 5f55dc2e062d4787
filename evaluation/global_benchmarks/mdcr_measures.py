"""What MDCR's evaluation script computes, and the same by type of candidates (Medić and Šnajder 2022)."""

from __future__ import annotations

import ir_measures
import numpy as np
from ir_measures import AP, R, nDCG
from numpy.typing import NDArray

from evaluation.global_benchmarks.mdcr_format import Mdcr, Scores
from evaluation.global_benchmarks.pool_benchmark import Table

MEASURES = {"map": AP, "ndcg": nDCG, "recall_5": R @ 5}
"""By the names of trec_eval, in the order of the official table."""
AVERAGE = "AVG"

Values = dict[str, dict[str, NDArray[np.float64]]]
"""{field: {measure: values of its queries [q]}}"""


def query_values(benchmark: Mdcr, scores: Scores, kind: str | None = None) -> Values:
    """Measures of each query by trec_eval, which orders candidates of equal score by id.

    kind: of the cited and this type of candidates alone, and only for queries that have any of it.
    """
    names = {measure: name for name, measure in MEASURES.items()}
    values: Values = {}
    for field, queries in benchmark.fields.items():
        pools = {name: q.pool(kind) for name, q in queries.items() if kind is None or q.others[kind]}
        if not pools:
            continue
        run = {name: {paper: scores[field][name][paper] for paper in pool} for name, pool in pools.items()}
        rows = {name: row for row, name in enumerate(pools)}
        values[field] = {name: np.zeros(len(pools)) for name in MEASURES}
        for found in ir_measures.pytrec_eval.iter_calc(list(names), pools, run):
            values[field][names[found.measure]][rows[found.query_id]] = found.value
    return values


def field_table(values: Values) -> Table:
    """Percent of each field and, under AVG, the mean over the fields: as published, of rounded numbers."""
    fields = {
        field: {name: _rounded(100 * found[name].mean()) for name in MEASURES}
        for field, found in values.items()
    }
    average = {name: _rounded(np.mean([row[name] for row in fields.values()])) for name in MEASURES}
    return fields | {AVERAGE: average}


def type_table(benchmark: Mdcr, scores: Scores) -> tuple[Table, dict[str, int]]:
    """Percent by type of candidates (table 4), means over the fields; and of how many queries that is."""
    table, queries = {}, {}
    for kind in benchmark.types:
        values = query_values(benchmark, scores, kind)
        queries[kind] = sum(len(found["map"]) for found in values.values())
        if values:
            table[kind] = field_table(values)[AVERAGE]
    return table, queries


def _rounded(value: np.floating) -> float:
    """To four places, by numpy as the script does: Python's way differs in some last places."""
    return float(np.round(value, 4))
