"""Benchmarks whose queries are the contexts of a corpus: what they share, and the outcome of a protocol."""

from __future__ import annotations

import json
import logging
import os
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.progress import count_progress
from datasets.records import TRAIN
from evaluation.benchmark import Benchmark, Data, RetrieverMaker
from evaluation.measures import PerQuery, f1, means, query_values
from evaluation.protocol import GROUPS, Protocol, Qrels, metric_key, protocol_file, protocols, take_queries
from evaluation.report import METRICS, PER_QUERY, QRELS, RUN, Column, Metrics, Provenance, write_results
from evaluation.settings import DRAFT, INDUCTIVE, PROTOCOLS, TRANSDUCTIVE, ContextSettings
from evaluation.significance import DRAWS, LEVEL, intervals
from retrieval.base import Ranking, Retriever, has_index
from retrieval.filters import Filters
from retrieval.queries import Queries
from retrieval.run import Run

log = logging.getLogger(__name__)


class Task(NamedTuple):
    """What is evaluated by which protocols."""

    retriever: Retriever
    corpus: Corpus
    filters: Filters
    protocols: list[Protocol]
    index_dir: str | Path | None


class CorpusBenchmark(Benchmark):
    """Contexts of a split are queries; all candidates but the citing paper are ranked."""

    name: ClassVar[str]
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
        """Evaluate a retriever on a split; as `run`."""
        queries, filters = self.sample(corpus, split), filters or Filters()
        names: Sequence[str] = self.settings.protocols
        if retriever.partial and len(names) > 1:  # a run was made by one protocol, which it does not say
            names = [TRANSDUCTIVE]
            log.info("%s: a run is evaluated by one protocol, %s", retriever.name, TRANSDUCTIVE)
        chosen = protocols(names, corpus, queries, filters)
        metrics, outcomes = self.measure(Task(retriever, corpus, filters, chosen, index_dir))
        metrics |= evaluation_facts(retriever, corpus, split, filters)
        if (limit := retriever.limit(queries.contexts)) is not None:
            metrics["limit"] = limit
        folder = Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        old = [METRICS, QRELS, *(prefix + name for prefix in outcomes for name in (RUN, PER_QUERY))]
        for name in (protocol_file(name, protocol) for name in old for protocol in PROTOCOLS):
            (folder / name).unlink(missing_ok=True)  # of an evaluation that wrote more files
        for prefix, found in outcomes.items():
            for outcome in found:
                outcome.write(folder, self.settings.run_depth, prefix)
        depth = next(iter(outcomes.values()))[0].run.ranking.k
        lines = self.protocol_lines(metrics, depth, len(corpus.split(split)))
        write_results(folder, metrics, self.report(metrics, lines, folder), provenance or Provenance())
        return metrics

    @abstractmethod
    def measure(self, task: Task) -> tuple[dict[str, Any], dict[str, list[Outcome]]]:
        """Metrics, and the outcome of each protocol by the prefix of its files."""

    @abstractmethod
    def report(self, metrics: Metrics, lines: list[str], folder: Path) -> list[str]:
        """Markdown, and plots in the folder; lines: what was asked and how it was measured."""

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverMaker, data: Data | None = None
    ) -> Metrics:
        assert data is not None
        try:
            corpus = data.corpus()
            corpus.split(data.split)  # before a model is loaded
            return self(retriever(), corpus, data.split, folder, provenance, data.filters(), data.index_dir)
        finally:
            self.finish()

    def finish(self) -> None:
        """In the first process, however its evaluation ended: let the others end too."""

    def sample(self, corpus: Corpus, split: str) -> Split:
        """The queries of a split, or a sample of them; InputError if the split is missing or empty."""
        whole = corpus.split(split)
        if len(whole) == 0:
            raise InputError(f"corpus {corpus.name}: the split {split!r} has no queries to evaluate")
        if split == TRAIN:
            log.warning("split %s: a trained retriever has seen the answers to these queries", split)
        if self.settings.queries is None:
            return whole
        drawn = np.random.default_rng(self.settings.seed).permutation(len(whole))[: self.settings.queries]
        return take_queries(whole, np.sort(drawn))

    def search(
        self, retriever: Retriever, queries: Queries | NDArray[np.int64], k: int, filters: Filters
    ) -> tuple[Ranking, float]:
        """The first k papers of each query, batch by batch, and the seconds it took."""
        parts, seconds = [], 0.0
        with count_progress(f"{retriever.name}: searching", len(queries)) as advance:
            for start in range(0, len(queries), self.settings.batch):
                started = time.perf_counter()
                parts.append(retriever.search(queries[start : start + self.settings.batch], k, filters))
                seconds += time.perf_counter() - started
                advance(len(parts[-1]))
        return Ranking.concat(parts), seconds

    def ranks(self, retriever: Retriever, protocol: Protocol) -> list[int]:
        """The cutoffs that the retriever can say something of: a run says nothing beyond its depth."""
        limit = retriever.limit(protocol.queries.contexts)
        return [k for k in self.settings.cutoffs if limit is None or k <= limit]

    def protocol_lines(self, metrics: Metrics, depth: int, whole: int) -> list[str]:
        """What was asked and how it was measured.

        depth: papers retrieved a query; whole: contexts of the split.
        """
        split, run_depth = metrics["split"], self.settings.run_depth
        queries = min(self.settings.queries or whole, whole)
        asked = f"Each of the {queries:,} contexts of the split {split} is a query"
        if queries < whole:
            asked = f"Queries are {queries:,} random contexts of the {whole:,} of the split {split}"
        files = "no run file was written"
        if run_depth is None or run_depth >= depth:
            files = "the run files hold everything that was retrieved"
        elif run_depth:
            files = (
                f"the run files hold the first {run_depth:,} papers of each query and ties with the "
                "last of them, enough for recall up to there (benchmark.run_depth)"
            )
        limit = [f"The run has {metrics['limit']:,} papers of a query at most."] if "limit" in metrics else []
        filters = [f"Filters, for everything below: {metrics['filters']}."] if metrics["filters"] else []
        training = (
            "**These are training queries.** Whatever was learnt from that split has seen their answers: "
            "trained weights, citation counts, and context profiles, which hold each query itself."
        )
        return [
            f"{asked}; relevant are the papers cited at the target marker.",
            f"The citing paper is never among its query's candidates; {depth:,} papers are retrieved.",
            *limit,
            *([metrics["protocol"]] if "protocol" in metrics else []),
            *filters,
            "Measures by ir_measures (trec_eval), mean over queries; a query without results counts as zero, "
            f"ties are ordered as trec_eval does; {files}.",
            f"In brackets: {LEVEL:.0%} confidence interval, from {DRAWS:,} resamples of citing papers with "
            "all of their queries (percentile bootstrap).",
            *([training] if split == TRAIN else []),
        ]


@dataclass(frozen=True)
class Outcome:
    """What came of one protocol: a run, its qrels, and the measures of each query; seconds: of the search."""

    protocol: Protocol
    run: Run
    qrels: Qrels
    values: PerQuery
    seconds: float

    @classmethod
    def of(
        cls,
        protocol: Protocol,
        corpus: Corpus,
        ranking: Ranking,
        name: str,
        cutoffs: Sequence[int],
        seconds: float,
        f1_at: Sequence[int] = (),
    ) -> Outcome:
        """Measure a ranking of the protocol's queries by `name`; f1_at: the ranks of F1."""
        rows = protocol.queries.contexts
        ids = [corpus.context_ids[row] for row in rows.tolist()]
        citing = [corpus.paper_ids[row] for row in corpus.citing[rows].tolist()]
        run, qrels = Run(ids, corpus.paper_ids, ranking, name), Qrels.of_split(corpus, protocol.queries)
        values = PerQuery(ids, citing, query_values(run, qrels, cutoffs, f1_at))
        return cls(protocol, run, qrels, values, seconds)

    def mean(self, measure: str) -> float:
        return float(self.values.values[measure].mean())

    def metrics(self, seed: int) -> dict[str, float | int]:
        """Of all queries and of each group: means, the ends of their intervals, and how many queries.

        The interval is left out where the queries come from a single citing paper.
        """
        groups = {"": np.ones(len(self.values), np.bool_), **self.protocol.groups}
        found: dict[str, float | int] = {}
        columns = np.stack(list(self.values.values.values()), axis=1)
        wide = np.hstack(
            [np.where(members[:, None], columns, np.nan) for members in groups.values() if members.any()]
        )
        low, high = intervals(wide, self.values.papers, seed=seed)
        ends = iter(zip(low.tolist(), high.tolist(), strict=True))
        for group, members in groups.items():
            prefix = f"{group}/" if group else ""
            for name, value in means(self.values.values, members).items():
                found[prefix + name] = value
                first, last = next(ends)
                if not np.isnan(first):
                    found |= {f"{prefix}{name}/low": first, f"{prefix}{name}/high": last}
                if name.startswith("f1@"):  # Citeomatic prints this one too
                    parts = (found[prefix + name.replace("f1", part)] for part in ("precision", "recall"))
                    found[f"{prefix}{name}/of_means"] = float(f1(*parts))
            found[f"{prefix}queries"] = int(np.count_nonzero(members))
            if not group:
                found |= {"citing_papers": int(self.values.papers.max()) + 1}
                found |= {"candidates": self.protocol.candidates}
                found |= {"seconds_per_query": self.seconds / len(self.values)}
        return {metric_key(name, self.protocol.name): value for name, value in found.items()}

    def write(self, folder: Path, depth: int | None, stage: str = "") -> None:
        """Write qrels, per_query.csv and the first `depth` papers of the run (None: all).

        stage: prefix of the file names, where one protocol has several outcomes.
        """
        self.qrels.write(folder / protocol_file(QRELS, self.protocol.name))
        self.values.write(folder / protocol_file(stage + PER_QUERY, self.protocol.name))
        if depth != 0:
            head = self.run.ranking if depth is None else with_ties(self.run.ranking, depth)
            run = Run(self.run.query_ids, self.run.paper_ids, head, self.run.name)
            run.write(folder / protocol_file(stage + RUN, self.protocol.name))


def with_ties(ranking: Ranking, depth: int) -> Ranking:
    """The first `depth` papers of each query, and those that tie with the last of them.

    So tools that order ties in their own way find the same first papers in the head as in the whole.
    """
    if ranking.k <= depth:
        return ranking
    keep = ranking.scores >= ranking.scores[:, depth - 1 : depth]
    width = int(keep.sum(axis=1).max(initial=depth))
    papers = np.where(keep, ranking.papers, -1).astype(np.int32)[:, :width]
    scores = np.where(keep, ranking.scores, -np.inf).astype(np.float32)[:, :width]
    return Ranking(papers, scores)


def open_index(task: Task) -> dict[str, Any]:
    """Index the corpus, or read its index: what that took, as entries of metrics.json."""
    retriever, corpus, index_dir = task.retriever, task.corpus, task.index_dir
    loaded = index_dir is not None and has_index(Path(index_dir))
    started = time.perf_counter()
    retriever.open(corpus, index_dir)
    seconds = time.perf_counter() - started
    log.info("%s: indexed %s in %.1f s", retriever.name, corpus.name, seconds)
    metrics: dict[str, Any] = {"index_seconds": seconds, "index_bytes": int(retriever.index_bytes)}
    if not loaded and not retriever.reused:  # else the seconds are those of opening it
        metrics["papers_per_second"] = int(np.count_nonzero(corpus.is_candidate)) / seconds
    return metrics


def evaluation_facts(retriever: Retriever, corpus: Corpus, split: str, filters: Filters) -> dict[str, Any]:
    """What an evaluation was of, as entries of metrics.json."""
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
    """The protocols that were evaluated."""
    return [protocol for protocol in PROTOCOLS if metric_key("queries", protocol) in metrics]


def measure_names(metrics: Metrics, protocol: str) -> list[str]:
    """Keys of the measures over all queries of a protocol, but for recall@k of pools of k papers or less."""
    prefix = metric_key("", protocol)
    wanted = tuple(prefix + measure for measure in ("map", "mrr", "recall@", "precision@", "f1@"))
    pool = metrics[metric_key("candidates", protocol)]
    names = [
        name
        for name in metrics
        if name.startswith(wanted) and not name.endswith(("/low", "/high", "/of_means"))
    ]
    return [
        name
        for name in names
        if not name.startswith(f"{prefix}recall@") or int(name.removeprefix(f"{prefix}recall@")) < pool
    ]


def format_cell(metrics: Metrics, name: str, interval: bool) -> str:
    """A measure with four places, and its interval in brackets where that is wanted and known."""
    return Column(name, "", places=4, interval=interval).cell(metrics)


def group_rows(metrics: Metrics, protocol: str, interval: bool = False) -> list[list[str]]:
    """Head and rows: the measures of a protocol, a column for each group of queries that there is."""
    prefix = metric_key("", protocol)
    labels = {f"{group}/" if group else "": label for group, label in GROUPS[protocol].items()}
    groups = [group for group in labels if f"{group}queries" in metrics]
    rows = [
        [name, *(format_cell(metrics, group + name, interval) for group in groups)]
        for name in ["queries", *(key.removeprefix(prefix) for key in measure_names(metrics, protocol))]
    ]
    return [["measure", *(labels[group] for group in groups)], *rows]


def pool_text(metrics: Metrics, protocol: str) -> str:
    """Which papers are candidates, how many queries are asked, and what the groups are."""
    queries, papers, candidates = (
        metrics[metric_key(name, protocol)] for name in ("queries", "citing_papers", "candidates")
    )
    who = f"{queries:,} queries of {papers:,} citing papers."
    passing = "that pass the filters" if metrics["filters"] else "of the corpus"
    if protocol == INDUCTIVE:
        return (
            f"Pool: the {candidates:,} candidates {passing} that no training context cites; {who} They are "
            "the queries none of whose cited papers is cited by a training context. The transductive "
            "protocol has other queries and another pool: the two are not comparable."
        )
    if protocol == DRAFT:
        return (
            f"Pool: all {candidates:,} candidates {passing}; {who} What the citing paper cites at other "
            "places of the split is known, but for places whose text overlaps with the one asked for. The "
            "other protocols do not know it: they are not comparable."
        )
    seen = "Seen: at least one cited paper is also cited by a training context; unseen: all others."
    if "seen/queries" not in metrics:
        seen = "The corpus has no training split, so seen and unseen targets cannot be told apart."
    return f"Pool: all {candidates:,} candidates {passing}; {who} {seen}"


def index_text(metrics: Metrics) -> str:
    """How long indexing took, and the size of the index."""
    index = f"Index: {metrics['index_seconds']:.2f} s"
    if "papers_per_second" in metrics:
        index += f", {metrics['papers_per_second']:,.0f} papers a second"
    else:
        index += ", to open an existing one"
    return f"{index}; {int(metrics['index_bytes']) / 1e6:,.1f} MB."
