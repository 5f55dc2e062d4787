"""SciDocs' files: judged pools by task, embeddings, and runs (Cohan et al. 2020)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datasets.atomic import written_whole
from datasets.errors import InputError
from datasets.fulltext.json_lines import read_objects
from datasets.progress import reading
from evaluation.global_benchmarks.pool_benchmark import some
from retrieval.trec import NAMES, escaped, read_fields, unescaped

TASKS = {"co-view": "coview", "co-read": "coread", "cite": "cite", "co-cite": "cocite"}
"""Folders of the tasks, in the order of the official script."""
METADATA = "paper_metadata_view_cite_read.json"
"""Titles and abstracts of the papers of all four."""

Pools = dict[str, dict[str, int]]
"""{query: {candidate: relevance}}"""
Scores = dict[str, dict[str, float]]
"""{query: {candidate: score}}, higher is better; what is not there was not scored."""
Vector = NDArray[np.float32] | NDArray[np.float64]


def qrel_file(task: str, split: str) -> str:
    """The name of a task's judged pools, in the folder of the data."""
    return f"{TASKS[task]}/{split}.qrel"


def run_file(task: str) -> str:
    """The name of a task's run in a folder of runs."""
    return f"{TASKS[task]}.run"


def read_pools(path: Path) -> Pools:
    """Lines `query 0 paper relevance`.

    Raises InputError that names file and line, papers that are there twice, and queries without a relevant
    candidate.
    """
    columns = ("query", "iteration", "paper", "relevance")
    table = read_fields(path, columns, {"query": NAMES, "paper": NAMES, "relevance": pa.int64()})
    pools: Pools = {}
    for query, paper, relevance in _rows(table):
        pool = pools.setdefault(query, {})
        if paper in pool:
            raise InputError(f"{path}: query {query!r} has the paper {paper!r} twice")
        pool[paper] = relevance
    if vain := [query for query, pool in pools.items() if not any(grade > 0 for grade in pool.values())]:
        raise InputError(
            f"{path}: {len(vain):,} queries have no relevant candidate: {some(vain)}; leave them out"
        )
    return pools


def read_run(path: Path, pools: Pools) -> Scores:
    """Lines `query Q0 paper rank score name` about a task's pools; the ranks do not count.

    Raises InputError that names file and line, papers ranked twice or in no pool, and scores that are NaN.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; ranked_dir is to hold {', '.join(map(run_file, TASKS))}")
    columns = ("query", "Q0", "paper", "rank", "score", "name")
    table = read_fields(path, columns, {"query": NAMES, "paper": NAMES, "score": pa.float64()})
    scores: Scores = {}
    foreign, wrong = [], []
    for query, paper, score in _rows(table):
        if paper not in pools.get(query, {}):
            foreign.append(f"{query}_{paper}")
        elif np.isnan(score):
            wrong.append(f"{query}_{paper}")
        elif paper in scores.setdefault(query, {}):
            raise InputError(f"{path}: query {query!r} has the paper {paper!r} twice")
        else:
            scores[query][paper] = score
    if foreign:
        raise InputError(
            f"{path}: {len(foreign):,} papers are not in the pool of their query: {some(foreign)}"
        )
    if wrong:
        raise InputError(f"{path}: {len(wrong):,} scores are NaN: {some(wrong)}; give each a number")
    return scores


def write_run(path: Path, scores: Scores, name: str) -> None:
    """What `read_run` reads, best first; of equal scores the greater id, as trec_eval does."""
    with written_whole(path) as part, part.open("w", encoding="utf-8") as file:
        for query, found in zip(escaped(scores), scores.values(), strict=True):
            ranked = sorted(zip(found.values(), escaped(found), strict=True), reverse=True)
            for rank, (score, paper) in enumerate(ranked, 1):
                file.write(f"{query} Q0 {paper} {rank} {score!r} {escaped([name])[0]}\n")


def read_embeddings(path: Path, wanted: Collection[str]) -> dict[str, Vector]:
    """Vectors of wanted papers from JSON lines {"paper_id": ID, "embedding": [numbers]}, plain or gzipped.

    A paper that is there twice has its last vector; an empty one stays empty. They are kept in half the room
    where nothing is lost by it. Raises InputError that names file, line and paper.
    """
    found: dict[str, Vector] = {}
    dim = 0
    with reading(path, path.name) as advance:
        for where, record in read_objects(path, advance):
            paper, numbers = record.get("paper_id"), record.get("embedding")
            if not isinstance(paper, str | int) or not isinstance(numbers, list):
                raise InputError(f"{where}: must be an object with a paper_id and an embedding, a list")
            if str(paper) not in wanted:
                continue
            vector = _vector(numbers, f"{where}, paper {paper!r}")
            dim = dim or len(vector)
            if len(vector) not in (0, dim):
                raise InputError(
                    f"{where}, paper {paper!r}: an embedding of {len(vector)} numbers, others have {dim}"
                )
            found[str(paper)] = vector
    return found


def _vector(numbers: list[Any], where: str) -> Vector:
    try:
        vector = np.array(numbers, np.float64)
    except (ValueError, TypeError, OverflowError):
        vector = np.empty((0, 0))
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise InputError(f"{where}: the embedding must be a list of finite numbers")
    small = vector.astype(np.float32)
    return small if (small == vector).all() else vector


def distances(pools: Pools, embeddings: Mapping[str, Vector]) -> Scores:
    """Minus the Euclidean distance of query and candidate, to five places, as the official script takes it.

    Queries without a vector and candidates without one are left out; a candidate of an empty one comes last.
    """
    scores: Scores = {}
    for query, pool in pools.items():
        if not len(embeddings.get(query, ())):
            continue
        asked = embeddings[query].astype(np.float64)
        there = {paper: embeddings[paper] for paper in pool if paper in embeddings}
        scores[query] = {
            paper: float(np.round(-np.linalg.norm(asked - vector), 5)) if len(vector) else float("-inf")
            for paper, vector in there.items()
        }
    return scores


def _rows(table: pa.Table) -> list[tuple[str, str, Any]]:
    columns = [table[name].to_pylist() for name in table.column_names]
    return [(unescaped(query), unescaped(paper), value) for query, paper, value in zip(*columns, strict=True)]
