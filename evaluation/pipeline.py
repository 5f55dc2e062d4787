"""The pipeline benchmark: prefetch, then rerank the first candidates (Gu et al. 2022, table 4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets.errors import InputError
from datasets.store import Corpus, Split
from evaluation.benchmark import Benchmark, Metrics, cleared, facts_of, opened
from evaluation.files import METRICS, PER_QUERY, QRELS, REPORT, RUN, write_text
from evaluation.measures import CUTOFFS
from evaluation.pipeline_fusing import TUNED, Fuse
from evaluation.pipeline_plot import RERANKING_PLOT, reranking_plot
from evaluation.pipeline_report import About, pipeline_name, pipeline_report
from evaluation.pipeline_stages import BASE, Candidates, Stages, depths_of
from evaluation.protocol import TRANSDUCTIVE, key_of, protocols
from evaluation.report import Facts, Provenance
from hatten.options import options
from rerank.pair_scores import CHUNK, PairScores
from rerank.pipeline import candidate_scores, head_of
from rerank.processes import Processes
from rerank.reranker import Reranker, ScoringConfig
from retrieval.base import Retriever
from retrieval.filters import Filters
from retrieval.ranking import Ranking

ALL = "all"
DEPTHS = (10, 20, 50, 100, 200, 500, 1000, 2000)
BASE_FILES = "base-"
"""What the names of the prefetcher's files begin with."""


class Pipeline(Benchmark):
    """How well a reranker orders what a retriever finds.

    reranker: a folder that training wrote. candidates: how many papers of each query are reranked, or `all`;
    the others keep their order behind them. scoring: options of rerank.reranker.ScoringConfig.
    fuse, weight, measure, validation_queries: of evaluation.pipeline_fusing.Fuse.
    depths: smaller numbers of candidates that are reported too: their scores are known anyway.
    scores_dir: where scores of pairs are kept, for all evaluations; chunk: pairs that are scored together
    (rerank.pair_scores). The others: as for all benchmarks.
    """

    name, heading = "pipeline", "Pipeline"

    def __init__(
        self,
        reranker: str | Path | None,
        candidates: int | str = 100,
        scoring: Mapping[str, Any] | None = None,
        fuse: str = "none",
        weight: float | str = TUNED,
        measure: str | Sequence[str] = "recall@10",
        validation_queries: int = 500,
        depths: Sequence[int] = DEPTHS,
        scores_dir: str | Path = ".cache/pair-scores",
        chunk: int = CHUNK,
        cutoffs: Sequence[int] = CUTOFFS,
        batch: int = 2048,
        protocols: Sequence[str] = (TRANSDUCTIVE,),
        queries: int | None = None,
        run_depth: int | None = 100,
        seed: int = 0,
        f1: Sequence[int] = (),
    ) -> None:
        """Raises InputError for values that cannot be, and without a reranker."""
        super().__init__([*cutoffs, 10], batch, protocols, queries, run_depth, seed, f1)
        if reranker is None:
            raise InputError(
                f"benchmark={self.name} needs reranker=FOLDER: what train.py model=scibert_reranker has saved"
            )
        numbers = [*depths, chunk, *([] if candidates == ALL else [candidates])]
        if not all(type(number) is int and number >= 1 for number in numbers):
            raise InputError(
                f"candidates={candidates}, benchmark.depths={list(depths)}, benchmark.chunk={chunk}: must be "
                f"whole numbers from 1 on (candidates: or {ALL})"
            )
        self.reranker, self.scoring = reranker, options(ScoringConfig, scoring or {}, "scoring")
        self.candidates, self.depths = candidates, list(depths)
        self.scores_dir, self.chunk = scores_dir, chunk
        self.fuse = Fuse(fuse, weight, measure, validation_queries, seed)
        self.processes = Processes.of_torchrun()

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
        Raises InputError if the corpus has no such split, the split no queries, or the reranker is unusable.
        """
        queries, filters = self.asked(corpus, split), filters or Filters()
        chosen = protocols(self.protocols, corpus, queries, filters)
        self.fuse.check(corpus)
        scores = self._scores(corpus)
        index, loaded = opened(retriever, corpus, index_dir)
        found = partial(self._found, retriever, scores)
        weight = self.fuse.weigher(
            corpus, lambda split: found(split, filters, int(filters.allowed(corpus).sum()))
        )
        stages = []
        for protocol in chosen:
            candidates = found(protocol.queries, protocol.filters, protocol.candidates)
            depth = candidates.scores.shape[1]
            weights = {k: weight(k) for k in sorted({depth, *(k for k in self.depths if k < depth)})}
            own = [k for k in [self.candidates] if isinstance(k, int) and k <= depth]
            cutoffs = sorted({*self.cutoffs, *weights, *own})
            names = (retriever.name, scores.scorer.name)
            stages.append(
                Stages.of(protocol, corpus, candidates, names, self.fuse.method, weights, cutoffs, self.f1)
            )
        metrics = self._metrics(stages, weight) | index | facts_of(retriever, corpus, split, filters)
        metrics |= {"reranker": scores.scorer.name, "benchmark": self.name}
        whole, fetched = len(corpus.split(split)), stages[0].base.run.ranking.k
        facts = Facts(fetched, self.run_depth, len(queries), whole, loaded)
        about = self._about(stages[0], scores)
        report = pipeline_report(metrics, provenance or Provenance(), RERANKING_PLOT, facts, about)
        self._write(Path(output_dir), metrics, stages, report)
        return metrics

    def serve(self, corpus: Callable[[], Corpus]) -> None:
        """By another process than the first (torchrun): score what that one announces, until it ends."""
        scores = None
        while (keys := self.processes.announced()) is not None:
            scores = scores or self._scores(corpus())
            scores.compute(keys)

    def finish(self) -> None:
        """By the first process: let the others end."""
        self.processes.announce(None)

    def _scores(self, corpus: Corpus) -> PairScores:
        reranker = Reranker.open(self.reranker, self.scoring)
        return PairScores(self.scores_dir, reranker, corpus, self.chunk, processes=self.processes)

    def _found(
        self, retriever: Retriever, scores: PairScores, queries: Split, filters: Filters, pool: int
    ) -> Candidates:
        ranking, count, seconds = self._prefetched(retriever, queries, filters, pool)
        found, scored = candidate_scores(scores, queries.contexts, head_of(ranking, count).papers)
        return Candidates(ranking, found, seconds, scored)

    def _prefetched(
        self, retriever: Retriever, queries: Split, filters: Filters, pool: int
    ) -> tuple[Ranking, int, float]:
        """Papers of each query, how many of them are to be reranked, and the seconds of the search."""
        count = pool if isinstance(self.candidates, str) else min(self.candidates, pool)
        depth = max(count, self.cutoffs[-1])
        ranking, seconds = self.search(retriever, queries.contexts, depth, filters)
        return ranking, count, seconds

    def _about(self, stages: Stages, scores: PairScores) -> About:
        """What the report says of the candidates."""
        reranked = (
            f"{scores.scorer.name} reranks the first {stages.depth:,} papers of each query; the others keep "
            f"their order behind them, so that recall@k for k above {stages.depth:,} is the prefetcher's."
        )
        if self.candidates != ALL and stages.depth < int(self.candidates):
            reranked += f" candidates={self.candidates} is more than the pool has."
        return About(self.heading, str(scores.folder), [reranked])

    def _metrics(self, stages: list[Stages], weight: Callable[[int], float]) -> Metrics:
        metrics: Metrics = {}
        for one in stages:
            metrics |= one.metrics(self.seed)
        pairs = sum(len(one.scored.scores) for one in stages)
        seconds = sum(one.scored.seconds for one in stages)
        metrics |= {"reranked": stages[0].depth, "pairs": pairs}
        metrics |= {"pairs_new": sum(one.scored.new for one in stages)}
        metrics |= {"pairs_per_second": pairs / seconds if seconds else 0.0, "fuse": self.fuse.method}
        if self.fuse.method != "none":
            metrics["weight"] = weight(stages[0].depth)
        return metrics

    def _write(self, folder: Path, metrics: Metrics, stages: list[Stages], report: str) -> None:
        cleared(folder, (QRELS, *(stage + name for name in (RUN, PER_QUERY) for stage in ("", BASE_FILES))))
        for one in stages:
            one.base.write(folder, self.run_depth, BASE_FILES)
            one.final.write(folder, self.run_depth)
        protocol = stages[0].base.protocol.name
        name, base = pipeline_name(metrics), metrics[BASE + key_of("recall@10", protocol)]
        curves = {name: depths_of(metrics, protocol)}
        title = f"{metrics['data']}, split {metrics['split']}"
        reranking_plot(folder / RERANKING_PLOT, curves, title, {name: float(base)})
        write_text(folder / REPORT, report)
        write_text(folder / METRICS, json.dumps(metrics, indent=1) + "\n")
