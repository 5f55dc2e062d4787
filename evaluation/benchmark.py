"""What all benchmarks of ranked candidates have in common: settings, queries, the search, facts about it."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.progress import counting
from datasets.records import TRAIN
from evaluation.files import METRICS, PER_QUERY, QRELS, RUN
from evaluation.measures import CUTOFFS
from evaluation.protocol import PROTOCOLS, file_of, taken
from retrieval.base import Ranking, Retriever, has_index
from retrieval.filters import Filters

log = logging.getLogger(__name__)

Metrics = dict[str, float | int | str]


class Benchmark:
    """Contexts of a split are queries, the candidates but the citing paper are ranked.

    cutoffs: ranks k of recall@k; the largest is how many papers are fetched.
    batch: queries searched at a time; memory grows with batch * the largest cutoff.
    protocols: of `transductive` and `inductive` (evaluation.protocol).
    queries: how many contexts are asked, a sample of the split where it has more; None: all.
    run_depth: papers of each query in run.trec; None: all that were fetched, 0: no file.
    seed: of the sample and of the resamples that intervals come from.
    f1: ranks k of precision@k and f1@k, which others measure papers that ask by.
    """

    def __init__(
        self,
        cutoffs: Sequence[int] = CUTOFFS,
        batch: int = 2048,
        protocols: Sequence[str] = PROTOCOLS,
        queries: int | None = None,
        run_depth: int | None = 100,
        seed: int = 0,
        f1: Sequence[int] = (),
    ) -> None:
        """Raises InputError for numbers that are none from 1 on (run_depth: 0), and unknown protocols."""
        ranks = [*cutoffs, *f1]
        numbers = [*ranks, batch, 1 if queries is None else queries, (run_depth or 0) + 1]
        if not ranks or not all(type(k) is int and k >= 1 for k in numbers):
            raise InputError(
                f"benchmark: cutoffs {list(cutoffs)}, f1 {list(f1)}, batch {batch}, queries {queries} and "
                f"run_depth {run_depth} must be whole numbers from 1 on"
            )
        self.cutoffs, self.f1 = sorted(set(ranks)), sorted(set(f1))
        if isinstance(protocols, str) or not protocols or not set(protocols) <= set(PROTOCOLS):
            raise InputError(f"benchmark.protocols: {protocols!s} is no list of {', '.join(PROTOCOLS)}")
        self.batch, self.protocols, self.queries = batch, list(protocols), queries
        self.run_depth, self.seed = run_depth, seed

    def serve(self, corpus: Callable[[], Corpus]) -> None:
        """By another process than the first, where torchrun started several: the work that is shared, if any.

        corpus: gives the corpus where there is some.
        """

    def finish(self) -> None:
        """By the first process, however its evaluation ended: let the others end too."""

    def asked(self, corpus: Corpus, split: str) -> Split:
        """The queries of a split, or a sample of them.

        Raises InputError if the corpus has no such split or the split has no queries.
        """
        whole = corpus.split(split)
        if len(whole) == 0:
            raise InputError(f"corpus {corpus.name}: the split {split!r} has no queries to evaluate")
        if split == TRAIN:
            log.warning("split %s: what was learnt from it has seen the answers", split)
        if self.queries is None:
            return whole
        drawn = np.random.default_rng(self.seed).permutation(len(whole))[: self.queries]
        return taken(whole, np.sort(drawn))

    def search(
        self, retriever: Retriever, contexts: NDArray[np.int64], k: int, filters: Filters
    ) -> tuple[Ranking, float]:
        """The first k papers of each context, batch by batch, and the seconds that it took."""
        parts, seconds = [], 0.0
        with counting(f"{retriever.name}: searching", len(contexts)) as advance:
            for start in range(0, len(contexts), self.batch):
                started = time.perf_counter()
                parts.append(retriever.search(contexts[start : start + self.batch], k, filters))
                seconds += time.perf_counter() - started
                advance(len(parts[-1]))
        return Ranking.concat(parts), seconds


def opened(retriever: Retriever, corpus: Corpus, index_dir: str | Path | None) -> tuple[Metrics, bool]:
    """Index the corpus, or read its index: what that took, and whether the index was read."""
    loaded = index_dir is not None and has_index(Path(index_dir))
    started = time.perf_counter()
    retriever.open(corpus, index_dir)
    seconds = time.perf_counter() - started
    log.info("%s: indexed %s in %.1f s", retriever.name, corpus.name, seconds)
    metrics: Metrics = {"index_seconds": seconds, "index_bytes": int(retriever.index_bytes)}
    if not loaded and not retriever.reused:  # else the seconds are those of opening it
        metrics["papers_per_second"] = int(np.count_nonzero(corpus.is_candidate)) / seconds
    return metrics, loaded


def facts_of(retriever: Retriever, corpus: Corpus, split: str, filters: Filters) -> Metrics:
    """What an evaluation was of, as entries of metrics.json."""
    tuned: Metrics = {f"tuned/{name}": _plain(value) for name, value in retriever.tuned.items()}
    return tuned | {
        "retriever": retriever.name,
        "data": corpus.name,
        "split": split,
        "filters": str(filters),
        "fingerprint": corpus.fingerprint,
        "processors": os.cpu_count() or 1,
    }


def cleared(folder: Path, names: Sequence[str] = (RUN, QRELS, PER_QUERY)) -> None:
    """Make the folder; remove what an earlier evaluation left there and this one may not write again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in [METRICS, *(file_of(name, protocol) for name in names for protocol in PROTOCOLS)]:
        (folder / name).unlink(missing_ok=True)


def _plain(value: object) -> float | int | str:
    return value if isinstance(value, int | float | str) else json.dumps(value)
