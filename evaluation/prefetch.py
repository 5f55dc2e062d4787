"""The prefetching benchmark: how many cited papers are among the first k (Gu et al. 2022, table 2)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from datasets.errors import InputError
from datasets.schema import TRAIN
from datasets.store import Corpus, Split
from evaluation.files import write_text
from evaluation.measures import CUTOFFS, means, per_query, prefetch_measures
from evaluation.plots import recall_plot, recalls
from evaluation.qrels import Qrels
from evaluation.report import Provenance, prefetch_report
from retrieval.base import Retriever
from retrieval.filters import Filters
from retrieval.ranking import Ranking
from retrieval.runs import Run

log = logging.getLogger(__name__)

METRICS, REPORT, PLOT, RUN, QRELS = "metrics.json", "report.md", "recall.png", "run.trec", "qrels.trec"


class Prefetch:
    """Every context of a split is a query, every candidate but its citing paper is ranked.

    cutoffs: ranks k of recall@k; the largest is how many papers are fetched.
    batch: queries searched at a time; memory grows with batch * the largest cutoff.
    """

    name = "prefetch"

    def __init__(self, cutoffs: Sequence[int] = CUTOFFS, batch: int = 2048) -> None:
        """Raises InputError for cutoffs or a batch that are no positive whole numbers."""
        self.cutoffs = sorted(set(cutoffs))
        if not self.cutoffs or not all(isinstance(k, int) and k >= 1 for k in [*self.cutoffs, batch]):
            raise InputError(
                f"benchmark: cutoffs {list(cutoffs)} and batch {batch} must be whole numbers from 1 on"
            )
        self.batch = batch

    def __call__(
        self,
        retriever: Retriever,
        corpus: Corpus,
        split: str,
        output_dir: str | Path,
        provenance: Provenance | None = None,
        filters: Filters | None = None,
        index_dir: str | Path | None = None,
    ) -> dict[str, float | int | str]:
        """Evaluate, write metrics.json, run.trec, qrels.trec, report.md and recall.png, return the metrics.

        metrics.json is written last: where it stands, the other files are those of the same evaluation.
        Raises InputError if the corpus has no such split or the split has no queries.
        """
        queries = corpus.split(split)
        if len(queries) == 0:
            raise InputError(f"corpus {corpus.name}: the split {split!r} has no queries to evaluate")
        started = time.perf_counter()
        retriever.open(corpus, index_dir)
        index_seconds = time.perf_counter() - started
        log.info("%s: indexed %s in %.1f s", retriever.name, corpus.name, index_seconds)
        ranking, seconds = self._search(retriever, queries.contexts, filters)
        query_ids = [corpus.context_ids[row] for row in queries.contexts.tolist()]
        run = Run(query_ids, corpus.paper_ids, ranking, retriever.name)
        qrels = Qrels.of_split(corpus, queries)
        values = per_query(run, qrels, prefetch_measures(self.cutoffs))

        metrics: dict[str, float | int | str] = {**means(values), "queries": len(queries)}
        metrics |= {"seconds_per_query": seconds / len(queries), "index_seconds": index_seconds}
        metrics |= {"candidates": int(np.count_nonzero(corpus.is_candidate))}
        for group, members in seen_groups(corpus, queries).items():
            metrics |= {f"{group}/{name}": value for name, value in means(values, members).items()}
            metrics[f"{group}/queries"] = int(np.count_nonzero(members))
        metrics |= {
            "retriever": retriever.name,
            "data": corpus.name,
            "split": split,
            "fingerprint": corpus.fingerprint,
        }
        self._write(Path(output_dir), metrics, run, qrels, provenance or Provenance())
        return metrics

    def _search(
        self, retriever: Retriever, contexts: npt.NDArray[np.int64], filters: Filters | None
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
        self,
        folder: Path,
        metrics: dict[str, float | int | str],
        run: Run,
        qrels: Qrels,
        provenance: Provenance,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / METRICS).unlink(missing_ok=True)
        run.write(folder / RUN)
        qrels.write(folder / QRELS)
        curves = {
            f"{label} ({metrics[key]:,} queries)": recalls(metrics, group)
            for group, label, key in (
                ("", "all", "queries"),
                ("seen", "target seen in training", "seen/queries"),
                ("unseen", "target unseen", "unseen/queries"),
            )
            if metrics.get(key)
        }
        title = f"{metrics['retriever']} on {metrics['data']}, split {metrics['split']}"
        recall_plot(folder / PLOT, curves, f"{title}: {metrics['candidates']:,} candidates")
        write_text(folder / REPORT, prefetch_report(metrics, provenance, PLOT, self.cutoffs[-1]))
        write_text(folder / METRICS, json.dumps(metrics, indent=1) + "\n")


def seen_groups(corpus: Corpus, split: Split) -> dict[str, npt.NDArray[np.bool_]]:
    """Queries [Q] with a target that training contexts cite, `seen`, and the others, `unseen`.

    Empty where the corpus has no training split.
    """
    if TRAIN not in corpus.splits:
        return {}
    query = np.repeat(np.arange(len(split)), split.positives.lengths)
    hits = np.bincount(query, weights=corpus.seen[split.positives.values], minlength=len(split))
    return {"seen": hits > 0, "unseen": hits == 0}
