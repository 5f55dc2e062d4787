"""MDCR: citation recommendation in 19 fields of science (Medić and Šnajder 2022, section 4).

Equal to the benchmark's own evaluation script: means over the queries of a field, in percent of four places,
and the mean of these over the fields.

MDCR's files: pools of candidates by field, query and type, scores of pairs (Medić and Šnajder 2022).
What MDCR's evaluation script computes, and the same by type of candidates (Medić and Šnajder 2022).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import ir_measures
import numpy as np
from ir_measures import AP, R, nDCG
from numpy.typing import NDArray

from datasets.download import obtain, present
from datasets.errors import InputError
from evaluation.benchmark import Benchmark, Data, Output, RetrieverMaker
from evaluation.benchmarks.pools import (
    ABOUT,
    Question,
    Table,
    ids,
    is_number,
    open_texts,
    pool_scores,
    read_json,
    some,
    table,
)
from evaluation.measures import PerQuery
from evaluation.report import (
    PER_QUERY,
    REPORT,
    Column,
    Metrics,
    Provenance,
    by_group,
    comparison,
    flat,
    markdown_table,
    show,
    write_results,
    write_text,
)

TRUE = "true"
"""The type of the candidates that the query cites."""

Scores = dict[str, dict[str, dict[str, float]]]
"""{field: {query: {candidate: score}}}, higher is better."""


@dataclass(frozen=True)
class Query:
    """The pool of one query: what it cites, and other candidates by type."""

    cited: frozenset[str]
    others: dict[str, list[str]]

    def pool(self, kind: str | None = None) -> dict[str, int]:
        """{candidate: whether it is cited}: of all types, or of one and the cited (section 4.4).

        A candidate that several types name is there once, and cited if one of them is `true`.
        """
        named = [self.others[kind]] if kind is not None else self.others.values()
        others = {paper: 0 for papers in named for paper in papers}
        return others | dict.fromkeys(sorted(self.cited), 1)


@dataclass(frozen=True)
class Mdcr:
    """A file of the benchmark: queries by field, in alphabetical order, as the official table has them."""

    path: Path
    fields: dict[str, dict[str, Query]]

    def __len__(self) -> int:
        """How many queries there are."""
        return sum(map(len, self.fields.values()))

    @property
    def types(self) -> list[str]:
        """Types of candidates that are not cited, in the order of the file."""
        query = next(iter(next(iter(self.fields.values())).values()))
        return list(query.others)

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """Field, query and candidate of each pair that needs a score."""
        for field, queries in self.fields.items():
            for name, query in queries.items():
                for paper in query.pool():
                    yield field, name, paper

    @classmethod
    def read(cls, path: str | Path) -> Mdcr:
        """Read mdcr_val.json, mdcr_test.json or another file of that format.

        Raises InputError that names fields without queries, queries that cite none of their candidates, and
        queries that lack a type which others have.
        """
        path = Path(path)
        fields: dict[str, dict[str, Query]] = {}
        types: dict[str, None] | None = None
        for field, queries in sorted(read_json(path).items()):
            fields[field] = {}
            for name, pool in table(queries, f"{path}, field {field!r}").items():
                where = f"{path}, field {field!r}, query {name!r}"
                lists = {kind: ids(papers, f"{where}, {kind}") for kind, papers in table(pool, where).items()}
                types = dict.fromkeys(lists) if types is None else types
                if {TRUE, *types} ^ set(lists):
                    one = min({TRUE, *types} ^ set(lists))
                    has = f"has candidates of the type {one!r}" if one in lists else f"has no {one!r}"
                    raise InputError(f"{where}: {has}; each query must have the same types, and {TRUE!r}")
                cited = frozenset(lists.pop(TRUE))
                fields[field][name] = Query(cited, {kind: lists[kind] for kind in types if kind != TRUE})
        if not fields:
            raise InputError(f"{path}: there are no fields in it")
        if empty := [field for field, found in fields.items() if not found]:
            raise InputError(f"{path}: {len(empty)} fields have no queries: {some(empty)}; leave them out")
        vain = [f"{field}/{name}" for field in fields for name, q in fields[field].items() if not q.cited]
        if vain:
            raise InputError(
                f"{path}: {len(vain):,} queries have no relevant candidate ({TRUE!r} is empty): "
                f"{some(vain)}; leave them out"
            )
        return cls(path, fields)


def read_scores(path: str | Path, benchmark: Mdcr) -> tuple[Scores, list[str]]:
    """Scores `{"QUERY_CANDIDATE": number}` of all pairs of a benchmark, and the keys that are of no pair.

    Raises InputError that names pairs without a score, and scores that are no numbers.
    """
    path = Path(path)
    given = read_json(path)
    if wrong := [key for key, value in given.items() if not is_number(value)]:
        raise InputError(
            f"{path}: {len(wrong):,} scores are NaN or no number at all: {some(wrong)}; give each a number"
        )
    scores: Scores = {}
    missing: list[str] = []
    used: set[str] = set()
    for field, query, paper in benchmark.pairs():
        key = f"{query}_{paper}"
        if key not in given:
            missing.append(f"{key} ({field})")
            continue
        used.add(key)
        scores.setdefault(field, {}).setdefault(query, {})[paper] = float(given[key])
    if missing:
        raise InputError(
            f"{path}: no score for {len(missing):,} pairs of {benchmark.path}: {some(missing)}; keys are "
            "QUERY_CANDIDATE"
        )
    return scores, [key for key in given if key not in used]


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


log = logging.getLogger(__name__)

SPLITS = ("val", "test")
TYPES, SCORES = "candidate_types.json", "scores.json"


class MDCR(Benchmark):
    """Measures anyone's scores of the benchmark's pairs, or those of a retriever."""

    columns = ("AVG/map", "AVG/ndcg", "AVG/recall_5")
    about = ABOUT

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

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverMaker, data: Data | None = None
    ) -> Metrics:
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
        return metrics

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        """By field (as table 3), and by type of candidates (as table 4)."""
        tables = {"map": "MAP", "recall_5": "R@5"}
        made = {Path(of.settings.get("file") or "").parent / REPORT for of in outputs.values()}
        reports = [path.read_text("utf-8") for path in made if path.is_file()]
        built = [part.strip() for text in reports for part in text.split("\n\n")[1:]]
        types = {name: read_json(output.folder / TYPES) for name, output in outputs.items()}
        kinds = dict.fromkeys(kind for of in types.values() for kind in of)
        columns = [
            Column(f"{kind}/{measure}", f"{kind} {label}", places=2, best=True)
            for kind in kinds
            for measure, label in tables.items()
        ]
        mean: dict[str, float] = {}
        for column in columns:
            values = [value for of in types.values() if (value := flat(of).get(column.key)) is not None]
            mean[column.key] = sum(values) / len(values)
        head_and_rows = comparison(types, columns)
        return [
            *built,
            *by_group({name: output.metrics for name, output in outputs.items()}, tables),
            "By type of candidates: the cited ones and those of the type alone, means over the fields. The "
            "last row is the mean of the others.",
            "\n".join([head_and_rows, comparison({"mean": mean}, columns).splitlines()[-1]]),
        ]

    def _score(self, benchmark: Mdcr, path: Path, make: RetrieverMaker) -> Path:
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
