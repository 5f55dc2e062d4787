"""CSFCube's files: graded pools by facet, folds of queries, and ranked pools (Mysore et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets.errors import InputError
from evaluation.global_benchmarks.pool_benchmark import ids, is_number, read_json, some, table

FACETS = ("background", "method", "result")
ALL = "all"
GRADES = range(4)
RELEVANT = 2
"""The least grade that binary measures take for relevant."""
SPLITS = {"dev": ("fold1_dev",), "test": ("fold1_test", "fold2_test")}
"""The folds of each split: the development part of one, and the test parts of both (datasheet)."""

Ranking = list[tuple[str, float]]
"""Candidates with their distances to the query, best first."""


@dataclass(frozen=True)
class CsfCube:
    """pools: {facet: {query: {candidate: grade}}}, without the query itself; folds: {facet: {fold: queries}}.

    A query of a facet is called QUERY_FACET in the folds. selves: queries that stood in their own pool.
    """

    folder: Path
    pools: dict[str, dict[str, dict[str, int]]]
    folds: dict[str, dict[str, list[str]]]
    selves: list[str]

    @classmethod
    def read(cls, folder: str | Path, facets: tuple[str, ...] = FACETS) -> CsfCube:
        """Read test-pid2anns-csfcube-FACET.json and evaluation_splits.json.

        Raises InputError that names file, query and what is wrong: as queries without a relevant candidate.
        """
        folder = Path(folder)
        pools: dict[str, dict[str, dict[str, int]]] = {}
        selves = []
        for facet in facets:
            pools[facet] = _pools(folder / f"test-pid2anns-csfcube-{facet}.json")
            for query, pool in pools[facet].items():
                if pool.pop(query, None) is not None:  # it would be found first, and was rated by nobody
                    selves.append(f"{query}_{facet}")
        return cls(folder, pools, _folds(folder / "evaluation_splits.json", pools), selves)


def _pools(path: Path) -> dict[str, dict[str, int]]:
    pools: dict[str, dict[str, int]] = {}
    vain = []
    for query, value in read_json(path).items():
        where = f"{path}, query {query!r}"
        record = table(value, where)
        candidates = ids(record.get("cands"), f"{where}, cands")
        grades = record.get("relevance_adju")
        if not isinstance(grades, list) or any(
            type(grade) is not int or grade not in GRADES for grade in grades
        ):
            raise InputError(f"{where}, relevance_adju: must be a list of grades from 0 to {GRADES[-1]}")
        if len(grades) != len(candidates):
            raise InputError(f"{where}: {len(candidates)} candidates and {len(grades)} grades")
        pools[query] = dict(zip(candidates, grades, strict=True))
        if len(pools[query]) < len(candidates):
            raise InputError(f"{where}: a candidate is there twice")
        if not any(grade >= RELEVANT for paper, grade in pools[query].items() if paper != query):
            vain.append(query)
    if vain:
        raise InputError(
            f"{path}: {len(vain):,} queries have no relevant candidate (none of grade {RELEVANT} or more): "
            f"{some(vain)}"
        )
    return pools


def _folds(path: Path, pools: dict[str, dict[str, dict[str, int]]]) -> dict[str, dict[str, list[str]]]:
    known = {f"{query}_{facet}" for facet, queries in pools.items() for query in queries}
    found = read_json(path)
    folds: dict[str, dict[str, list[str]]] = {}
    for facet in [*pools, *([ALL] if len(pools) == len(FACETS) else [])]:
        here = table(found.get(facet), f"{path}, facet {facet!r}")
        names = [fold for split in SPLITS.values() for fold in split]
        folds[facet] = {fold: ids(here.get(fold), f"{path}, {facet}, {fold}") for fold in names}
        for fold, queries in folds[facet].items():
            if not queries:
                raise InputError(f"{path}: {facet}, {fold} has no queries")
            if lacking := [query for query in queries if query not in known]:
                raise InputError(f"{path}: {facet}, {fold} has queries without annotations: {some(lacking)}")
    return folds


def ranked_file(experiment: str, facet: str) -> str:
    """The name that CSFCube's evaluation script expects."""
    return f"test-pid2pool-csfcube-{experiment}-{facet}-ranked.json"


def read_ranked(path: Path, pools: dict[str, dict[str, int]]) -> tuple[dict[str, Ranking], list[str]]:
    """Ranked pools {query: [[candidate, distance], ...]} of a facet, in the order of the file.

    Gives them without the queries themselves, and the pairs QUERY_CANDIDATE that were not ranked. Raises
    InputError that names candidates which are in no pool or ranked twice, queries that are not ranked, and
    distances that are no numbers.
    """
    given = read_json(path)
    if unknown := [query for query in given if query not in pools]:
        raise InputError(f"{path}: {len(unknown):,} queries without annotations: {some(unknown)}")
    if lacking := [query for query in pools if query not in given]:
        raise InputError(f"{path}: {len(lacking):,} queries are not ranked: {some(lacking)}")
    rankings: dict[str, Ranking] = {}
    unranked = []
    for query, value in given.items():
        where = f"{path}, query {query!r}"
        if not isinstance(value, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
        ):
            raise InputError(f"{where}: must be a list of [candidate, distance]")
        pairs = [(paper, distance) for paper, distance in value if paper != query]
        if wrong := [paper for paper, distance in pairs if not is_number(distance)]:
            raise InputError(f"{where}: distances that are NaN or no number at all, of {some(wrong)}")
        ranked = {paper for paper, _ in pairs}
        if foreign := [paper for paper, _ in pairs if paper not in pools[query]]:
            raise InputError(f"{where}: {len(foreign):,} candidates are not in its pool: {some(foreign)}")
        if len(ranked) < len(pairs):
            raise InputError(f"{where}: a candidate is ranked twice")
        rankings[query] = pairs
        unranked += [f"{query}_{paper}" for paper in pools[query] if paper not in ranked]
    return rankings, unranked
