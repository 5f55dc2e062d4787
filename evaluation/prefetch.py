"""The prefetching benchmark: how many cited papers are among the first k (Gu et al. 2022, table 2)."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from datasets.errors import InputError
from datasets.schema import TRAIN
from datasets.store import Corpus
from evaluation.files import METRICS, PER_QUERY, PLOT, QRELS, REPORT, RUN, write_text
from evaluation.measures import CUTOFFS
from evaluation.outcome import Outcome
from evaluation.plots import recall_plot, recalls
from evaluation.protocol import GROUPS, PROTOCOLS, Protocol, file_of, protocols, taken
from evaluation.report import Facts, Provenance, prefetch_report
from retrieval.base import Retriever
from retrieval.filters import Filters
from retrieval.ranking import Ranking
from retrieval.saved import has_index

log = logging.getLogger(__name__)

Metrics = dict[str, float | int | str]


class Prefetch:
    """Contexts of a split are queries, the candidates but the citing paper are ranked.

    cutoffs: ranks k of recall@k; the largest is how many papers are fetched.
    batch: queries searched at a time; memory grows with batch * the largest cutoff.
    protocols: of `transductive` and `inductive` (evaluation.protocol).
    queries: how many contexts are asked, a sample of the split where it has more; None: all.
    run_depth: papers of each query in run.trec; None: all that were fetched, 0: no file.
    seed: of the sample and of the resamples that intervals come from.
    """

    name = "prefetch"

    def __init__(
        self,
        cutoffs: Sequence[int] = CUTOFFS,
        batch: int = 2048,
        protocols: Sequence[str] = PROTOCOLS,
        queries: int | None = None,
        run_depth: int | None = 100,
        seed: int = 0,
    ) -> None:
        """Raises InputError for numbers that are none from 1 on (run_depth: 0), and unknown protocols."""
        self.cutoffs = sorted(set(cutoffs))
        numbers = [*self.cutoffs, batch, 1 if queries is None else queries, (run_depth or 0) + 1]
        if not self.cutoffs or not all(type(k) is int and k >= 1 for k in numbers):
            raise InputError(
                f"benchmark: cutoffs {list(cutoffs)}, batch {batch}, queries {queries} and run_depth "
                f"{run_depth} must be whole numbers from 1 on"
            )
        if isinstance(protocols, str) or not protocols or not set(protocols) <= set(PROTOCOLS):
            raise InputError(f"benchmark.protocols: {protocols!s} is no list of {', '.join(PROTOCOLS)}")
        self.batch, self.protocols, self.queries = batch, list(protocols), queries
        self.run_depth, self.seed = run_depth, seed

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
        """Evaluate, write metrics.json and what stands beside it (evaluation.files), return the metrics.

        metrics.json is written last: where it stands, the other files are those of the same evaluation.
        Raises InputError if the corpus has no such split or the split has no queries.
        """
        queries = whole = corpus.split(split)
        if len(whole) == 0:
            raise InputError(f"corpus {corpus.name}: the split {split!r} has no queries to evaluate")
        if split == TRAIN:
            log.warning("split %s: what was learnt from it has seen the answers", split)
        if self.queries is not None:
            drawn = np.random.default_rng(self.seed).permutation(len(whole))[: self.queries]
            queries = taken(whole, np.sort(drawn))
        filters = filters or Filters()
        chosen = protocols(self.protocols, corpus, queries, filters)
        loaded = index_dir is not None and has_index(Path(index_dir))
        started = time.perf_counter()
        retriever.open(corpus, index_dir)
        index_seconds = time.perf_counter() - started
        log.info("%s: indexed %s in %.1f s", retriever.name, corpus.name, index_seconds)
        outcomes = [self._evaluate(retriever, corpus, protocol) for protocol in chosen]

        metrics: Metrics = {}
        for outcome in outcomes:
            metrics |= outcome.metrics(self.seed)
        metrics |= {"index_seconds": index_seconds, "index_bytes": int(retriever.index_bytes)}
        if not loaded:  # else the seconds are those of opening it
            metrics["papers_per_second"] = int(np.count_nonzero(corpus.is_candidate)) / index_seconds
        metrics |= {f"tuned/{name}": _plain(value) for name, value in retriever.tuned.items()}
        metrics |= {
            "retriever": retriever.name,
            "data": corpus.name,
            "split": split,
            "filters": str(filters),
            "fingerprint": corpus.fingerprint,
            "processors": os.cpu_count() or 1,
        }
        facts = Facts(self.cutoffs[-1], self.run_depth, len(queries), len(whole), loaded)
        self._write(Path(output_dir), metrics, outcomes, provenance or Provenance(), facts)
        return metrics

    def _evaluate(self, retriever: Retriever, corpus: Corpus, protocol: Protocol) -> Outcome:
        ranking, seconds = self._search(retriever, protocol.queries.contexts, protocol.filters)
        return Outcome.of(protocol, corpus, ranking, retriever.name, self.cutoffs, seconds)

    def _search(
        self, retriever: Retriever, contexts: npt.NDArray[np.int64], filters: Filters
    ) -> tuple[Ranking, float]:
        parts, seconds = [], 0.0
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(f"{retriever.name}: searching", total=len(contexts))
            for start in range(0, len(contexts), self.batch):
                started = time.perf_counter()
                batch = contexts[start : start + self.batch]
                parts.append(retriever.search(batch, self.cutoffs[-1], filters))
                seconds += time.perf_counter() - started
                progress.advance(task, len(parts[-1]))
        return Ranking.concat(parts), seconds

    def _write(
        self, folder: Path, metrics: Metrics, outcomes: list[Outcome], provenance: Provenance, facts: Facts
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        stale = [METRICS, *(file_of(name, p) for name in (RUN, QRELS, PER_QUERY) for p in PROTOCOLS)]
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        for outcome in outcomes:
            outcome.write(folder, self.run_depth)
        # The queries and the pool of another protocol are others: its curve does not belong among these.
        first = outcomes[0].protocol
        curves = {
            f"{label} ({metrics[key]:,} queries)": recalls(metrics, group)
            for group, label in GROUPS[first.name].items()
            if metrics.get(key := f"{group}/queries" if group else "queries")
        }
        title = f"{metrics['retriever']} on {metrics['data']}, split {metrics['split']}"
        recall_plot(folder / PLOT, curves, f"{title}: {first.candidates:,} candidates")
        write_text(folder / REPORT, prefetch_report(metrics, provenance, PLOT, facts))
        write_text(folder / METRICS, json.dumps(metrics, indent=1) + "\n")


def _plain(value: object) -> float | int | str:
    return value if isinstance(value, int | float | str) else json.dumps(value)
