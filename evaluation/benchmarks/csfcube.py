"""CSFCube: papers that are alike in background, method or result (Mysore et al. 2021).

Equal to the collection's own evaluation script.

CSFCube's files: graded pools by facet, folds of queries, and ranked pools (Mysore et al. 2021).
What CSFCube's evaluation script computes (Mysore et al. 2021): its own DCG, precision and averaging.
Ranking CSFCube's pools by a retriever, in the official format (Mysore et al. 2021).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import orjson
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import written_whole
from evaluation.benchmark import Benchmark, Data, Output, RetrieverMaker
from evaluation.benchmarks.pools import (
    ABOUT,
    Question,
    Table,
    Text,
    ids,
    is_number,
    open_texts,
    pool_scores,
    read_json,
    read_texts,
    some,
    table,
)
from evaluation.measures import PerQuery
from evaluation.report import (
    PER_QUERY,
    Column,
    Metrics,
    Provenance,
    comparison,
    markdown_table,
    show,
    write_results,
)
from retrieval.base import Retriever

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


CUT = 20
"""The rank of precision, recall and F1."""
MEANS = {"av_precision": "mean_av_precision", "reciprocal_rank": "mean_reciprocal_rank"}
"""The script's names for means, where they differ from those of single queries."""


def query_measures(grades: Sequence[int]) -> dict[str, float]:
    """Measures of one query by the script's names; grades [n] 0 to 3 in ranked order, n at least 20.

    `r_precision` is the precision at the rank of the last relevant candidate. Without a relevant candidate
    all but ndcg are 0.
    """
    gains = np.asarray(grades, np.float64)
    n, relevant = len(gains), gains >= RELEVANT
    if n < CUT:
        raise ValueError(f"{n} candidates, where precision at {CUT} is asked for")
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


def split_means(
    values: Mapping[str, Mapping[str, float]], folds: Mapping[str, Sequence[str]], split: str
) -> dict[str, float]:
    """Means over the queries of each fold of a split, and then over the folds, in percent.

    values: {query: measures}; folds: {fold: queries}.
    """
    names = next(iter(values.values()))
    means = {
        name: np.mean([np.mean([values[query][name] for query in folds[fold]]) for fold in SPLITS[split]])
        for name in names
    }
    return {MEANS.get(name, name): 100 * float(mean) for name, mean in means.items()}


LABELS = {
    "background": ("background_label", "objective_label"),
    "method": ("method_label",),
    "result": ("result_label",),
}
"""The sentences of a facet; what a paper is for belongs to its background (annotation guidelines)."""
WHOLE, FACET = "whole", "facet"


def find_texts(folder: Path) -> Path:
    """The file of abstracts in the collection's folder; InputError if there is none."""
    found = sorted(folder.glob("abstracts-csfcube-preds*.jsonl*"))
    if not found:
        raise InputError(f"{folder}: no abstracts-csfcube-preds.jsonl, whose texts are to be ranked")
    return found[0]


def context_of(name: str, facet: str, query: str) -> str:
    """The context that stands for a query of a facet: by its whole abstract, or by the facet's sentences."""
    return f"{name}_{facet}_{query}"


def open_cube(cube: CsfCube, texts: Path, cache_dir: str | Path) -> Corpus:
    """The collection as a corpus, with two contexts for each query of a facet: whole, and its sentences.

    The latter are left out where there are none. Raises InputError that names papers without a text.
    """
    asking = {name for pools in cube.pools.values() for name in pools}
    asked = {text.id: text for text in read_texts(texts) if text.id in asking}
    questions, candidates = {}, set[str]()
    for facet, pools in cube.pools.items():
        for name, pool in pools.items():
            candidates |= set(pool)
            relevant = tuple(paper for paper, grade in pool.items() if grade >= RELEVANT)
            questions[context_of(name, facet, WHOLE)] = Question(name, relevant)
            if words := sentences(asked[name], facet) if name in asked else "":
                questions[context_of(name, facet, FACET)] = Question(name, relevant, words)
    return open_texts("CSFCube", texts, questions, candidates, cache_dir)


def sentences(text: Text, facet: str) -> str:
    """What an abstract says of a facet, by the labels of its sentences."""
    labelled = zip(text.labels, text.sentences, strict=False)  # there may be no labels at all
    return " ".join(sentence for label, sentence in labelled if label in LABELS[facet])


def write_ranked(
    cube: CsfCube, corpus: Corpus, retriever: Retriever, query: str, folder: Path, experiment: str
) -> None:
    """Rank all pools, and write test-pid2pool-csfcube-EXPERIMENT-FACET-ranked.json into the folder.

    The retriever has indexed the corpus. query: what it is asked by, whole or facet. A distance is minus its
    score; candidates of equal distance are ordered by id. Raises InputError that names queries without a
    sentence of their facet.
    """
    contexts = set(corpus.context_ids)
    for facet, pools in cube.pools.items():
        asked = {name: context_of(name, facet, query) for name in pools}
        if mute := [name for name, context in asked.items() if context not in contexts]:
            raise InputError(
                f"{facet}: no sentence (pred_labels) of {some(mute)}; ask by benchmark.query=whole"
            )
        scores = pool_scores(retriever, corpus, {asked[name]: pool for name, pool in pools.items()})
        ranked = {}
        for name, context in asked.items():
            distances = [(-score, paper) for paper, score in scores[context].items()]
            ranked[name] = [(paper, distance) for distance, paper in sorted(distances)]
        folder.mkdir(parents=True, exist_ok=True)
        with written_whole(folder / ranked_file(experiment, facet)) as part:
            part.write_bytes(orjson.dumps(ranked))


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


class CSFCube(Benchmark):
    """Measures ranked pools, or those that a retriever ranks."""

    columns = tuple(
        f"{facet}/{measure}" for facet in (ALL, *FACETS) for measure in ("mean_av_precision", "ndcg%20")
    )
    compared: ClassVar = {"av_precision": "MAP"}
    about = ABOUT

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

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverMaker, data: Data | None = None
    ) -> Metrics:
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
        return metrics

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        """All facets together by all measures, and the facets by two of them; split test."""
        results = {name: output.metrics for name, output in outputs.items()}
        whole = [Column(f"{ALL}/{key}", label, places=2, best=True) for key, label in COLUMNS.items()]
        facets = [
            Column(f"{facet}/{key}", f"{facet} {COLUMNS[key]}", places=2, best=True)
            for facet in FACETS
            for key in ("mean_av_precision", "ndcg%20")
        ]
        return [comparison(results, whole, "all facets"), comparison(results, facets)]

    def _rank(self, cube: CsfCube, folder: Path, make: RetrieverMaker) -> tuple[Path, str]:
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
