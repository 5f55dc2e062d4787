"""SciDocs: papers that are cited, co-cited, viewed or read together (Cohan et al. 2020).

Equal to the official script (allenai/scidocs) for these four of its tasks: MAP and nDCG of trec_eval, means
over queries, in percent of two places.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import orjson
import pyarrow as pa
from ir_measures import AP, nDCG
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.download import ensure_release, find_file
from datasets.errors import InputError
from datasets.files import atomic_write
from datasets.json_lines import read_objects, validate
from datasets.progress import read_progress
from datasets.releases import RELEASES
from evaluation.benchmark import RetrieverMaker
from evaluation.benchmarks.pools import (
    Findings,
    JudgedPools,
    PoolBenchmark,
    Scores,
    first_few,
    measure_pools,
    merge_pools,
    open_judged,
    pool_scores,
    read_texts,
)
from evaluation.measures import PerQuery, Values
from evaluation.protocol import Qrels, read_pairs
from evaluation.published import published_tables
from evaluation.report import Column, markdown_table, table_rows
from evaluation.settings import SciDocsSettings
from retrieval.base import Retriever
from retrieval.run import escape_ids

log = logging.getLogger(__name__)

TASKS = {"co-view": "coview", "co-read": "coread", "cite": "cite", "co-cite": "cocite"}
"""Folders of the tasks, in the order of the official script."""
METADATA = "paper_metadata_view_cite_read.json"
"""Titles and abstracts of the papers of all four."""
MEASURES = {"map": AP, "ndcg": nDCG}
RUNS, EMBEDDINGS = "runs", "embeddings.jsonl"
"""The folder of runs by a retriever, and the file of vectors by an article encoder."""
DOWNLOAD = "download"
"""The folder's name for what is downloaded."""

Vector = NDArray[np.float32] | NDArray[np.float64]


def qrel_file(task: str, split: str) -> str:
    """The name of a task's judged pools, in the folder of the data."""
    return f"{TASKS[task]}/{split}.qrel"


def run_file(task: str) -> str:
    """The name of a task's run in a folder of runs."""
    return f"{TASKS[task]}.run"


def read_pools(path: Path) -> JudgedPools:
    """Lines `query 0 paper relevance`.

    Raises InputError that names file and line, papers listed twice, and queries without a relevant
    candidate.
    """
    pools = Qrels.read(path).judgements
    if no_hit := [query for query, pool in pools.items() if not any(grade > 0 for grade in pool.values())]:
        raise InputError(
            f"{path}: {len(no_hit):,} queries have no relevant candidate: {first_few(no_hit)}; leave them out"
        )
    return pools


def read_run(path: Path, pools: JudgedPools) -> Scores:
    """Lines `query Q0 paper rank score name` about a task's pools; the ranks are ignored.

    Raises InputError that names file and line, papers ranked twice or in no pool, and scores that are NaN.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; ranked_dir needs {', '.join(map(run_file, TASKS))}")
    scores: Scores = {}
    foreign, wrong = [], []
    columns = ("query", "Q0", "paper", "rank", "score", "name")
    for query, paper, score in read_pairs(path, columns, pa.float64()):
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
            f"{path}: {len(foreign):,} papers are not in the pool of their query: {first_few(foreign)}"
        )
    if wrong:
        raise InputError(f"{path}: {len(wrong):,} scores are NaN: {first_few(wrong)}; give each a number")
    return scores


def write_run(path: Path, scores: Scores, name: str) -> None:
    """What `read_run` reads, best first; of equal scores the greater id, as trec_eval does."""
    with atomic_write(path) as part, part.open("w", encoding="utf-8") as file:
        for query, found in zip(escape_ids(scores), scores.values(), strict=True):
            ranked = sorted(zip(found.values(), escape_ids(found), strict=True), reverse=True)
            for rank, (score, paper) in enumerate(ranked, 1):
                file.write(f"{query} Q0 {paper} {rank} {score!r} {escape_ids([name])[0]}\n")


class _Embedding(msgspec.Struct):
    paper_id: str | int
    embedding: list[Any]


def read_embeddings(path: Path, wanted: Collection[str]) -> dict[str, Vector]:
    """Vectors of wanted papers from JSON lines {"paper_id": ID, "embedding": [numbers]}, plain or gzipped.

    The last vector of a paper counts; an empty one stays empty. They are kept as float32 where that is exact.
    Raises InputError that names file, line and paper.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; name JSON lines of paper_id and embedding")
    found: dict[str, Vector] = {}
    dim = 0
    with read_progress(path, path.name) as advance:
        for where, record in read_objects(path, advance):
            found_here = validate(record, _Embedding, where)
            paper, numbers = str(found_here.paper_id), found_here.embedding
            if paper not in wanted:
                continue
            vector = _vector(numbers, f"{where}, paper {paper!r}")
            dim = dim or len(vector)
            if len(vector) not in (0, dim):
                raise InputError(
                    f"{where}, paper {paper!r}: an embedding of {len(vector)} numbers, others have {dim}"
                )
            found[paper] = vector
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


def negative_distances(pools: JudgedPools, embeddings: Mapping[str, Vector]) -> Scores:
    """Minus the Euclidean distance of query and candidate, to five places, as the official script takes it.

    Queries and candidates without a vector are left out; a candidate of an empty one comes last.
    """
    scores: Scores = {}
    for query, pool in pools.items():
        if not len(embeddings.get(query, ())):
            continue
        anchor = embeddings[query].astype(np.float64)
        there = {paper: embeddings[paper] for paper in pool if paper in embeddings}
        scores[query] = {
            paper: float(np.round(-np.linalg.norm(anchor - vector), 5)) if len(vector) else float("-inf")
            for paper, vector in there.items()
        }
    return scores


def _by_distance(tasks: Mapping[str, JudgedPools], embeddings: Path) -> dict[str, Scores]:
    """The scores by the vectors in a file, by task."""
    wanted = {paper for pools in tasks.values() for query, pool in pools.items() for paper in (query, *pool)}
    vectors = read_embeddings(embeddings, wanted)
    return {task: negative_distances(pools, vectors) for task, pools in tasks.items()}


def open_pools(
    tasks: Mapping[str, JudgedPools], texts: Path, cache_dir: str | Path
) -> tuple[Corpus, JudgedPools]:
    """The papers of all tasks as a corpus, and of each query the candidates of all tasks that have a record.

    Papers that the file of texts lacks are left out, as the official script leaves out those without an
    embedding; queries without a text have no context. Raises InputError where no query has a text.
    """
    together = merge_pools(tasks.values())
    wanted = set(together) | {paper for pool in together.values() for paper in pool}
    readable = {text.id: bool(text) for text in read_texts(texts) if text.id in wanted}
    if missing := sorted(wanted - readable.keys()):
        log.warning("%s lacks %s papers of the benchmark: %s", texts, f"{len(missing):,}", first_few(missing))
    known: JudgedPools = {}
    for query, pool in together.items():
        there = {paper: relevance for paper, relevance in pool.items() if paper in readable}
        found = [paper for paper, relevance in there.items() if relevance > 0 and readable[paper]]
        if found and readable.get(query):
            known[query] = there
    if not known:
        raise InputError(
            f"{texts}: none of the {len(together):,} queries has a text, as {first_few(together)}"
        )
    return open_judged("SciDocs", texts, known, cache_dir), known


def write_embeddings(path: Path, retriever: Retriever, corpus: Corpus) -> None:
    """The retriever's vectors of all papers, not normalised, in the official format."""
    rows = np.arange(len(corpus.paper_ids), dtype=np.int64)
    vectors = retriever.raw_vectors(corpus, rows)
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        for row in rows.tolist():
            line = {"paper_id": corpus.paper_ids[row], "embedding": vectors[row : row + 1][0]}
            file.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")


def measure_task(task: str, pools: JudgedPools, scores: Scores) -> tuple[list[str], Values, list[str]]:
    """The queries that have scores [Q], their measures, and sentences about what was not measured.

    As in the official script, a query without any score is left out of the means, and a candidate without
    one of the ranking, but not of the relevant ones. Raises InputError where no query is scored.
    """
    scored = {query: pool for query, pool in pools.items() if scores.get(query)}
    if not scored:
        raise InputError(f"{task}: none of its {len(pools):,} queries is scored, as {first_few(pools)}")
    remarks = []
    if skipped := [query for query in pools if query not in scored]:
        remarks.append(
            f"{task}: {len(skipped):,} queries are not scored and left out of the means, as by the official "
            f"script: {first_few(skipped)}."
        )
    if unranked := [f"{q}_{paper}" for q, pool in scored.items() for paper in pool if paper not in scores[q]]:
        remarks.append(
            f"{task}: {len(unranked):,} candidates are not scored and not ranked, as by the official script: "
            f"{first_few(unranked)}."
        )
    return list(scored), measure_pools(scored, {q: scores[q] for q in scored}, MEASURES), remarks


class SciDocs(PoolBenchmark):
    """Measures embeddings or runs, from files or by a retriever."""

    settings: SciDocsSettings
    settings_class = SciDocsSettings
    columns = tuple(f"{task}/{key}" for task in ("cite", "co-cite", "co-view", "co-read") for key in MEASURES)
    tables: ClassVar = {
        "": [
            Column(f"{task}/{key}", f"{task} {label}", places=2, best=True)
            for task in TASKS
            for key, label in (("map", "MAP"), ("ndcg", "nDCG"))
        ]
    }

    def measure(self, folder: Path, retriever: RetrieverMaker) -> Findings:
        """By task and by query."""
        tasks = {task: read_pools(self._file(qrel_file(task, self.settings.split))) for task in TASKS}
        name, scores = self._scores(tasks, folder, retriever)
        found: dict[str, tuple[list[str], Values]] = {}
        remarks: list[str] = []
        for task, pools in tasks.items():
            queries, values, left_out = measure_task(task, pools, scores[task])
            found[task] = queries, values
            remarks += left_out
        # percent, rounded as the official script does
        metrics = {
            task: {m: float(np.round(100 * np.mean(of), 2)) for m, of in values.items()}
            for task, (_, values) in found.items()
        }
        shown = {task: metrics[task] | {"queries": len(queries)} for task, (queries, _) in found.items()}
        cells = [*(Column(m, m, places=2) for m in MEASURES), Column("queries", "queries")]
        table = table_rows(shown, cells, "task")
        return Findings(
            f"SciDocs: {name}, split {self.settings.split}",
            metrics,
            PerQuery.of_groups(found),
            [
                "MAP and nDCG by trec_eval, percent, means over queries, as by SciDocs' own script.",
                *remarks,
                markdown_table(table[0], table[1:]),
                "## As published",
                *published_tables("scidocs"),
            ],
            {f"SciDocs, {name}, percent": table},
            remarks,
            str(metrics),
        )

    def _scores(
        self, tasks: dict[str, JudgedPools], folder: Path, make: RetrieverMaker
    ) -> tuple[str, dict[str, Scores]]:
        """What is measured, and its scores by task."""
        given = self.settings
        if given.ranked_dir is not None:
            runs = Path(given.ranked_dir)
            return str(runs), {task: read_run(runs / run_file(task), pools) for task, pools in tasks.items()}
        if given.embeddings_file is not None:
            return given.embeddings_file, _by_distance(tasks, Path(given.embeddings_file))
        texts = self._file(METADATA) if given.texts is None else Path(given.texts)
        corpus, together = open_pools(tasks, texts, given.cache_dir)
        retriever = make()
        if retriever.gives_vectors:
            # Measured as read from the file: by the digits that the official script would read, too.
            write_embeddings(folder / EMBEDDINGS, retriever, corpus)
            return retriever.name, _by_distance(tasks, folder / EMBEDDINGS)
        retriever.open(corpus, given.index_dir)
        found = pool_scores(retriever, corpus, together)
        scores: dict[str, Scores] = {task: {} for task in tasks}
        for task, pools in tasks.items():
            for query in [query for query in pools if query in found]:
                scores[task][query] = {
                    paper: found[query][paper] for paper in pools[query] if paper in found[query]
                }
            write_run(folder / RUNS / run_file(task), scores[task], retriever.name)
        return retriever.name, scores

    def _file(self, name: str) -> Path:
        """One of the benchmark's own files; InputError that says what to put where if it is missing."""
        given = self.settings
        if given.dir is not None and given.dir != DOWNLOAD:
            folder = Path(given.dir)
        else:
            needed = [qrel_file(task, given.split) for task in TASKS]
            needed += [name] if name == METADATA else []
            folder = ensure_release("scidocs", given.cache_dir, files=needed)
        path = find_file(folder, name)
        if path is None:
            raise InputError(
                f"{folder}: no {name} in it; SciDocs' files are at {RELEASES['scidocs'].addresses[0]}, and "
                "data.dir=download fetches those it needs"
            )
        return path
