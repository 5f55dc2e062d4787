"""MDCR: citation recommendation in 19 fields of science (Medić and Šnajder 2022, section 4).

Reproduces the benchmark's evaluation script: means over the queries of a field, in percent with four
decimals, and their mean over the fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from ir_measures import AP, R, nDCG

from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.datasets.published.downloads import ensure_release, find_file
from citerec.evaluation.benchmark import Output, RetrieverFactory
from citerec.evaluation.benchmarks.papers.pools import (
    Findings,
    Percent,
    PoolBenchmark,
    Scores,
    first_few,
    merge_pools,
    open_judged,
    pool_scores,
    read_json,
)
from citerec.evaluation.measures import PerQuery, Values, per_query
from citerec.evaluation.protocol import Qrels
from citerec.evaluation.report import (
    AVERAGE,
    Column,
    Part,
    Report,
    Table,
    group_tables,
)
from citerec.evaluation.settings import MDCRSettings
from citerec.formats.json_lines import validate

TYPES, SCORES = "candidate_types.json", "scores.json"
TRUE = "true"
"""Type of the candidates that the query cites."""
MEASURES = {"map": AP, "ndcg": nDCG, "recall_5": R @ 5}
"""Measures by trec_eval's names, in the order of the official table."""


Pool = dict[str, list[str]]
"""{type: a query's candidates}, TRUE those that it cites"""
Pools = dict[str, dict[str, Pool]]
"""{field: {query: pool}}, with fields sorted by name as in the official table, types in the same order"""


def judgements(pool: Pool, kind: str | None = None) -> dict[str, int]:
    """Return {candidate: 1 if cited, else 0} of all types, or of one type and the cited (section 4.4).

    Candidates of several types appear once, as cited if one of the types is `true`.
    """
    others = [papers for name, papers in pool.items() if name != TRUE and kind in (None, name)]
    return {paper: 0 for papers in others for paper in papers} | dict.fromkeys(sorted(pool[TRUE]), 1)


def candidate_types(pools: Pools) -> list[str]:
    """Return the types of candidates that are not cited, in file order."""
    return [kind for kind in next(iter(next(iter(pools.values())).values())) if kind != TRUE]


def read_pools(path: str | Path) -> Pools:
    """Read mdcr_val.json, mdcr_test.json or another file in that format.

    InputError names queries that cite no candidate or lack a type, and fields without queries.
    """
    path = Path(path)
    content = validate(read_json(path), Pools, str(path))
    pools = {f"{field}/{query}": pool for field in content for query, pool in content[field].items()}
    types = dict.fromkeys(kind for pool in pools.values() for kind in pool)
    wrong = [name for name, pool in pools.items() if not pool.get(TRUE) or pool.keys() != types.keys()]
    if wrong := wrong or [field for field, queries in content.items() if not queries]:
        raise InputError(
            f"{path}: {len(wrong):,} queries or fields have no relevant candidate ({TRUE!r}), or lack a "
            f"type that others have: {first_few(wrong)}; leave them out"
        )
    if not pools:
        raise InputError(f"{path}: no fields")
    return dict(sorted(content.items()))


def read_scores(path: str | Path, pools: Pools) -> Scores:
    """Read scores `{"QUERY_CANDIDATE": number}`; return those of the pools' pairs.

    InputError names pairs whose score is missing or NaN.
    """
    numbers = validate(read_json(Path(path)), dict[str, float], str(path))
    pairs = {
        f"{query}_{paper}": (field, query, paper)
        for field, queries in pools.items()
        for query, pool in queries.items()
        for paper in judgements(pool)
    }
    missing = [f"{key} ({pairs[key][0]})" for key in pairs if math.isnan(numbers.get(key, math.nan))]
    if missing:
        raise InputError(
            f"{path}: no score, or NaN, for {len(missing):,} pairs of the benchmark: {first_few(missing)}; "
            "keys are QUERY_CANDIDATE"
        )
    scores: Scores = {}
    for key, (_, query, paper) in pairs.items():
        scores.setdefault(query, {})[paper] = numbers[key]
    return scores


def field_values(pools: Pools, scores: Scores, kind: str | None = None) -> dict[str, Values]:
    """Return {field: {measure: values of its queries [Q]}}; ties are ordered by id, as in trec_eval.

    kind: rank only the cited candidates and those of this type, for queries that have any of this type.
    """
    values = {}
    for field, queries in pools.items():
        judged = {
            query: judgements(pool, kind) for query, pool in queries.items() if kind is None or pool[kind]
        }
        if judged:
            scored = {
                query: {paper: scores[query][paper] for paper in pool} for query, pool in judged.items()
            }
            values[field] = per_query([scored], Qrels(judged), MEASURES)
    return values


def field_table(values: Mapping[str, Values]) -> Percent:
    """Average over queries per field, in percent, and over the rounded fields under AVG, as published."""
    fields = {
        field: {name: _round(100 * measured[name].mean()) for name in MEASURES}
        for field, measured in values.items()
    }
    average = {name: _round(np.mean([row[name] for row in fields.values()])) for name in MEASURES}
    return fields | {AVERAGE: average}


def type_table(pools: Pools, scores: Scores) -> tuple[Percent, dict[str, int]]:
    """Return percent by type of candidates (table 4), averaged over fields, and queries per type."""
    table, queries = {}, {}
    for kind in candidate_types(pools):
        values = field_values(pools, scores, kind)
        queries[kind] = sum(len(measured["map"]) for measured in values.values())
        if values:
            table[kind] = field_table(values)[AVERAGE]
    return table, queries


def _round(value: np.floating) -> float:
    """Round to four decimals with numpy, like the script; Python's `round` may differ in the last digit."""
    return float(np.round(value, 4))


class MDCR(PoolBenchmark):
    """Evaluates scores of the benchmark's pairs, from a file or by a retriever."""

    settings: MDCRSettings
    settings_class = MDCRSettings
    headline = (Column(f"{AVERAGE}/map", "MAP", decimals=2, best=True),)

    def measure(self, folder: Path, retriever: RetrieverFactory) -> Findings:
        """Measure by field, by type of candidates (candidate_types.json), and per query."""
        settings = self.settings
        file = settings.file or self._download(f"mdcr_{settings.split}.json")
        pools = read_pools(file)
        if settings.scores_file:
            scores = read_scores(settings.scores_file, pools)
        else:
            scores = self._scores(pools, folder / SCORES, retriever)
        values = field_values(pools, scores)
        metrics = field_table(values)
        types, counts = type_table(pools, scores)
        total = sum(map(len, pools.values()))
        remarks = [
            f"{total - number:,} queries have no candidates of type {kind} and are left out there."
            for kind, number in counts.items()
            if number < total
        ]
        write_text(folder / TYPES, json.dumps(types, indent=1) + "\n")
        columns = [Column(measure, measure, decimals=4) for measure in MEASURES]
        parts: list[Part] = [
            f"{total:,} queries of {len(pools)} fields. Measures by trec_eval, in percent: "
            f"means over the queries of a field; {AVERAGE} is their mean over the fields.",
            *remarks,
            Table.of(metrics, columns, "field"),
            "## By type of candidates",
            "Only the cited candidates and those of one type, means over the fields (Medić and Šnajder "
            "2022, section 4.4):",
            Table.of(types, columns, "type"),
        ]
        title = f"MDCR: {settings.scores_file or folder / SCORES} on {file}"
        return Findings(
            Report(title, metrics, parts),
            PerQuery.from_groups({field: (list(pools[field]), values[field]) for field in values}),
            remarks,
        )

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        """Return tables by field (like table 3) and by type of candidates (like table 4)."""
        types = {name: read_json(output.folder / TYPES) for name, output in outputs.items()}
        labels = {"map": "MAP", "recall_5": "R@5"}
        columns = [
            Column(f"{kind}/{measure}", f"{kind} {label}", decimals=2, best=True)
            for kind in dict.fromkeys(kind for result in types.values() for kind in result)
            for measure, label in labels.items()
        ]
        return [
            *group_tables({name: output.metrics for name, output in outputs.items()}, labels),
            "By type of candidates: only the cited candidates and those of the type, means over the fields.",
            Table.of(types, columns),
        ]

    def _scores(self, pools: Pools, path: Path, make: RetrieverFactory) -> Scores:
        """Score all pairs with a retriever, and write the scores to a file in the benchmark's format."""
        by_field = (
            {query: judgements(pool) for query, pool in queries.items()} for queries in pools.values()
        )
        judged = merge_pools(by_field)  # a query of several fields has a pool in each
        corpus = open_judged("MDCR", self._texts(), judged, self.settings.cache_dir)
        retriever = make()
        retriever.open(corpus, self.settings.index_dir)
        scores = pool_scores(retriever, corpus, judged)
        pairs = {f"{query}_{paper}": s for query, pool in scores.items() for paper, s in pool.items()}
        write_text(path, json.dumps(pairs))
        return scores

    def _texts(self) -> Path:
        settings = self.settings
        if settings.texts is not None:
            return Path(settings.texts)
        if settings.file is None:
            return self._download(f"mdcr_{settings.split}_data.jsonl")
        raise InputError(
            "benchmark.texts: scoring pairs needs their texts, JSON lines of paper_id, title and abstract; "
            "or set scores_file=FILE"
        )

    def _download(self, file: str) -> Path:
        """Return the path of one of MDCR's files, downloaded on first use; InputError if that fails."""
        path = find_file(ensure_release("mdcr", self.settings.cache_dir, files=[file]), file)
        assert path is not None
        return path
