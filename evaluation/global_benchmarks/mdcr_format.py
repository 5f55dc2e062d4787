"""MDCR's files: pools of candidates by field, query and type, scores of pairs (Medić and Šnajder 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from datasets.errors import InputError
from evaluation.global_benchmarks.pool_benchmark import ids, is_number, read_json, some, table

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
