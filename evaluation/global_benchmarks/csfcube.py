"""CSFCube: papers that are alike in background, method or result (Mysore et al. 2021).

Equal to the collection's own evaluation script.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from datasets.errors import InputError
from evaluation.files import PER_QUERY
from evaluation.global_benchmarks.csfcube_format import (
    FACETS,
    SPLITS,
    CsfCube,
    Ranking,
    ranked_file,
    read_ranked,
)
from evaluation.global_benchmarks.csfcube_measures import CUT, query_measures, split_means
from evaluation.global_benchmarks.csfcube_ranking import FACET, WHOLE, find_texts, open_cube, write_ranked
from evaluation.global_benchmarks.pool_benchmark import PoolBenchmark, Table, some, write_results
from evaluation.per_query import PerQuery
from evaluation.report import Provenance, markdown_table
from evaluation.summary import show
from retrieval.base import Retriever

log = logging.getLogger(__name__)

RANKED = "ranked"
"""The folder of rankings by a retriever."""
COLUMNS = {
    "r_precision": "R-Precision",
    "precision": f"Precision@{CUT}",
    "recall": f"Recall@{CUT}",
    "ndcg": "NDCG",
    "ndcg@20": "NDCG@20",
    "ndcg%20": "NDCG%20",
    "mean_av_precision": "MAP",
    "mean_reciprocal_rank": "MRR",
}
"""The official table's, and the two that papers report beside them."""


class CSFCube(PoolBenchmark):
    """Measures ranked pools, or those that a retriever ranks."""

    def __init__(
        self,
        dir: str | Path | None = None,
        ranked_dir: str | Path | None = None,
        experiment_name: str | None = None,
        facets: Sequence[str] = FACETS,
        query: str = WHOLE,
        texts: str | Path | None = None,
        cache_dir: str | Path = ".cache",
        index_dir: str | Path | None = None,
    ) -> None:
        """dir: folder of the collection. ranked_dir: of test-pid2pool-csfcube-NAME-FACET-ranked.json; None: a
        retriever ranks, and writes such files. experiment_name: NAME; None: that of the retriever, then.

        query: what a retriever is asked by, the `whole` abstract or its sentences of the `facet`. texts: the
        file of abstracts, None: that of the collection. index_dir: for the retriever's index.
        facets: of background, method and result; with all three, they are also measured together as `all`.
        Raises InputError for what is missing or unknown.
        """
        if dir is None:
            raise InputError("benchmark=csfcube needs data.dir=FOLDER, that of the collection")
        if ranked_dir is not None and experiment_name is None:
            raise InputError(
                f"ranked_dir needs experiment_name=NAME: of the files {ranked_file('NAME', 'FACET')} in it"
            )
        if query not in (WHOLE, FACET):
            raise InputError(f"benchmark.query={query}: choose one of {WHOLE}, {FACET}")
        if not facets or isinstance(facets, str) or not set(facets) <= set(FACETS):
            raise InputError(f"benchmark.facets: {facets!s} is no list of {', '.join(FACETS)}")
        self.dir, self.ranked_dir, self.experiment = Path(dir), ranked_dir, experiment_name
        self.query, self.texts, self.cache_dir, self.index_dir = query, texts, cache_dir, index_dir
        self.facets = tuple(facet for facet in FACETS if facet in facets)

    def run(self, folder: Path, provenance: Provenance, retriever: Callable[[], Retriever]) -> None:
        """By facet and split (metrics.json), and by query."""
        cube = CsfCube.read(self.dir, self.facets)
        if self.ranked_dir is not None and self.experiment is not None:
            place, name = Path(self.ranked_dir), self.experiment
        else:
            place, name = self._rank(cube, folder / RANKED, retriever)
        ranked = {facet: read_facet(cube, place, name, facet) for facet in self.facets}
        remarks = skipped(cube, {facet: unranked for facet, (_, unranked) in ranked.items()})
        for remark in remarks:
            log.warning("%s", remark)
        values = query_values(cube, {facet: rankings for facet, (rankings, _) in ranked.items()})
        metrics = facet_table(cube, values)
        head = ["facet", "split", *COLUMNS.values()]
        rows = [
            [facet, split, *(f"{metrics[key_of(facet, split)][name]:.2f}" for name in COLUMNS)]
            for facet in cube.folds
            for split in SPLITS
        ]
        show([head, *rows], f"CSFCube, {name}, percent")
        columns = {
            name: np.array([row[name] for row in values.values()]) for name in next(iter(values.values()))
        }
        PerQuery(list(values), [query.rpartition("_")[0] for query in values], columns).write(
            folder / PER_QUERY
        )
        report = [
            f"# CSFCube: {name}",
            f"{len(values)} queries. Percent, as CSFCube's own evaluation script computes it: dev is the "
            "first fold's development part; test is the mean of the two folds' test parts.",
            *remarks,
            markdown_table(head, rows),
        ]
        write_results(folder, metrics, report, provenance)

    def _rank(self, cube: CsfCube, folder: Path, make: Callable[[], Retriever]) -> tuple[Path, str]:
        texts = Path(self.texts) if self.texts is not None else find_texts(self.dir)
        corpus = open_cube(cube, texts, self.cache_dir)
        retriever = make()
        retriever.open(corpus, self.index_dir)
        name = self.experiment or f"{retriever.name}-{self.query}"
        write_ranked(cube, corpus, retriever, self.query, folder, name)
        return folder, name


def read_facet(cube: CsfCube, folder: Path, name: str, facet: str) -> tuple[dict[str, Ranking], list[str]]:
    """The rankings of a facet, and the pairs that were not ranked (see read_ranked).

    Raises InputError that names the rankings which are there, or queries of fewer than 20 candidates.
    """
    path = folder / ranked_file(name, facet)
    if not path.is_file():
        before, after = ranked_file("\0", facet).split("\0")
        there = sorted(file.name[len(before) : -len(after)] for file in folder.glob(f"{before}*{after}"))
        names = f"experiment_name={'|'.join(there)}" if there else "no rankings of this facet"
        raise InputError(f"{path}: no such file; in {folder} there is {names}")
    rankings, unranked = read_ranked(path, cube.pools[facet])
    if short := [query for query, ranking in rankings.items() if len(ranking) < CUT]:
        raise InputError(
            f"{path}: {len(short)} queries have fewer than {CUT} candidates ranked: {some(short)}"
        )
    return rankings, unranked


def skipped(cube: CsfCube, unranked: dict[str, list[str]]) -> list[str]:
    """What is not measured, in words; unranked: {facet: pairs}."""
    own = f"{len(cube.selves)} queries are in their own pools and not scored: {some(cube.selves)}."
    left = [
        f"{facet}: {len(pairs):,} candidates are not ranked, and left out of the measures, as the official "
        f"script does: {some(pairs)}."
        for facet, pairs in unranked.items()
        if pairs
    ]
    return [own, *left] if cube.selves else left


def query_values(cube: CsfCube, ranked: dict[str, dict[str, Ranking]]) -> dict[str, dict[str, float]]:
    """{QUERY_FACET: measures} of ranked pools {facet: {query: ranking}}, candidates in the order given."""
    return {
        f"{query}_{facet}": query_measures([cube.pools[facet][query][paper] for paper, _ in ranking])
        for facet, rankings in ranked.items()
        for query, ranking in rankings.items()
    }


def facet_table(cube: CsfCube, values: dict[str, dict[str, float]]) -> Table:
    """Percent by facet: of the split test under the facet's name, of dev under dev/FACET."""
    return {
        key_of(facet, split): split_means(values, folds, split)
        for split in ("test", "dev")
        for facet, folds in cube.folds.items()
    }


def key_of(facet: str, split: str) -> str:
    """The name of a facet's measures in metrics.json."""
    return facet if split == "test" else f"{split}/{facet}"
