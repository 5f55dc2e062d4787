"""CSFCube: papers similar in background, method or result (Mysore et al. 2021).

Reproduces the collection's evaluation script, including its definitions of DCG, precision and averages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import atomic_write
from citerec.datasets.corpus import Corpus
from citerec.datasets.published.downloads import ensure_release
from citerec.evaluation.benchmark import RetrieverFactory
from citerec.evaluation.benchmarks.papers.pools import (
    Findings,
    Percent,
    PoolBenchmark,
    QueryPaper,
    Text,
    first_few,
    open_texts,
    pool_scores,
    read_json,
    read_texts,
)
from citerec.evaluation.measures import PerQuery
from citerec.evaluation.report import Column, Part, Report, Table
from citerec.evaluation.settings import CSFCubeSettings
from citerec.formats.json_lines import validate

FACETS = ("background", "method", "result")
ALL = "all"
LABELS = {
    "background": ("background_label", "objective_label"),
    "method": ("method_label",),
    "result": ("result_label",),
}
"""Sentence labels of each facet; a paper's objective belongs to its background (annotation guidelines)."""
FACET = "facet"
"""Value of `query` that searches with the sentences of a facet only."""
RANKED = "ranked"
"""Folder of a retriever's rankings."""
RELEVANT = 2
"""Lowest grade that counts as relevant for binary measures."""
SPLITS = {"dev": ("fold1_dev",), "test": ("fold1_test", "fold2_test")}
"""Folds of each split: the development part of the first, and the test parts of both (datasheet)."""
CUTOFF = 20
"""Cutoff of precision, recall and F1."""
MEANS = {"av_precision": "mean_av_precision", "reciprocal_rank": "mean_reciprocal_rank"}
"""The script's names of means that differ from the per-query names."""
COLUMNS = {
    "r_precision": "R-Precision",
    "precision": f"Precision@{CUTOFF}",
    "recall": f"Recall@{CUTOFF}",
    "ndcg": "NDCG",
    "ndcg@20": "NDCG@20",
    "ndcg%20": "NDCG%20",
    "mean_av_precision": "MAP",
    "mean_reciprocal_rank": "MRR",
}
"""Columns of the official table, and two more that papers report."""
HEADLINE = ("mean_av_precision", "ndcg%20")

GradedPools = dict[str, dict[str, int]]
"""{query: {candidate: grade}}"""
Rankings = dict[str, list[tuple[str, float]]]
"""{query: (candidate, distance) pairs, best first}"""


@dataclass(frozen=True)
class CSFCubePools:
    """The graded pools and folds of the collection.

    pools: {facet: {query: {candidate: grade}}}, without the query itself. folds: {facet: {fold: queries}},
    with queries named QUERY_FACET.
    """

    folder: Path
    pools: dict[str, GradedPools]
    folds: dict[str, dict[str, list[str]]]

    @classmethod
    def read(cls, folder: str | Path) -> CSFCubePools:
        """Read test-pid2anns-csfcube-FACET.json and evaluation_splits.json."""
        folder = Path(folder)
        pools = {facet: _read_pools(folder / f"test-pid2anns-csfcube-{facet}.json") for facet in FACETS}
        for queries in pools.values():
            for query, pool in queries.items():
                pool.pop(query, None)  # it would rank first, and has no real grade
        path = folder / "evaluation_splits.json"
        folds: dict[str, dict[str, list[str]]] = msgspec.to_builtins(
            validate(read_json(path), _Splits, str(path))
        )
        keys = {f"{query}_{facet}" for facet, queries in pools.items() for query in queries}
        listed = {query for of_facet in folds.values() for queries in of_facet.values() for query in queries}
        if unknown := sorted(listed - keys):
            raise InputError(f"{path}: {len(unknown):,} queries without annotations: {first_few(unknown)}")
        return cls(folder, pools, folds)


class _Pool(msgspec.Struct):
    cands: list[str]
    relevance_adju: list[Annotated[int, msgspec.Meta(ge=0, le=3)]]


def _read_pools(path: Path) -> GradedPools:
    pools: GradedPools = {}
    for query, pool in validate(read_json(path), dict[str, _Pool], str(path)).items():
        pools[query] = dict(zip(pool.cands, pool.relevance_adju, strict=False))
        if not len(pools[query]) == len(pool.cands) == len(pool.relevance_adju):
            raise InputError(f"{path}, query {query!r}: each candidate must appear once, with one grade")
    return pools


_Queries = Annotated[list[str], msgspec.Meta(min_length=1)]


class _Folds(msgspec.Struct):
    fold1_dev: _Queries
    fold1_test: _Queries
    fold2_test: _Queries


class _Splits(msgspec.Struct):
    background: _Folds
    method: _Folds
    result: _Folds
    all: _Folds


def ranked_file(experiment: str, facet: str) -> str:
    """Return the file name that CSFCube's evaluation script expects."""
    return f"test-pid2pool-csfcube-{experiment}-{facet}-ranked.json"


def read_rankings(path: Path, pools: GradedPools) -> Rankings:
    """Read ranked pools {query: [[candidate, distance], ...]} of a facet, dropping each query from its own.

    InputError names queries and candidates that the pools lack or the file ranks twice or not at all.
    """
    rankings = validate(read_json(path), dict[str, list[tuple[str, float]]], str(path))
    if odd := sorted(rankings.keys() ^ pools.keys()):
        raise InputError(f"{path}: {len(odd):,} queries are not ranked, or unknown: {first_few(odd)}")
    for query, pairs in rankings.items():
        rankings[query] = pairs = [pair for pair in pairs if pair[0] != query]
        times = Counter(paper for paper, _ in pairs)
        wrong = [p for p, distance in pairs if p not in pools[query] or times[p] > 1 or math.isnan(distance)]
        if wrong:
            raise InputError(
                f"{path}, query {query!r}: {len(wrong):,} candidates are not in its pool, ranked twice, or "
                f"at distance NaN: {first_few(wrong)}"
            )
    return rankings


def query_measures(grades: Sequence[int]) -> dict[str, float]:
    """Compute the script's measures of one query; grades: [n], 0 to 3 in ranked order, n at least 20.

    `r_precision` is the precision at the rank of the last relevant candidate. Without a relevant candidate,
    all measures except nDCG are 0.
    """
    gains = np.asarray(grades, np.float64)
    n, relevant = len(gains), gains >= RELEVANT
    ranks = np.flatnonzero(relevant) + 1
    precisions = np.arange(1, len(ranks) + 1) / ranks
    hits = np.count_nonzero(relevant[:CUTOFF])
    precision, recall = hits / CUTOFF, hits / max(len(ranks), 1)
    return {
        "recall": recall,
        "precision": precision,
        "f1": 2 * precision * recall / (precision + recall) if hits else 0.0,
        "r_precision": float(precisions[-1]) if len(ranks) else 0.0,
        "av_precision": float(precisions.mean()) if len(ranks) else 0.0,
        "reciprocal_rank": 1 / float(ranks[0]) if len(ranks) else 0.0,
        "ndcg": ndcg(gains, n),
        "ndcg@20": ndcg(gains, 20),
        "ndcg%20": ndcg(gains, int(0.20 * n)),
    }


def ndcg(gains: NDArray[np.float64], k: int) -> float:
    """Return the DCG of the top k divided by that of the ideal order; 0 if that is 0."""
    best = dcg(np.sort(gains)[::-1], k)
    return dcg(gains, k) / best if best else 0.0


def dcg(gains: NDArray[np.float64], k: int) -> float:
    """Return the DCG with discounts 1 / max(log2(rank), 1): ranks 1 and 2 have the same weight.

    >>> dcg(np.array([3.0, 2.0, 0.0, 1.0]), 4)
    5.5
    """
    return float((gains[:k] / np.maximum(np.log2(np.arange(1, len(gains[:k]) + 1)), 1)).sum())


def facet_table(
    folds: Mapping[str, Mapping[str, Sequence[str]]], values: Mapping[str, Mapping[str, float]]
) -> Percent:
    """Average measures over the queries of each fold, then over the folds of a split, in percent.

    folds: {facet: {fold: queries}}; values: {query: measures}. Rows are FACET for test and dev/FACET for dev.
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
    """Return the key of a facet's measures in metrics.json."""
    return facet if split == "test" else f"{split}/{facet}"


class CSFCube(PoolBenchmark):
    """Evaluates ranked pools, from files or by a retriever."""

    settings: CSFCubeSettings
    settings_class = CSFCubeSettings
    headline = (Column(f"{ALL}/mean_av_precision", "MAP", decimals=2, best=True),)
    tables: ClassVar = {  # of split test
        "all facets": [
            Column(f"{ALL}/{key}", label, decimals=2, best=True) for key, label in COLUMNS.items()
        ],
        "": [
            Column(f"{facet}/{key}", f"{facet} {COLUMNS[key]}", decimals=2, best=True)
            for facet in FACETS
            for key in HEADLINE
        ],
    }
    compared: ClassVar = {"av_precision": "MAP"}

    def measure(self, folder: Path, retriever: RetrieverFactory) -> Findings:
        """Measure by facet and split, and per query."""
        settings = self.settings
        cube = CSFCubePools.read(settings.dir or ensure_release("csfcube", settings.cache_dir))
        if settings.ranked_dir is not None:
            name, given_dir = str(settings.experiment_name), Path(settings.ranked_dir)
            ranked = {
                facet: read_rankings(given_dir / ranked_file(name, facet), pools)
                for facet, pools in cube.pools.items()
            }
        else:
            name, ranked = self._rank(cube, folder / RANKED, retriever)
        remarks = []
        values: dict[str, dict[str, float]] = {}
        for facet, rankings in ranked.items():
            if short := [query for query, ranking in rankings.items() if len(ranking) < CUTOFF]:
                raise InputError(
                    f"{ranked_file(name, facet)}: {len(short)} queries have fewer than {CUTOFF} ranked "
                    f"candidates: {first_few(short)}"
                )
            unranked = []
            for query, ranking in rankings.items():
                pool, papers = cube.pools[facet][query], dict(ranking)
                values[f"{query}_{facet}"] = query_measures([pool[paper] for paper in papers])
                unranked += [f"{query}_{paper}" for paper in pool if paper not in papers]
            if unranked:
                remarks.append(
                    f"{facet}: {len(unranked):,} candidates are not ranked and left out of the measures, as "
                    f"in the official script: {first_few(unranked)}."
                )
        metrics = facet_table(cube.folds, values)
        rows = [
            [facet, split, *(f"{metrics[facet_key(facet, split)][name]:.2f}" for name in COLUMNS)]
            for facet in cube.folds
            for split in SPLITS
        ]
        parts: list[Part] = [
            f"{len(values)} queries. Percent, as computed by CSFCube's evaluation script: dev is the "
            "development part of the first fold; test is the mean over the test parts of both folds.",
            *remarks,
            Table(["facet", "split", *COLUMNS.values()], rows),
        ]
        columns = {m: np.array([row[m] for row in values.values()]) for m in next(iter(values.values()))}
        queries = [query.rpartition("_")[0] for query in values]
        report = Report(f"CSFCube: {name}", metrics, parts)
        return Findings(report, PerQuery(list(values), queries, columns), remarks)

    def _rank(
        self, cube: CSFCubePools, folder: Path, make: RetrieverFactory
    ) -> tuple[str, dict[str, Rankings]]:
        """Rank with a retriever; return the experiment's name and the rankings, and write them to files.

        Distances are negated scores; ties are ordered by id.
        """
        corpus = self._corpus(cube)
        retriever = make()
        retriever.open(corpus, self.settings.index_dir)
        name = self.settings.experiment_name or f"{retriever.name}-{self.settings.query}"
        ranked: dict[str, Rankings] = {}
        for facet, pools in cube.pools.items():
            named = {f"{query}_{facet}": pool for query, pool in pools.items()}
            scores = pool_scores(retriever, corpus, named)
            ranked[facet] = {}
            for query in pools:
                distances = sorted((-score, paper) for paper, score in scores[f"{query}_{facet}"].items())
                ranked[facet][query] = [(paper, distance) for distance, paper in distances]
            with atomic_write(folder / ranked_file(name, facet)) as part:
                part.write_bytes(msgspec.json.encode(ranked[facet]))
        return name, ranked

    def _corpus(self, cube: CSFCubePools) -> Corpus:
        """Open the collection as a corpus with a context per query and facet: the abstract, or its sentences.

        InputError names papers without a text, and queries without a sentence of the facet.
        """
        path = next(iter(sorted(cube.folder.glob("abstracts-csfcube-preds*.jsonl*"))), None)
        if path is None:
            raise InputError(f"{cube.folder}: no abstracts-csfcube-preds.jsonl with the texts to rank")
        names = {query for pools in cube.pools.values() for query in pools}
        texts = {text.id: text for text in read_texts(path) if text.id in names}
        queries, candidates = {}, set[str]()
        for facet, pools in cube.pools.items():
            bodies = {query: facet_text(texts[query], facet) for query in pools if query in texts}
            empty = [query for query, body in bodies.items() if not body]
            if self.settings.query == FACET and empty:
                raise InputError(
                    f"{facet}: no sentences with this label (pred_labels) in {first_few(empty)}; set "
                    "benchmark.query=whole"
                )
            for query, pool in pools.items():
                candidates |= set(pool)
                relevant = tuple(paper for paper, grade in pool.items() if grade >= RELEVANT)
                body = bodies.get(query) if self.settings.query == FACET else None
                queries[f"{query}_{facet}"] = QueryPaper(query, relevant, body)
        return open_texts("CSFCube", path, queries, candidates, self.settings.cache_dir)


def facet_text(text: Text, facet: str) -> str:
    """Join the sentences of an abstract that are labelled with a facet."""
    sentences = [text.abstract or ""] if not isinstance(text.abstract, list) else text.abstract
    labelled = zip(text.pred_labels or (), sentences, strict=False)  # labels may be missing
    return " ".join(sentence for label, sentence in labelled if label in LABELS[facet])
