"""CSFCube: papers that are alike in background, method or result (Mysore et al. 2021).

Equal to the collection's own evaluation script, with its own DCG, precision and averaging.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import atomic_write
from datasets.json_lines import validate
from evaluation.benchmark import RetrieverMaker
from evaluation.benchmarks.pools import (
    Findings,
    PoolBenchmark,
    QueryPaper,
    Table,
    Text,
    first_few,
    is_number,
    open_texts,
    pool_scores,
    read_json,
    read_texts,
)
from evaluation.measures import PerQuery
from evaluation.report import Column, markdown_table
from evaluation.settings import CSFCubeSettings

FACETS = ("background", "method", "result")
ALL = "all"
LABELS = {
    "background": ("background_label", "objective_label"),
    "method": ("method_label",),
    "result": ("result_label",),
}
"""The sentences of a facet; a paper's objective belongs to its background (annotation guidelines)."""
WHOLE, FACET = "whole", "facet"
RANKED = "ranked"
"""The folder of rankings by a retriever."""
RELEVANT = 2
"""The least grade that counts as relevant for binary measures."""
SPLITS = {"dev": ("fold1_dev",), "test": ("fold1_test", "fold2_test")}
"""The folds of each split: the development part of one, and the test parts of both (datasheet)."""
CUT = 20
"""The rank of precision, recall and F1."""
MEANS = {"av_precision": "mean_av_precision", "reciprocal_rank": "mean_reciprocal_rank"}
"""The script's names of means, where they differ from those of single queries."""
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
"""Those of the official table, and the two that papers report in addition."""
HEADLINE = ("mean_av_precision", "ndcg%20")

GradedPools = dict[str, dict[str, int]]
"""{query: {candidate: grade}}"""
Rankings = dict[str, list[tuple[str, float]]]
"""{query: candidates with their distances to it, best first}"""


@dataclass(frozen=True)
class CSFCubePools:
    """pools: {facet: {query: {candidate: grade}}}, without the query itself; folds: {facet: {fold: queries}}.

    A query of a facet is called QUERY_FACET in the folds. own: queries that stood in their own pool.
    """

    folder: Path
    pools: dict[str, GradedPools]
    folds: dict[str, dict[str, list[str]]]
    own: list[str]

    @classmethod
    def read(cls, folder: str | Path) -> CSFCubePools:
        """Read test-pid2anns-csfcube-FACET.json and evaluation_splits.json.

        Raises InputError that names file, query and what is wrong, as queries without a relevant candidate.
        """
        folder = Path(folder)
        pools = {facet: _read_pools(folder / f"test-pid2anns-csfcube-{facet}.json") for facet in FACETS}
        own = []
        for facet, queries in pools.items():
            for query, pool in queries.items():
                if pool.pop(query, None) is not None:  # it would be found first, and nobody rated it
                    own.append(f"{query}_{facet}")
        return cls(folder, pools, _read_folds(folder / "evaluation_splits.json", pools), own)


class _Pool(msgspec.Struct):
    cands: list[str]
    relevance_adju: list[Annotated[int, msgspec.Meta(ge=0, le=3)]]


def _read_pools(path: Path) -> GradedPools:
    pools: GradedPools = {}
    for query, value in read_json(path).items():
        where = f"{path}, query {query!r}"
        pool = validate(value, _Pool, where)
        if len(pool.relevance_adju) != len(pool.cands):
            raise InputError(f"{where}: {len(pool.cands)} candidates and {len(pool.relevance_adju)} grades")
        pools[query] = dict(zip(pool.cands, pool.relevance_adju, strict=True))
        if len(pools[query]) < len(pool.cands):
            raise InputError(f"{where}: a candidate appears twice")
    no_hit = [query for query, pool in pools.items() if all(pool[p] < RELEVANT for p in pool if p != query)]
    if no_hit:
        raise InputError(
            f"{path}: {len(no_hit):,} queries have no relevant candidate (none of grade {RELEVANT} or more): "
            f"{first_few(no_hit)}"
        )
    return pools


class _Folds(msgspec.Struct):
    fold1_dev: list[str]
    fold1_test: list[str]
    fold2_test: list[str]


def _read_folds(path: Path, pools: dict[str, GradedPools]) -> dict[str, dict[str, list[str]]]:
    known = {f"{query}_{facet}" for facet, queries in pools.items() for query in queries}
    content = read_json(path)
    folds: dict[str, dict[str, list[str]]] = {}
    for facet in (*FACETS, ALL):
        of_facet = validate(content.get(facet), _Folds, f"{path}, facet {facet!r}")
        folds[facet] = msgspec.structs.asdict(of_facet)
        for fold, queries in folds[facet].items():
            if not queries:
                raise InputError(f"{path}: {facet}, {fold} has no queries")
            if unknown := [query for query in queries if query not in known]:
                raise InputError(
                    f"{path}: {facet}, {fold} has queries without annotations: {first_few(unknown)}"
                )
    return folds


def ranked_file(experiment: str, facet: str) -> str:
    """The name that CSFCube's evaluation script expects."""
    return f"test-pid2pool-csfcube-{experiment}-{facet}-ranked.json"


def read_ranked(path: Path, pools: GradedPools) -> Rankings:
    """Ranked pools {query: [[candidate, distance], ...]} of a facet, in order, each without its query.

    Raises InputError that names candidates which are in no pool or ranked twice, queries that are not ranked,
    and distances that are not numbers.
    """
    given = read_json(path)
    if unknown := [query for query in given if query not in pools]:
        raise InputError(f"{path}: {len(unknown):,} queries without annotations: {first_few(unknown)}")
    if missing := [query for query in pools if query not in given]:
        raise InputError(f"{path}: {len(missing):,} queries are not ranked: {first_few(missing)}")
    rankings: Rankings = {}
    for query, value in given.items():
        where = f"{path}, query {query!r}"
        pairs = [pair for pair in validate(value, list[tuple[str, Any]], where) if pair[0] != query]
        if wrong := [paper for paper, distance in pairs if not is_number(distance)]:
            raise InputError(f"{where}: distances that are NaN or not numbers, of {first_few(wrong)}")
        if foreign := [paper for paper, _ in pairs if paper not in pools[query]]:
            raise InputError(
                f"{where}: {len(foreign):,} candidates are not in its pool: {first_few(foreign)}"
            )
        if len(dict(pairs)) < len(pairs):
            raise InputError(f"{where}: a candidate is ranked twice")
        rankings[query] = pairs
    return rankings


def query_measures(grades: Sequence[int]) -> dict[str, float]:
    """Measures of one query by the script's names; grades [n] 0 to 3 in ranked order, n at least 20.

    `r_precision` is the precision at the rank of the last relevant candidate. Without a relevant candidate
    all but ndcg are 0.
    """
    gains = np.asarray(grades, np.float64)
    n, relevant = len(gains), gains >= RELEVANT
    if n < CUT:
        raise ValueError(f"{n} candidates, but precision at {CUT} needs more")
    ranks = np.flatnonzero(relevant) + 1
    precisions = np.arange(1, len(ranks) + 1) / ranks
    found = np.count_nonzero(relevant[:CUT])
    precision, recall = found / CUT, found / max(len(ranks), 1)
    return {
        "recall": recall,
        "precision": precision,
        "f1": 2 * precision * recall / (precision + recall) if found else 0.0,
        "r_precision": float(precisions[-1]) if len(ranks) else 0.0,
        "av_precision": float(precisions.mean()) if len(ranks) else 0.0,
        "reciprocal_rank": 1 / float(ranks[0]) if len(ranks) else 0.0,
        "ndcg": ndcg(gains, n),
        "ndcg@20": ndcg(gains, 20),
        "ndcg%20": ndcg(gains, int(0.20 * n)),
    }


def ndcg(gains: NDArray[np.float64], k: int) -> float:
    """DCG of the first k, over that of the best order of the same candidates; 0 where that is 0."""
    best = dcg(np.sort(gains)[::-1], k)
    return dcg(gains, k) / best if best else 0.0


def dcg(gains: NDArray[np.float64], k: int) -> float:
    """The first gain and, from the second on, gain / log2(rank): ranks 1 and 2 have the same weight.

    >>> dcg(np.array([3.0, 2.0, 0.0, 1.0]), 4)
    5.5
    """
    return float((gains[:k] / np.maximum(np.log2(np.arange(1, len(gains[:k]) + 1)), 1)).sum())


def facet_table(
    folds: Mapping[str, Mapping[str, Sequence[str]]], values: Mapping[str, Mapping[str, float]]
) -> Table:
    """Percent by facet: of the split test under the facet's name, of dev under dev/FACET.

    folds: {facet: {fold: queries}}; values: {query: measures}. The mean over the queries of each fold of a
    split, then over the folds.
    """
    names = next(iter(values.values()))
    return {
        facet_key(facet, split): {
            MEANS.get(name, name): 100
            * float(np.mean([np.mean([values[q][name] for q in queries[fold]]) for fold in SPLITS[split]]))
            for name in names
        }
        for split in ("test", "dev")
        for facet, queries in folds.items()
    }


def facet_key(facet: str, split: str) -> str:
    """The name of a facet's measures in metrics.json."""
    return facet if split == "test" else f"{split}/{facet}"


class CSFCube(PoolBenchmark):
    """Measures ranked pools, from files or by a retriever."""

    settings: CSFCubeSettings
    settings_class = CSFCubeSettings
    columns = tuple(f"{facet}/{measure}" for facet in (ALL, *FACETS) for measure in HEADLINE)
    tables: ClassVar = {  # of the split test
        "all facets": [Column(f"{ALL}/{key}", label, places=2, best=True) for key, label in COLUMNS.items()],
        "": [
            Column(f"{facet}/{key}", f"{facet} {COLUMNS[key]}", places=2, best=True)
            for facet in FACETS
            for key in HEADLINE
        ],
    }
    compared: ClassVar = {"av_precision": "MAP"}

    def measure(self, folder: Path, retriever: RetrieverMaker) -> Findings:
        """By facet and split, and by query."""
        given = self.settings
        cube = CSFCubePools.read(given.dir or "")
        if given.ranked_dir is not None:
            name = str(given.experiment_name)
            ranked = {facet: self._read(cube, Path(given.ranked_dir), name, facet) for facet in FACETS}
        else:
            name, ranked = self._rank(cube, folder / RANKED, retriever)
        remarks = []
        if cube.own:
            remarks = [
                f"{len(cube.own)} queries are in their own pools and not scored: {first_few(cube.own)}."
            ]
        values: dict[str, dict[str, float]] = {}
        for facet, rankings in ranked.items():
            if short := [query for query, ranking in rankings.items() if len(ranking) < CUT]:
                raise InputError(
                    f"{ranked_file(name, facet)}: {len(short)} queries have fewer than {CUT} candidates "
                    f"ranked: {first_few(short)}"
                )
            unranked = []
            for query, ranking in rankings.items():
                pool, papers = cube.pools[facet][query], dict(ranking)
                values[f"{query}_{facet}"] = query_measures([pool[paper] for paper in papers])
                unranked += [f"{query}_{paper}" for paper in pool if paper not in papers]
            if unranked:
                remarks.append(
                    f"{facet}: {len(unranked):,} candidates are not ranked, and left out of the measures, as "
                    f"the official script does: {first_few(unranked)}."
                )
        metrics = facet_table(cube.folds, values)
        head = ["facet", "split", *COLUMNS.values()]
        rows = [
            [facet, split, *(f"{metrics[facet_key(facet, split)][name]:.2f}" for name in COLUMNS)]
            for facet in cube.folds
            for split in SPLITS
        ]
        columns = {m: np.array([row[m] for row in values.values()]) for m in next(iter(values.values()))}
        return Findings(
            f"CSFCube: {name}",
            metrics,
            PerQuery(list(values), [query.rpartition("_")[0] for query in values], columns),
            [
                f"{len(values)} queries. Percent, as CSFCube's own evaluation script computes it: dev is the "
                "first fold's development part; test is the mean of the two folds' test parts.",
                *remarks,
                markdown_table(head, rows),
            ],
            {f"CSFCube, {name}, percent": [head, *rows]},
            remarks,
        )

    def _read(self, cube: CSFCubePools, folder: Path, name: str, facet: str) -> Rankings:
        """The rankings of a facet; InputError that names the experiments that exist instead."""
        path = folder / ranked_file(name, facet)
        if not path.is_file():
            before, after = ranked_file("\0", facet).split("\0")
            there = sorted(file.name[len(before) : -len(after)] for file in folder.glob(f"{before}*{after}"))
            names = f"experiment_name={'|'.join(there)}" if there else "no rankings of this facet"
            raise InputError(f"{path}: no such file; in {folder} there is {names}")
        return read_ranked(path, cube.pools[facet])

    def _rank(
        self, cube: CSFCubePools, folder: Path, make: RetrieverMaker
    ) -> tuple[str, dict[str, Rankings]]:
        """The experiment's name, and rankings by a retriever, also written in the official format.

        A distance is minus the score; candidates of equal distance are ordered by id.
        """
        corpus = self._corpus(cube)
        retriever = make()
        retriever.open(corpus, self.settings.index_dir)
        form, contexts = self.settings.query, set(corpus.context_ids)
        name = self.settings.experiment_name or f"{retriever.name}-{form}"
        ranked: dict[str, Rankings] = {}
        for facet, pools in cube.pools.items():
            context_ids = {query: context_of(form, facet, query) for query in pools}
            if empty := [query for query, context in context_ids.items() if context not in contexts]:
                raise InputError(
                    f"{facet}: no sentence (pred_labels) of {first_few(empty)}; set benchmark.query=whole"
                )
            scores = pool_scores(
                retriever, corpus, {context_ids[query]: pool for query, pool in pools.items()}
            )
            ranked[facet] = {}
            for query, context in context_ids.items():
                distances = sorted((-score, paper) for paper, score in scores[context].items())
                ranked[facet][query] = [(paper, distance) for distance, paper in distances]
            with atomic_write(folder / ranked_file(name, facet)) as part:
                part.write_bytes(orjson.dumps(ranked[facet]))
        return name, ranked

    def _corpus(self, cube: CSFCubePools) -> Corpus:
        """The collection as a corpus with two contexts for each query of a facet: whole, and its sentences.

        The latter are left out where there are none. Raises InputError that names papers without a text.
        """
        path = next(iter(sorted(cube.folder.glob("abstracts-csfcube-preds*.jsonl*"))), None)
        if path is None:
            raise InputError(f"{cube.folder}: no abstracts-csfcube-preds.jsonl, the texts to rank")
        names = {query for pools in cube.pools.values() for query in pools}
        texts = {text.id: text for text in read_texts(path) if text.id in names}
        queries, candidates = {}, set[str]()
        for facet, pools in cube.pools.items():
            for query, pool in pools.items():
                candidates |= set(pool)
                relevant = tuple(paper for paper, grade in pool.items() if grade >= RELEVANT)
                queries[context_of(WHOLE, facet, query)] = QueryPaper(query, relevant)
                if query in texts and (body := sentences(texts[query], facet)):
                    queries[context_of(FACET, facet, query)] = QueryPaper(query, relevant, body)
        return open_texts("CSFCube", path, queries, candidates, self.settings.cache_dir)


def context_of(form: str, facet: str, query: str) -> str:
    """The context of a query of a facet in one form, `whole` or `facet`."""
    return f"{form}_{facet}_{query}"


def sentences(text: Text, facet: str) -> str:
    """What an abstract says of a facet, by the labels of its sentences."""
    labelled = zip(text.labels, text.sentences, strict=False)  # there may be no labels at all
    return " ".join(sentence for label, sentence in labelled if label in LABELS[facet])
