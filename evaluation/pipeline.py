"""Global citation recommendation in two stages (Nogueira et al. 2020, tables 2 and 3).

What came of the two stages in one protocol: prefetched, and reranked at several depths.
The report of two stages: what the prefetcher found, and what reranking made of it.
Whether and how the two stages are fused, as options and as a weight that is tuned on validation.
The pipeline benchmark: prefetch, then rerank the first candidates (Gu et al. 2022, table 4).
The reranking benchmark: candidates that hold the cited paper for certain (Gu et al. 2022, table 3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.settings import read_settings
from evaluation.benchmark import Benchmark, Metrics, cleared, facts_of, opened
from evaluation.files import METRICS, PER_QUERY, QRELS, REPORT, RUN, write_text
from evaluation.measures import CUTOFFS
from evaluation.outcome import Outcome
from evaluation.plots import RERANKING_PLOT, reranking_plot
from evaluation.protocol import GROUPS, PROTOCOLS, TRANSDUCTIVE, Protocol, key_of, protocols
from evaluation.published import published_rerankers, published_rerankers_of_reranking_published
from evaluation.report import (
    MEASURED,
    Facts,
    Provenance,
    index_text,
    markdown_table,
    measure_cell,
    number,
    origin,
    pool_text,
    protocol_lines,
)
from evaluation.report import (
    Metrics as ReadMetrics,
)
from evaluation.significance import paired
from rerank.fusing import METHODS, fused_scores, tuned_weight
from rerank.reranker import Reranker, ScoringConfig
from rerank.scores import CHUNK, PairScores, Processes, Scored, candidate_scores, head_of, reranked
from retrieval.base import Ranking, Retriever, nothing
from retrieval.filters import Filters
from retrieval.tuning import VALIDATION, recall_cutoff, sampled

BASE, GAIN, DEPTH = "base/", "gain/", "depth/"
"""What keys of metrics.json begin with: the prefetcher, its distance to the reranker, fewer candidates."""

COMPARED = ("mrr", "recall@10")
"""Measures by which the two stages are compared."""


OF_DEPTH = ("recall@10", "mrr", "ceiling", "seconds_per_query")
"""What is reported of each number of candidates."""


def depths_of(metrics: Mapping[str, object], protocol: str = TRANSDUCTIVE) -> dict[int, dict[str, float]]:
    """{reranked candidates: {one of OF_DEPTH: value}} of the metrics of a pipeline."""
    prefix = key_of(DEPTH, protocol)
    found: dict[int, dict[str, float]] = {}
    for name, value in metrics.items():
        if name.startswith(prefix) and isinstance(value, float):
            depth, _, of_depth = name.removeprefix(prefix).partition("/")
            found.setdefault(int(depth), {})[of_depth] = value
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Candidates:
    """A prefetched ranking [Q, n], the reranker's scores of its first K papers [Q, K], and what both took."""

    ranking: Ranking
    scores: NDArray[np.float32]
    seconds: float
    scored: Scored

    def final(self, depth: int, method: str, weight: float) -> Ranking:
        """The ranking with its first `depth` papers in the order of the reranker, or of both."""
        scores = self.scores[:, :depth]
        return reranked(self.ranking, fused_scores(head_of(self.ranking, depth), scores, method, weight))

    def seconds_at(self, depth: int) -> float:
        """What it takes to prefetch, and to rerank so many."""
        pairs = np.count_nonzero(self.ranking.papers[:, :depth] >= 0)
        speed = self.scored.pairs_per_second
        return self.seconds + (pairs / speed if speed else 0.0)


@dataclass(frozen=True)
class Stages:
    """The prefetcher's outcome, and that of reranking by the number of reranked candidates."""

    base: Outcome
    by_depth: Mapping[int, Outcome]
    scored: Scored

    @classmethod
    def of(
        cls,
        protocol: Protocol,
        corpus: Corpus,
        found: Candidates,
        names: tuple[str, str],
        method: str,
        weights: Mapping[int, float],
        cutoffs: list[int],
        f1_at: Sequence[int] = (),
    ) -> Stages:
        """names: of the retriever and the reranker; weights: of the reranker, by depth."""
        base = Outcome.of(protocol, corpus, found.ranking, names[0], cutoffs, found.seconds, f1_at)
        by_depth = {
            depth: Outcome.of(
                protocol,
                corpus,
                found.final(depth, method, weight),
                f"{names[0]}+{names[1]}",
                cutoffs,
                found.seconds_at(depth),
                f1_at,
            )
            for depth, weight in weights.items()
        }
        return cls(base, by_depth, found.scored)

    @property
    def depth(self) -> int:
        """How many candidates are reranked."""
        return max(self.by_depth)

    @property
    def final(self) -> Outcome:
        """With all of them reranked."""
        return self.by_depth[self.depth]

    def metrics(self, seed: int) -> Metrics:
        """Of the reranked, of the prefetched (`base/...`), the difference, the ceiling; and by depth."""
        protocol = self.base.protocol.name
        found: Metrics = dict(self.final.metrics(seed))
        pool = {key_of(name, protocol) for name in ("citing_papers", "candidates")}
        for name, value in self.base.metrics(seed).items():
            if name not in pool and not name.endswith("queries"):
                found[BASE + name] = value
        for name in [*COMPARED, *(name for name in self.base.values.values if name.startswith("f1@"))]:
            final, base = (outcome.values.values[name] for outcome in (self.final, self.base))
            gain = paired(final, base, self.base.values.papers, seed=seed)
            key = GAIN + key_of(name, protocol)
            found |= {key: gain.difference, f"{key}/p": gain.p}
            if gain.papers > 1:
                found |= {f"{key}/low": gain.low, f"{key}/high": gain.high}
        # Not of the base: trec_eval puts its equals in another order, so that others would be the first.
        found[key_of("ceiling", protocol)] = self._mean(self.final, f"recall@{self.depth}")
        for depth, outcome in self.by_depth.items():
            of_depth = [
                self._mean(outcome, "recall@10"),
                self._mean(outcome, "mrr"),
                self._mean(outcome, f"recall@{depth}"),
                outcome.seconds / len(outcome.values),
            ]
            names = (key_of(f"{DEPTH}{depth}/{name}", protocol) for name in OF_DEPTH)
            found |= dict(zip(names, of_depth, strict=True))
        return found

    @staticmethod
    def _mean(outcome: Outcome, name: str) -> float:
        return float(outcome.values.values[name].mean())


@dataclass(frozen=True)
class About:
    """What a benchmark of two stages says of itself.

    lines: of the candidates; sections: more parts before the origin; folder: of the pairs' scores.
    """

    heading: str
    folder: str
    lines: list[str]
    sections: list[str] = field(default_factory=list)


def pipeline_name(metrics: ReadMetrics) -> str:
    """The two stages, and how they are fused, as `hatten + reranker`."""
    fused = f", fused by {metrics['fuse']}" if metrics["fuse"] != "none" else ""
    return f"{metrics['retriever']} + {metrics['reranker']}{fused}"


def stage_rows(
    metrics: ReadMetrics, protocol: str = TRANSDUCTIVE, intervals: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Head and rows: each measure of the prefetcher, of the reranked, and the ratio."""
    prefix = key_of("", protocol)
    wanted = tuple(prefix + measure for measure in MEASURED)
    names = [name for name in metrics if name.startswith(wanted) and not name.endswith(("/low", "/high"))]
    rows = []
    for name in names:
        base, final = (float(metrics[key]) for key in (BASE + name, name))
        rows.append(
            [
                name.removeprefix(prefix),
                measure_cell(metrics, BASE + name, intervals),
                measure_cell(metrics, name, intervals),
                f"{final / base:.3f}" if base else "",
            ]
        )
    return ["measure", "base", "reranked", "ratio"], rows


def depth_rows(metrics: ReadMetrics, protocol: str = TRANSDUCTIVE) -> tuple[list[str], list[list[str]]]:
    """Head and rows: R@10, MRR, ceiling and seconds a query by the number of reranked candidates."""
    rows = [
        [f"{depth:,}", *(number(values[name]) for name in OF_DEPTH)]
        for depth, values in depths_of(metrics, protocol).items()
    ]
    return ["reranked candidates", "R@10", "MRR", "prefetch ceiling", "s/query"], rows


def depth_columns(
    curves: Mapping[str, Mapping[int, Mapping[str, float]]], measure: str, corner: str = ""
) -> tuple[list[str], list[list[str]]]:
    """Head and rows: a measure of several pipelines, a column for each number of reranked candidates.

    curves: what `depths_of` gives, by name; corner: the first cell of the head.
    """
    depths = sorted({depth for curve in curves.values() for depth in curve})
    rows = [
        [name, *(f"{curve[k][measure]:.3f}" if k in curve else "" for k in depths)]
        for name, curve in curves.items()
    ]
    return [corner, *(f"{k:,}" for k in depths)], rows


def headline(metrics: ReadMetrics, protocol: str = TRANSDUCTIVE) -> str:
    """Base -> Reranked and the ceiling, in a line for people."""
    parts = []
    start = key_of("f1@", protocol)
    ranks = [name.removeprefix(start) for name in metrics if name.startswith(start)]
    f1 = [f"f1@{rank}" for rank in ranks if rank.isdecimal()]
    for name in [*COMPARED, *f1]:
        key = key_of(name, protocol)
        gain = f"{GAIN}{key}"
        sure = f"p {metrics[f'{gain}/p']:.4f}"
        if f"{gain}/low" in metrics:
            sure = f"95 % {metrics[f'{gain}/low']:+.4f} to {metrics[f'{gain}/high']:+.4f}, {sure}"
        values = f"{metrics[BASE + key]:.4f} -> {metrics[key]:.4f} ({metrics[gain]:+.4f}; {sure})"
        parts.append(f"{name.replace('recall', 'R').upper()} {values}")
    ceiling = metrics[key_of("ceiling", protocol)]
    return (
        f"Base -> Reranked: {'; '.join(parts)}. Prefetch ceiling: {ceiling:.4f}, the share of the cited "
        "papers that are among the reranked candidates: what a perfect reranker would find."
    )


def pipeline_report(
    metrics: ReadMetrics, provenance: Provenance, plot: str, facts: Facts, about: About
) -> str:
    """Markdown: base and reranked side by side, by depth, the times, and how to get them again."""
    where = f"{metrics['data']}, split {metrics['split']}"
    test = (
        "Differences: their interval as above, p of a two-sided randomisation test in which the two rankings "
        "of a citing paper change places."
    )
    lines = [*protocol_lines(metrics, facts), test, *about.lines, *_fused(metrics)]
    parts = [
        f"# {about.heading}: {pipeline_name(metrics)} on {where}",
        "## Protocol",
        "\n".join(f"- {line}" for line in lines),
    ]
    for protocol in PROTOCOLS:
        if key_of("queries", protocol) in metrics:
            parts += [f"## Results, {protocol}", pool_text(metrics, protocol), headline(metrics, protocol)]
            parts += [markdown_table(*stage_rows(metrics, protocol, intervals=True))]
            parts += _groups(metrics, protocol)
            parts += [
                "### By the number of reranked candidates",
                markdown_table(*depth_rows(metrics, protocol)),
            ]
    parts += [f"![R@10 by reranked candidates]({plot})", "## Time and size", _costs(metrics, facts, about)]
    return "\n\n".join([*parts, *about.sections, *origin(metrics, provenance)]) + "\n"


def _fused(metrics: ReadMetrics) -> list[str]:
    if metrics["fuse"] == "none":
        return ["Ranked by the reranker's score alone; papers of equal score keep the prefetcher's order."]
    how = "reciprocal ranks" if metrics["fuse"] == "rank" else "z-scores"
    return [
        f"Ranked by a weighted sum of {how} of both stages: {metrics['weight']} the reranker's, the rest the "
        "prefetcher's (benchmark.weight)."
    ]


def _groups(metrics: ReadMetrics, protocol: str) -> list[str]:
    """Base and reranked of each group of queries."""
    groups = [group for group in GROUPS[protocol] if f"{group}/queries" in metrics and group != protocol]
    groups = [group for group in groups if metrics[f"{group}/queries"]]
    if not groups:
        return []
    head = ["queries", "", *(f"{measure} {stage}" for measure in COMPARED for stage in ("base", "reranked"))]
    rows = [
        [
            group,
            f"{metrics[f'{group}/queries']:,}",
            *(
                measure_cell(metrics, f"{stage}{group}/{measure}", True)
                for measure in COMPARED
                for stage in (BASE, "")
            ),
        ]
        for group in groups
    ]
    return [markdown_table(head, rows)]


def _costs(metrics: ReadMetrics, facts: Facts, about: About) -> str:
    pairs, new = int(metrics["pairs"]), int(metrics["pairs_new"])
    when = "all of them now" if new == pairs else f"{new:,} of them now, the others before"
    protocol = next(one for one in PROTOCOLS if key_of("queries", one) in metrics)
    whole, base = (metrics[stage + key_of("seconds_per_query", protocol)] for stage in ("", BASE))
    return (
        f"{index_text(metrics, facts)} Prefetching: {1000 * float(base):.3f} ms a query, in batches. "
        f"Reranking: {metrics['pairs_per_second']:,.1f} pairs a second, measured when the {pairs:,} pairs "
        f"were scored ({when}; `{about.folder}`). Both: {float(whole):.3f} s a query. "
        f"{metrics['processors']} processors."
    )


TUNED = "tuned"


@dataclass(frozen=True)
class Fuse:
    """method: of rerank.fusing.METHODS. weight: of the reranker, or `tuned`: what is best for `measure`
    (recall@k, or the mean of several) on `queries` of the validation split, drawn by `seed`."""

    method: str
    weight: float | str
    measure: str | Sequence[str]
    queries: int
    seed: int

    def __post_init__(self) -> None:
        """Raises InputError for a value that is not one of those above."""
        if self.method not in METHODS:
            raise InputError(f"benchmark.fuse={self.method}: choose one of {', '.join(METHODS)}")
        number = type(self.weight) in (int, float)
        if self.weight != TUNED and not (number and 0 <= float(self.weight) <= 1):
            raise InputError(f"benchmark.weight={self.weight}: choose {TUNED}, or a number from 0 to 1")
        if type(self.queries) is not int or self.queries < 1:
            raise InputError(f"benchmark.validation_queries={self.queries}: must be a whole number from 1 on")
        assert self.cutoffs

    @property
    def cutoffs(self) -> list[int]:
        """The k of the recalls that are tuned for."""
        measures = [self.measure] if isinstance(self.measure, str) else list(self.measure)
        return [recall_cutoff(one, "benchmark.measure") for one in measures or [""]]

    def check(self, corpus: Corpus) -> None:
        """Raises InputError if a weight is to be tuned and there is nothing to tune with."""
        if self.method != "none" and self.weight == TUNED and VALIDATION not in corpus.splits:
            raise InputError(
                f"benchmark.fuse={self.method} tunes a weight on split {VALIDATION!r}, which corpus "
                f"{corpus.name} lacks; give benchmark.weight, from 0 to 1"
            )

    def weigher(self, corpus: Corpus, found: Callable[[Split], Candidates]) -> Callable[[int], float]:
        """The weight of the reranker by how many candidates are reranked.

        found: gives the candidates of validation queries with their scores, where they are needed.
        """
        if self.method == "none":
            return lambda depth: 1.0
        if self.weight != TUNED:
            return lambda depth: float(self.weight)
        contexts, wanted = sampled(corpus, VALIDATION, self.queries, self.seed)
        candidates = found(Split(VALIDATION, contexts, wanted))

        @cache
        def tuned(depth: int) -> float:
            head, scores = head_of(candidates.ranking, depth), candidates.scores[:, :depth]
            return tuned_weight(head, scores, wanted, self.method, self.cutoffs)

        return tuned


ALL = "all"
DEPTHS = (10, 20, 50, 100, 200, 500, 1000, 2000)
BASE_FILES = "base-"
"""What the names of the prefetcher's files begin with."""


class Pipeline(Benchmark):
    """How well a reranker orders what a retriever finds.

    reranker: a folder that training wrote. candidates: how many papers of each query are reranked, or `all`;
    the others keep their order behind them. scoring: options of rerank.reranker.ScoringConfig.
    fuse, weight, measure, validation_queries: of evaluation.pipeline.Fuse.
    depths: smaller numbers of candidates that are reported too: their scores are known anyway.
    scores_dir: where scores of pairs are kept, for all evaluations; chunk: pairs that are scored together
    (rerank.scores). The others: as for all benchmarks.
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
        self.reranker, self.scoring = reranker, read_settings(ScoringConfig, scoring or {}, "scoring")
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


class Reranking(Pipeline):
    """How well a reranker orders the first candidates of an oracle, or the whole database.

    Candidates are those of the retriever and, behind them, the cited papers that it missed; with
    `candidates=all` every paper that a query may find. All of them are reranked. Other settings: as for
    Pipeline.
    """

    name, heading = "rerank", "Reranking"

    def _prefetched(
        self, retriever: Retriever, queries: Split, filters: Filters, pool: int
    ) -> tuple[Ranking, int, float]:
        count = pool if isinstance(self.candidates, str) else min(self.candidates, pool)
        ranking, seconds = self.search(retriever, queries.contexts, count, filters)
        completed = appended(ranking, _certain(retriever.corpus, queries, filters, self.candidates == ALL))
        return completed, completed.k, seconds

    def _about(self, stages: Stages, scores: PairScores) -> About:
        name, retriever = scores.scorer.name, stages.base.run.name.partition("+")[0]
        if self.candidates == ALL:
            line = (
                f"{name} ranks the whole database: every paper that a query may find. In the base order, "
                f"what {retriever} does not find stands last."
            )
        else:
            line = (
                f"{name} reranks the candidates of an oracle: the first {self.candidates:,} of {retriever} "
                "and, behind them, the cited papers that it missed. Up to there the base order is "
                f"{retriever}'s own. benchmark=pipeline is what a user would see."
            )
        return About(self.heading, str(scores.folder), [line], published_rerankers_of_reranking_published())


def _certain(corpus: Corpus, queries: Split, filters: Filters, whole: bool) -> list[NDArray[np.integer]]:
    """What each query's candidates hold for certain [Q][n]: its cited papers, or every paper it may find."""
    found: list[NDArray[np.integer]] = [np.empty(0, np.int32)] * len(queries)
    for places, allowed in filters.groups(corpus, queries.contexts):
        everything = np.flatnonzero(allowed)
        for place in places.tolist():
            papers = everything if whole else queries.positives[place]
            own = corpus.citing[queries.contexts[place]]
            found[place] = papers[allowed[papers] & (papers != own)]
    return found


def appended(ranking: Ranking, papers: Sequence[NDArray[np.integer]]) -> Ranking:
    """Each query's ranking with some papers [Q][n] behind what it has, but for those that it has.

    Scores go on below the last, each 1 less than the one before.
    """
    missing = [
        np.setdiff1d(more, found[found >= 0]) for more, found in zip(papers, ranking.papers, strict=True)
    ]
    counts = np.count_nonzero(ranking.papers >= 0, axis=1)
    lengths = counts + np.array([len(more) for more in missing], np.int64)
    rows, scores = nothing(len(ranking), int(lengths.max(initial=1)))
    keep = min(ranking.k, rows.shape[1])
    rows[:, :keep], scores[:, :keep] = ranking.papers[:, :keep], ranking.scores[:, :keep]
    for row, (count, more) in enumerate(zip(counts.tolist(), missing, strict=True)):
        last = scores[row, count - 1] if count else np.float32(0)
        rows[row, count : count + len(more)] = more
        scores[row, count : count + len(more)] = last - 1 - np.arange(len(more), dtype=np.float32)
    return Ranking(rows, scores)


class GlobalReranking(Pipeline):
    """Papers ask, the first candidates of a retriever are reranked.

    The paper's measures are F1@20 (`f1`), MRR of the first 1,000 papers, the largest cutoff, and R@1000.
    query_tokens: of the tokens of a pair those that the query has, the others are the candidate's
    (rerank.pairs); None: as the reranker was trained. Other settings: as for Pipeline.
    """

    name, heading = "global_rerank", "Global reranking"

    def __init__(self, *given: Any, query_tokens: int | None = None, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.scoring = replace(self.scoring, query_tokens=query_tokens)
        self._tokens: Metrics = {}

    def _scores(self, corpus: Corpus) -> PairScores:
        scores = super()._scores(corpus)
        assert isinstance(scores.scorer, Reranker)
        pairs = scores.scorer.model.config
        if pairs.query_tokens is not None:
            query, candidate = pairs.query_tokens, pairs.max_tokens - pairs.query_tokens
            self._tokens = {"query_tokens": query, "candidate_tokens": candidate}
        return scores

    def _metrics(self, stages: list[Stages], weight: Callable[[int], float]) -> Metrics:
        return super()._metrics(stages, weight) | self._tokens

    def _about(self, stages: Stages, scores: PairScores) -> About:
        about = super()._about(stages, scores)
        lines = [f"Tokens: {of:,} {name.replace('_', ' ')} at most." for name, of in self._tokens.items()]
        return replace(about, lines=about.lines + lines, sections=[published_rerankers().markdown])
