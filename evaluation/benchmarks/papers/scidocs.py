"""SciDocs: papers that are cited, co-cited, co-viewed or co-read (Cohan et al. 2020).

Reproduces the official script (allenai/scidocs) for these four of its tasks: MAP and nDCG by trec_eval, means
over queries, in percent with two decimals.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
from ir_measures import AP, nDCG
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.progress import read_progress
from citerec.datasets.corpus import Corpus
from citerec.datasets.published.downloads import ensure_release, find_file
from citerec.datasets.published.releases import RELEASES
from citerec.evaluation.benchmark import RetrieverFactory
from citerec.evaluation.benchmarks.papers.pools import (
    Findings,
    JudgedPools,
    PoolBenchmark,
    Scores,
    first_few,
    merge_pools,
    open_judged,
    pool_scores,
    read_texts,
)
from citerec.evaluation.measures import PerQuery, Values, per_query
from citerec.evaluation.protocol import Qrels
from citerec.evaluation.report import Column, Part, Report, Table
from citerec.evaluation.settings import SciDocsSettings
from citerec.formats.json_lines import read_objects, validate

log = logging.getLogger(__name__)

TASKS = {"co-view": "coview", "co-read": "coread", "cite": "cite", "co-cite": "cocite"}
"""Folders of the tasks, in the order of the official script."""
METADATA = "paper_metadata_view_cite_read.json"
"""Titles and abstracts of the papers of all four tasks."""
MEASURES = {"map": AP, "ndcg": nDCG}

Vector = NDArray[np.float64]


def qrel_file(task: str, split: str) -> str:
    """Return the path of a task's judged pools within the data folder."""
    return f"{TASKS[task]}/{split}.qrel"


class _Embedding(msgspec.Struct):
    paper_id: str | int
    embedding: list[float]


def read_embeddings(path: Path, wanted: Collection[str]) -> dict[str, Vector]:
    """Read vectors of wanted papers from JSON lines {"paper_id": ID, "embedding": [..]}, plain or gzipped.

    The last vector of a paper counts; empty vectors stay empty. InputError names file, line and field or
    paper.
    """
    vectors: dict[str, Vector] = {}
    dim = 0
    with read_progress(path, path.name) as advance:
        for where, record in read_objects(path, advance):
            line = validate(record, _Embedding, where)
            paper = str(line.paper_id)
            if paper not in wanted:
                continue
            vector = np.array(line.embedding, np.float64)
            dim = dim or len(vector)
            if len(vector) not in (0, dim):
                raise InputError(
                    f"{where}, paper {paper!r}: the embedding has {len(vector)} numbers, others have {dim}"
                )
            vectors[paper] = vector
    return vectors


def negative_distances(pools: JudgedPools, embeddings: Mapping[str, Vector]) -> Scores:
    """Score pairs by negative Euclidean distance, rounded to five decimals like the official script.

    Queries and candidates without a vector are left out; candidates with an empty vector come last.
    """
    scores: Scores = {}
    for query, pool in pools.items():
        if not len(embeddings.get(query, ())):
            continue
        anchor = embeddings[query]
        vectors = {paper: embeddings[paper] for paper in pool if paper in embeddings}
        scores[query] = {
            paper: float(np.round(-np.linalg.norm(anchor - vector), 5)) if len(vector) else float("-inf")
            for paper, vector in vectors.items()
        }
    return scores


def open_pools(
    tasks: Mapping[str, JudgedPools], texts: Path, cache_dir: str | Path
) -> tuple[Corpus, JudgedPools]:
    """Open the papers of all tasks as a corpus; return it and the merged pools of queries with a text.

    Papers missing from `texts` are left out, as the official script leaves out those without an embedding.
    Raises InputError if no query has a text.
    """
    merged = merge_pools(tasks.values())
    wanted = set(merged) | {paper for pool in merged.values() for paper in pool}
    readable = {text.id: bool(text) for text in read_texts(texts) if text.id in wanted}
    if missing := sorted(wanted - readable.keys()):
        log.warning("%s lacks %s papers of the benchmark: %s", texts, f"{len(missing):,}", first_few(missing))
    pools: JudgedPools = {}
    for query, pool in merged.items():
        judged = {paper: relevance for paper, relevance in pool.items() if paper in readable}
        relevant = [paper for paper, relevance in judged.items() if relevance > 0 and readable[paper]]
        if relevant and readable.get(query):
            pools[query] = judged
    if not pools:
        raise InputError(f"{texts}: none of the {len(merged):,} queries has a text: {first_few(merged)}")
    return open_judged("SciDocs", texts, pools, cache_dir), pools


def measure_task(task: str, pools: JudgedPools, scores: Scores) -> tuple[list[str], Values, list[str]]:
    """Return the scored queries [Q], their measures, and remarks about what was not measured.

    As in the official script, queries without scores are left out of the means, and candidates without a
    score are not ranked, but still count if relevant. Raises InputError if no query is scored.
    """
    scored = {query: pool for query, pool in pools.items() if scores.get(query)}
    if not scored:
        raise InputError(f"{task}: none of its {len(pools):,} queries has scores: {first_few(pools)}")
    remarks = []
    if skipped := [query for query in pools if query not in scored]:
        remarks.append(
            f"{task}: {len(skipped):,} queries have no scores and are left out of the means, as in the "
            f"official script: {first_few(skipped)}."
        )
    if unranked := [f"{q}_{paper}" for q, pool in scored.items() for paper in pool if paper not in scores[q]]:
        remarks.append(
            f"{task}: {len(unranked):,} candidates have no scores and are not ranked, as in the official "
            f"script: {first_few(unranked)}."
        )
    return list(scored), per_query([scores], Qrels(scored), MEASURES), remarks


class SciDocs(PoolBenchmark):
    """Evaluates embeddings of a file, or the scores of a retriever."""

    settings: SciDocsSettings
    settings_class = SciDocsSettings
    headline = tuple(Column(f"{task}/map", f"{task} MAP", decimals=2, best=True) for task in TASKS)
    tables: ClassVar = {
        "": [
            Column(f"{task}/{key}", f"{task} {label}", decimals=2, best=True)
            for task in TASKS
            for key, label in (("map", "MAP"), ("ndcg", "nDCG"))
        ]
    }

    def measure(self, folder: Path, retriever: RetrieverFactory) -> Findings:
        """Measure by task and per query."""
        files = {task: self._file(qrel_file(task, self.settings.split)) for task in TASKS}
        tasks = {task: Qrels.read(file).judgements for task, file in files.items()}
        name, scores = self._scores(tasks, retriever)
        measured: dict[str, tuple[list[str], Values]] = {}
        remarks: list[str] = []
        for task, pools in tasks.items():
            queries, values, left_out = measure_task(task, pools, scores[task])
            measured[task] = queries, values
            remarks += left_out
        # percent, rounded like the official script
        metrics = {
            task: {m: float(np.round(100 * np.mean(numbers), 2)) for m, numbers in values.items()}
            for task, (_, values) in measured.items()
        }
        shown = {task: metrics[task] | {"queries": len(queries)} for task, (queries, _) in measured.items()}
        cells = [*(Column(m, m, decimals=2) for m in MEASURES), Column("queries", "queries")]
        parts: list[Part] = [
            "MAP and nDCG by trec_eval, in percent, means over queries, as in the official script.",
            *remarks,
            Table.of(shown, cells, "task"),
        ]
        report = Report(f"SciDocs: {name}, split {self.settings.split}", metrics, parts)
        return Findings(report, PerQuery.from_groups(measured), remarks)

    def _scores(
        self, tasks: Mapping[str, JudgedPools], make: RetrieverFactory
    ) -> tuple[str, dict[str, Scores]]:
        """Return the name of what is evaluated, and its scores by task."""
        settings = self.settings
        if settings.embeddings_file is not None:
            named = {paper for pools in tasks.values() for query in pools for paper in (query, *pools[query])}
            vectors = read_embeddings(Path(settings.embeddings_file), named)
            distances = {task: negative_distances(pools, vectors) for task, pools in tasks.items()}
            return settings.embeddings_file, distances
        corpus, merged = open_pools(tasks, self._file(METADATA), settings.cache_dir)
        retriever = make()
        retriever.open(corpus, settings.index_dir)
        own = pool_scores(retriever, corpus, merged)
        return retriever.name, {
            task: {
                query: {paper: own[query][paper] for paper in pool if paper in own[query]}
                for query, pool in pools.items()
                if query in own
            }
            for task, pools in tasks.items()
        }

    def _file(self, name: str) -> Path:
        """Return the path of one of the benchmark's files; InputError explains how to get missing ones."""
        settings = self.settings
        if settings.dir is not None:
            folder = Path(settings.dir)
        else:
            needed = [qrel_file(task, settings.split) for task in TASKS]
            needed += [name] if name == METADATA else []
            folder = ensure_release("scidocs", settings.cache_dir, files=needed)
        path = find_file(folder, name)
        if path is None:
            address = RELEASES["scidocs"].addresses[0]
            raise InputError(f"{folder}: no {name}; get SciDocs' files from {address}, or leave out data.dir")
        return path
