"""SciDocs: papers that are cited, co-cited, viewed or read together (Cohan et al. 2020).

Equal to the official script (allenai/scidocs) for these four of its tasks: MAP and nDCG of trec_eval, means
over queries, in percent of two places.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ir_measures
import numpy as np
from ir_measures import AP, nDCG

from datasets.errors import InputError
from datasets.obtain import obtain, present
from datasets.releases import RELEASES
from evaluation.files import PER_QUERY
from evaluation.global_benchmarks.pool_benchmark import PoolBenchmark, some, write_results
from evaluation.global_benchmarks.scidocs_format import (
    METADATA,
    TASKS,
    Pools,
    Scores,
    distances,
    qrel_file,
    read_embeddings,
    read_pools,
    read_run,
    run_file,
    write_run,
)
from evaluation.global_benchmarks.scidocs_scoring import EMBEDDINGS, open_papers, score, write_embeddings
from evaluation.global_page_published import published_tables
from evaluation.measures import Values
from evaluation.per_query import PerQuery
from evaluation.report import Provenance, markdown_table
from evaluation.summary import show
from retrieval.article import ArticleRetriever
from retrieval.base import Retriever

log = logging.getLogger(__name__)

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


class SciDocs(PoolBenchmark):
    """Measures anyone's embeddings or runs, or what a retriever makes of the papers."""

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

    def run(self, folder: Path, provenance: Provenance, retriever: Callable[[], Retriever]) -> None:
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
            *published_tables("scidocs"),
        ]
        write_results(folder, metrics, report, provenance)

    def _scores(
        self, pools: dict[str, Pools], folder: Path, make: Callable[[], Retriever]
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
            if not isinstance(retriever, ArticleRetriever):
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
