"""SciDocs: papers that are cited, co-cited, viewed or read together (Cohan et al. 2020).

Equal to the official script (allenai/scidocs) for these four of its tasks: MAP and nDCG of trec_eval, means
over queries, in percent of two places.

SciDocs' files: judged pools by task, embeddings, and runs (Cohan et al. 2020).
SciDocs' papers as a corpus, and what a retriever makes of them: embeddings, or scores of pairs.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import orjson
import pyarrow as pa
from ir_measures import AP, nDCG
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.download import obtain, present
from datasets.errors import InputError
from datasets.files import written_whole
from datasets.json_lines import read_objects
from datasets.progress import reading
from datasets.releases import RELEASES
from evaluation.benchmark import Benchmark, Data, Output, RetrieverMaker
from evaluation.benchmarks.pools import (
    ABOUT,
    Question,
    open_texts,
    pool_scores,
    read_texts,
    some,
)
from evaluation.measures import PerQuery, Values
from evaluation.published import published
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
from retrieval.run import NAMES, escaped, read_fields, unescaped

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


log = logging.getLogger(__name__)

EMBEDDINGS = "embeddings.jsonl"


@dataclass(frozen=True)
class Papers:
    """The benchmark's papers as a corpus, whose contexts are the queries that have a text.

    pools: {query: candidates} of all tasks together, those that the file of texts has.
    """

    corpus: Corpus
    pools: dict[str, list[str]]


def open_papers(pools: dict[str, Pools], texts: Path, cache_dir: str | Path) -> Papers:
    """The papers of all tasks, read from a file of texts.

    Papers that the file lacks are left out, as the official script leaves out those without an embedding.
    Raises InputError where no query has a text.
    """
    together: dict[str, dict[str, int]] = {}
    for of in pools.values():
        for query, pool in of.items():
            own = together.setdefault(query, {})
            for paper, relevance in pool.items():
                own[paper] = max(relevance, own.get(paper, 0))
    wanted = set(together) | {paper for pool in together.values() for paper in pool}
    there, readable = set[str](), set[str]()
    for text in read_texts(texts):
        if text.id in wanted:
            there.add(text.id)
            if text.title.strip() or text.abstract.strip():
                readable.add(text.id)
    if lacking := sorted(wanted - there):
        log.warning("%s lacks %s papers of the benchmark: %s", texts, f"{len(lacking):,}", some(lacking))
    questions = {}
    for query, pool in together.items():
        relevant = tuple(paper for paper, relevance in pool.items() if relevance > 0 and paper in readable)
        if query in readable and relevant:
            questions[query] = Question(query, relevant)
    if not questions:
        raise InputError(
            f"{texts}: none of the {len(together):,} queries has a text, as {some(list(together))}"
        )
    asked = {query: [paper for paper in together[query] if paper in there] for query in questions}
    candidates = {paper for pool in asked.values() for paper in pool}
    return Papers(open_texts("SciDocs", texts, questions, candidates, cache_dir), asked)


def score(
    retriever: Retriever, papers: Papers, pools: dict[str, Pools], index_dir: str | Path | None
) -> dict[str, Scores]:
    """{task: {query: {candidate: score}}} by a retriever; papers without a text come last."""
    retriever.open(papers.corpus, index_dir)
    found = pool_scores(retriever, papers.corpus, papers.pools)
    return {
        task: {
            query: {paper: found[query][paper] for paper in pool if paper in found[query]}
            for query, pool in of.items()
            if query in found
        }
        for task, of in pools.items()
    }


def write_embeddings(path: Path, retriever: Retriever, papers: Papers) -> None:
    """The encoder's vectors of all papers, not normalised, in the official format."""
    corpus = papers.corpus
    rows = np.arange(len(corpus.paper_ids), dtype=np.int64)
    vectors = retriever.raw_vectors(corpus, rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        for row in rows.tolist():
            line = {"paper_id": corpus.paper_ids[row], "embedding": vectors[row : row + 1][0]}
            file.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")


SPLITS = ("val", "test")
MEASURES = {"map": AP, "ndcg": nDCG}
RUNS = "runs"
"""The folder of runs by a retriever."""
DOWNLOAD = "download"
"""The folder's name for what is downloaded."""


@dataclass(frozen=True)
class Measured:
    """The values of a task's queries [q], in the order of `queries`, and what was not measured, in words."""

    queries: list[str]
    values: Values
    remarks: list[str]

    @property
    def means(self) -> dict[str, float]:
        """Percent, rounded as the official script does."""
        return {name: float(np.round(100 * np.mean(found), 2)) for name, found in self.values.items()}


class SciDocs(Benchmark):
    """Measures anyone's embeddings or runs, or what a retriever makes of the papers."""

    columns = tuple(f"{task}/{key}" for task in ("cite", "co-cite", "co-view", "co-read") for key in MEASURES)
    about = ABOUT

    def __init__(
        self,
        dir: str | Path | None = None,
        embeddings_file: str | Path | None = None,
        ranked_dir: str | Path | None = None,
        texts: str | Path | None = None,
        split: str = "test",
        cache_dir: str | Path = ".cache",
        index_dir: str | Path | None = None,
    ) -> None:
        """dir: folder of the data (cite/test.qrel and so on); None or `download`: downloaded on first use.

        embeddings_file: JSON lines of paper_id and embedding, compared by Euclidean distance. ranked_dir: of
        runs cite.run, cocite.run, coview.run, coread.run. With neither, a retriever scores: of an article
        encoder the vectors are measured as embeddings, of others the scores as runs. texts: titles and
        abstracts for it; None: those of the folder. index_dir: for the retriever's index.
        Raises InputError for another split, and where both embeddings and runs are given.
        """
        if split not in SPLITS:
            raise InputError(f"split={split}: SciDocs has {' and '.join(SPLITS)}")
        if embeddings_file is not None and ranked_dir is not None:
            raise InputError("embeddings_file and ranked_dir: give one of the two")
        self.dir = None if dir is None or str(dir) == DOWNLOAD else Path(dir)
        self.embeddings_file, self.ranked_dir, self.texts = embeddings_file, ranked_dir, texts
        self.split, self.cache_dir, self.index_dir = split, cache_dir, index_dir

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverMaker, data: Data | None = None
    ) -> Metrics:
        """By task (metrics.json), and by query."""
        pools = {task: read_pools(self._file(qrel_file(task, self.split))) for task in TASKS}
        name, scores = self._scores(pools, folder, retriever)
        found = {task: measured(task, pool, scores[task]) for task, pool in pools.items()}
        remarks = [remark for task in found.values() for remark in task.remarks]
        for remark in remarks:
            log.warning("%s", remark)
        metrics = {task: of.means for task, of in found.items()}
        print(metrics)
        head = ["task", *MEASURES, "queries"]
        rows = [
            [task, *(f"{value:.2f}" for value in metrics[task].values()), f"{len(of.queries):,}"]
            for task, of in found.items()
        ]
        show([head, *rows], f"SciDocs, {name}, percent")
        columns = {
            measure: np.concatenate([of.values[measure] for of in found.values()]) for measure in MEASURES
        }
        asked = [(task, query) for task, of in found.items() for query in of.queries]
        ids = [f"{task}/{query}" for task, query in asked]
        PerQuery(ids, [query for _, query in asked], columns).write(folder / PER_QUERY)
        report = [
            f"# SciDocs: {name}, split {self.split}",
            "MAP and nDCG of trec_eval in percent, means over queries, as SciDocs' own script computes them.",
            *remarks,
            markdown_table(head, rows),
            "## As published",
            *published("scidocs"),
        ]
        write_results(folder, metrics, report, provenance)
        return metrics

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        """MAP and nDCG of each task."""
        results = {name: output.metrics for name, output in outputs.items()}
        columns = [
            Column(f"{task}/{key}", f"{task} {label}", places=2, best=True)
            for task in dict.fromkeys(task for of in results.values() for task in of)
            for key, label in (("map", "MAP"), ("ndcg", "nDCG"))
        ]
        return [comparison(results, columns)]

    def _scores(
        self, pools: dict[str, Pools], folder: Path, make: RetrieverMaker
    ) -> tuple[str, dict[str, Scores]]:
        """What is measured, and its scores by task."""
        if self.ranked_dir is not None:
            runs = Path(self.ranked_dir)
            return str(runs), {task: read_run(runs / run_file(task), pool) for task, pool in pools.items()}
        name, file = str(self.embeddings_file), self.embeddings_file
        if file is None:
            texts = Path(self.texts) if self.texts is not None else self._file(METADATA)
            papers = open_papers(pools, texts, self.cache_dir)
            retriever = make()
            name = retriever.name
            if not retriever.gives_vectors:
                scores = score(retriever, papers, pools, self.index_dir)
                return name, self._written(scores, pools, folder / RUNS, name)
            file = folder / EMBEDDINGS
            write_embeddings(file, retriever, papers)
        if not Path(file).is_file():
            raise InputError(f"{file}: no such file; name JSON lines of paper_id and embedding")
        wanted = {paper for of in pools.values() for query, pool in of.items() for paper in [query, *pool]}
        vectors = read_embeddings(Path(file), wanted)
        return name, {task: distances(pool, vectors) for task, pool in pools.items()}

    def _written(
        self, scores: dict[str, Scores], pools: dict[str, Pools], folder: Path, name: str
    ) -> dict[str, Scores]:
        """The scores, after they were written as runs."""
        folder.mkdir(parents=True, exist_ok=True)
        for task, of in scores.items():
            write_run(folder / run_file(task), of, name)
        return {task: read_run(folder / run_file(task), pools[task]) for task in scores}

    def _file(self, name: str) -> Path:
        """One of the benchmark's own files; InputError that says what to put where if it cannot be had."""
        if self.dir is None:
            needed = [*(qrel_file(task, self.split) for task in TASKS), *([name] if name == METADATA else [])]
            path = present(obtain("scidocs", self.cache_dir, files=needed), name)
            assert path is not None
            return path
        path = present(self.dir, name)
        if path is None:
            raise InputError(
                f"{self.dir}: no {name} in it; SciDocs' files are at {RELEASES['scidocs'].addresses[0]}, and "
                "data.dir=download fetches what is needed of them"
            )
        return path


def measured(task: str, pools: Pools, scores: Scores) -> Measured:
    """Measures of the queries that are scored, by trec_eval, which orders equal scores by id.

    As in the official script, a query without any score is left out of the means, and a candidate without
    one of the ranking, but not of what is to be found. Raises InputError where no query is scored.
    """
    queries = [query for query in pools if scores.get(query)]
    if not queries:
        raise InputError(f"{task}: none of its {len(pools):,} queries is scored, as {some(list(pools))}")
    values = {name: np.zeros(len(queries)) for name in MEASURES}
    rows, names = {query: row for row, query in enumerate(queries)}, {m: name for name, m in MEASURES.items()}
    asked, run = {query: pools[query] for query in queries}, {query: scores[query] for query in queries}
    for found in ir_measures.pytrec_eval.iter_calc(list(names), asked, run):
        values[names[found.measure]][rows[found.query_id]] = found.value
    remarks = []
    if skipped := [query for query in pools if query not in rows]:
        remarks.append(
            f"{task}: {len(skipped):,} queries are not scored and left out of the means, as by the official "
            f"script: {some(skipped)}."
        )
    lacking = [f"{query}_{paper}" for query in queries for paper in pools[query] if paper not in run[query]]
    if lacking:
        remarks.append(
            f"{task}: {len(lacking):,} candidates are not scored and not ranked, as by the official script: "
            f"{some(lacking)}."
        )
    return Measured(queries, values, remarks)
