"""Shared parts of benchmarks whose queries are the contexts of a corpus."""

from __future__ import annotations

import json
import logging
import os
import time
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from citerec.base.errors import InputError
from citerec.base.progress import count_progress
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import TRAIN, split_group
from citerec.evaluation.benchmark import Benchmark, Data, RetrieverFactory
from citerec.evaluation.measures import PerQuery, f1, means, query_values
from citerec.evaluation.protocol import (
    Protocol,
    Qrels,
    make_protocols,
    metric_key,
    protocol_file,
)
from citerec.evaluation.report import (
    PER_QUERY,
    QRELS,
    RUN,
    Column,
    Metrics,
    Part,
    Provenance,
    Report,
    Table,
    remove_results,
    under,
)
from citerec.evaluation.settings import PROTOCOLS, TRANSDUCTIVE, ContextSettings
from citerec.evaluation.significance import intervals
from citerec.retrieval.base import Ranking, Retriever, has_index
from citerec.retrieval.filters import Filters
from citerec.retrieval.run import Run

log = logging.getLogger(__name__)


class Task(NamedTuple):
    """A retriever, and the corpus, filters and protocols to evaluate it on."""

    retriever: Retriever
    corpus: Corpus
    filters: Filters
    protocols: list[Protocol]
    index_dir: str | Path | None


class CorpusBenchmark(Benchmark):
    """Queries are the contexts of a split; all candidates except the citing paper are ranked."""

    name: ClassVar[str]
    heading: ClassVar[str]
    compared: ClassVar = {"recall@10": "R@10", "recall@100": "R@100"}
    settings: ContextSettings

    def __call__(
        self,
        retriever: Retriever,
        corpus: Corpus,
        split: str,
        output_dir: str | Path,
        provenance: Provenance | None = None,
        filters: Filters | None = None,
        index_dir: str | Path | None = None,
    ) -> Metrics:
        """Evaluate a retriever on a split, write the results and return the metrics."""
        data = Data(lambda: corpus, split, lambda: filters or Filters(), index_dir)
        return self.run(Path(output_dir), provenance or Provenance(), lambda: retriever, data).metrics

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverFactory, data: Data | None = None
    ) -> Report:
        assert data is not None
        corpus, filters = data.corpus(), data.filters()
        queries = self.sample(corpus, data.split)  # fails before a model is loaded
        ranks, names = retriever(), self.settings.protocols
        if ranks.partial and len(names) > 1:  # a run does not record the protocol it was made with
            if TRANSDUCTIVE not in names:
                raise InputError(f"benchmark.protocols={list(names)}: a run is of one protocol; name it")
            names = (TRANSDUCTIVE,)
            log.info("%s: runs are evaluated with one protocol, %s", ranks.name, TRANSDUCTIVE)
        protocols = make_protocols(names, corpus, queries, filters)
        metrics, outcomes = self.measure(Task(ranks, corpus, filters, protocols, data.index_dir))
        metrics |= evaluation_facts(ranks, corpus, data.split, filters)
        if (limit := ranks.max_results(queries.contexts)) is not None:
            metrics["limit"] = limit
        folder.mkdir(parents=True, exist_ok=True)
        remove_results(folder)
        for prefix, of_protocols in outcomes.items():
            for outcome in of_protocols:
                outcome.write(folder, self.settings.run_depth, prefix)
        depth = next(iter(outcomes.values()))[0].run.ranking.k
        lines = self.protocol_lines(metrics, depth, len(corpus.split(data.split)))
        parts = ["## Protocol", "\n".join(f"- {line}" for line in lines), *self.parts(metrics)]
        where = f"{metrics['data']}, split {metrics['split']}"
        report = Report(f"{self.heading}: {self.describe(metrics)} on {where}", metrics, parts)
        report.write(folder, provenance)
        return report

    @abstractmethod
    def measure(self, task: Task) -> tuple[dict[str, Any], dict[str, list[Outcome]]]:
        """Return the metrics, and {prefix of file names: outcome of each protocol}."""

    @abstractmethod
    def parts(self, metrics: Metrics) -> list[Part]:
        """Return the tables, curves and text of a report, after its protocol."""

    def describe(self, metrics: Metrics) -> str:
        """Return the name of what was evaluated."""
        return str(metrics["retriever"])

    def sample(self, corpus: Corpus, split: str) -> Split:
        """Return the queries of a split, or a sample; InputError if the split is missing or empty."""
        whole = corpus.split(split)
        if len(whole) == 0:
            raise InputError(f"corpus {corpus.name}: split {split!r} has no queries to evaluate")
        if split_group(split) == TRAIN:
            log.warning("split %s: a trained retriever has seen the answers to these queries", split)
        if self.settings.queries is None:
            return whole
        drawn = np.random.default_rng(self.settings.seed).permutation(len(whole))[: self.settings.queries]
        return whole.take(np.sort(drawn))

    def search(self, retriever: Retriever, protocol: Protocol, k: int) -> tuple[Ranking, float]:
        """Search in batches; return the top k papers of each query and the seconds spent."""
        queries, parts, seconds = protocol.retriever_queries(retriever.corpus), list[Ranking](), 0.0
        with count_progress(f"{retriever.name}: searching", len(queries)) as advance:
            for start in range(0, len(queries), self.settings.batch):
                started = time.perf_counter()
                batch = queries[start : start + self.settings.batch]
                parts.append(retriever.search(batch, k, protocol.filters))
                seconds += time.perf_counter() - started
                advance(len(parts[-1]))
        return Ranking.concat(parts), seconds

    def outcome(
        self,
        task: Task,
        protocol: Protocol,
        ranking: Ranking,
        seconds: float,
        name: str = "",
        cutoffs: Collection[int] = (),
    ) -> Outcome:
        """Measure the retriever's (or `name`'s) ranking of the protocol's queries; seconds: its duration.

        cutoffs: further cutoffs of recall, besides those of the settings that the retriever supports.
        """
        corpus, rows = task.corpus, protocol.queries.contexts
        limit = task.retriever.max_results(rows)  # a run ends at its depth
        cutoffs = {*cutoffs, *(k for k in self.settings.cutoffs if limit is None or k <= limit)}
        ids = [corpus.context_ids[row] for row in rows.tolist()]
        citing = [corpus.paper_ids[row] for row in corpus.citing[rows].tolist()]
        run = Run(ids, corpus.paper_ids, ranking, name or task.retriever.name)
        qrels = Qrels.from_split(corpus, protocol.queries)
        values = PerQuery(ids, citing, query_values(run, qrels, cutoffs, self.settings.f1))
        return Outcome(protocol, run, qrels, values, seconds)

    def protocol_lines(self, metrics: Metrics, depth: int, whole: int) -> list[str]:
        """Describe the queries and candidates, one item per line of the report.

        depth: papers retrieved per query; whole: number of contexts in the split.
        """
        split, queries = metrics["split"], min(self.settings.queries or whole, whole)
        lines = [f"{queries:,} of the {whole:,} contexts of split {split}, {depth:,} papers for each."]
        if "limit" in metrics:
            lines.append(f"The run has at most {metrics['limit']:,} papers per query.")
        if "protocol" in metrics:
            lines.append(metrics["protocol"])
        if metrics["filters"]:
            lines.append(f"Filters: {metrics['filters']}.")
        if split_group(split) == TRAIN:
            lines.append("**These are training queries**: weights and citation counts know the answers.")
        return lines


@dataclass(frozen=True)
class Outcome:
    """Results of one protocol: run, qrels and measures per query; seconds: duration of the search."""

    protocol: Protocol
    run: Run
    qrels: Qrels
    values: PerQuery
    seconds: float

    def mean(self, measure: str) -> float:
        return float(self.values.values[measure].mean())

    def metrics(self, seed: int) -> dict[str, float | int]:
        """Return means, the ends of their intervals, and query counts, for all queries and each group.

        Intervals are left out if all queries come from a single citing paper.
        """
        groups = {"": np.ones(len(self.values), np.bool_), **self.protocol.groups}
        numbers: dict[str, float | int] = {}
        columns = np.stack(list(self.values.values.values()), axis=1)
        wide = np.hstack(
            [np.where(members[:, None], columns, np.nan) for members in groups.values() if members.any()]
        )
        low, high = intervals(wide, self.values.papers, seed=seed)
        ends = iter(zip(low.tolist(), high.tolist(), strict=True))
        for group, members in groups.items():
            prefix = f"{group}/" if group else ""
            for name, value in means(self.values.values, members).items():
                numbers[prefix + name] = value
                first, last = next(ends)
                if not np.isnan(first):
                    numbers |= {f"{prefix}{name}/low": first, f"{prefix}{name}/high": last}
                if name.startswith("f1@"):  # Citeomatic reports F1 of the means, too
                    parts = (numbers[prefix + name.replace("f1", part)] for part in ("precision", "recall"))
                    numbers[f"{prefix}{name}/of_means"] = float(f1(*parts))
            numbers[f"{prefix}queries"] = int(np.count_nonzero(members))
            if not group:
                numbers |= {"citing_papers": int(self.values.papers.max()) + 1}
                numbers |= {"candidates": self.protocol.candidates}
                numbers |= {"seconds_per_query": self.seconds / len(self.values)}
        return {metric_key(name, self.protocol.name): value for name, value in numbers.items()}

    def write(self, folder: Path, depth: int | None, stage: str = "") -> None:
        """Write qrels, per_query.csv and the top `depth` papers of the run (None means all).

        stage: prefix of the file names, for protocols with several outcomes.
        """
        self.qrels.write(folder / protocol_file(QRELS, self.protocol.name))
        self.values.write(folder / protocol_file(stage + PER_QUERY, self.protocol.name))
        if depth != 0:
            head = self.run.ranking if depth is None else truncate_with_ties(self.run.ranking, depth)
            run = Run(self.run.query_ids, self.run.paper_ids, head, self.run.name)
            run.write(folder / protocol_file(stage + RUN, self.protocol.name))


def truncate_with_ties(ranking: Ranking, depth: int) -> Ranking:
    """Return the top `depth` papers of each query and all papers that tie with the last of them.

    Tools with another order of ties then find the same top papers as in the full ranking.
    """
    if ranking.k <= depth:
        return ranking
    keep = ranking.scores >= ranking.scores[:, depth - 1 : depth]
    width = int(keep.sum(axis=1).max(initial=depth))
    papers = np.where(keep, ranking.papers, -1).astype(np.int32)[:, :width]
    scores = np.where(keep, ranking.scores, -np.inf).astype(np.float32)[:, :width]
    return Ranking(papers, scores)


def open_index(task: Task) -> dict[str, Any]:
    """Index the corpus, or load its index; return time and size as entries of metrics.json."""
    retriever, corpus, index_dir = task.retriever, task.corpus, task.index_dir
    loaded = index_dir is not None and has_index(Path(index_dir))
    started = time.perf_counter()
    retriever.open(corpus, index_dir)
    seconds = time.perf_counter() - started
    log.info("%s: indexed %s in %.1f s", retriever.name, corpus.name, seconds)
    metrics: dict[str, Any] = {"index_seconds": seconds, "index_bytes": int(retriever.index_bytes)}
    if not loaded and not retriever.reused:  # otherwise `seconds` is the loading time
        metrics["papers_per_second"] = int(np.count_nonzero(corpus.is_candidate)) / seconds
    return metrics


def evaluation_facts(retriever: Retriever, corpus: Corpus, split: str, filters: Filters) -> dict[str, Any]:
    """Return what was evaluated, as entries of metrics.json."""
    tuned = {
        f"tuned/{name}": value if isinstance(value, int | float | str) else json.dumps(value)
        for name, value in retriever.tuned.items()
    }
    if retriever.protocol:
        tuned["protocol"] = retriever.protocol
    return tuned | {
        "retriever": retriever.name,
        "data": corpus.name,
        "split": split,
        "filters": str(filters),
        "fingerprint": corpus.fingerprint,
        "processors": os.cpu_count() or 1,
    }


def evaluated_protocols(metrics: Metrics) -> list[str]:
    """Return the protocols that the metrics cover."""
    return [protocol for protocol in PROTOCOLS if metric_key("queries", protocol) in metrics]


def measure_columns(metrics: Metrics, protocol: str) -> list[Column]:
    """Return a column with four decimals and its interval for each measure of a protocol over all queries,
    without recall@k for k >= pool size."""
    pool = metrics[metric_key("candidates", protocol)]
    names = [
        name
        for name in under(metrics, metric_key("", protocol))
        if name.startswith(("map", "mrr", "recall@", "precision@", "f1@"))
        and not name.endswith(("/low", "/high", "/of_means"))
        and not (name.startswith("recall@") and int(name.removeprefix("recall@")) >= pool)
    ]
    return [Column(name, name, decimals=4, interval=True) for name in names]


def group_table(metrics: Metrics, protocol: str) -> Table:
    """Return a protocol's measures, with one column per existing group of queries."""
    rows: dict[str, Metrics] = {protocol: under(metrics, metric_key("", protocol))}
    if protocol == TRANSDUCTIVE:
        groups = {name: under(metrics, f"{name}/") for name in ("seen", "unseen")}
        rows = {"all": metrics} | {name: row for name, row in groups.items() if "queries" in row}
    columns = [Column("queries", "queries"), *measure_columns(metrics, protocol)]
    return Table.of(rows, columns, "measure").transposed()


def pool_line(metrics: Metrics, protocol: str) -> str:
    """Describe queries, protocol and pool in one sentence."""
    queries, papers, candidates = (
        metrics[metric_key(name, protocol)] for name in ("queries", "citing_papers", "candidates")
    )
    where = f"split {metrics['split']}, {protocol}"
    return f"{queries:,} queries of {papers:,} citing papers ({where}), {candidates:,} candidates."


def cost_table(metrics: Metrics, more: Sequence[Column] = ()) -> Table:
    """Return the time and size of an index, the time of a query of the first protocol, and more columns."""
    columns = [
        Column("index_seconds", "index or load, s", decimals=2),
        Column("papers_per_second", "papers/s", decimals=0),
        Column("index_bytes", "MB", decimals=1, scale=1e-6),
        *more,
        Column(metric_key("seconds_per_query", evaluated_protocols(metrics)[0]), "ms/query", scale=1000),
        Column("processors", "processors"),
    ]
    return Table.of({str(metrics["retriever"]): metrics}, columns, brief=False)
