"""Two stages: the pipeline benchmark (Gu et al. 2022, table 4) and reranking alone (table 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.settings import read_settings
from evaluation.benchmark import (
    CorpusBenchmark,
    Outcome,
    Output,
    cell,
    clear,
    facts_of,
    index_text,
    measures_in,
    open_index,
    pool_text,
    protocols_in,
)
from evaluation.measures import CUTOFFS
from evaluation.plots import curve_plot, reranking_plot
from evaluation.prefetch import Prefetch
from evaluation.protocol import GROUPS, TRANSDUCTIVE, Protocol, key_of, protocols
from evaluation.published import published
from evaluation.report import (
    PER_QUERY,
    QRELS,
    RUN,
    Column,
    Metrics,
    Provenance,
    Section,
    SweepJob,
    aligned,
    comparison,
    markdown_table,
    say,
    show,
    write_results,
)
from evaluation.significance import paired
from rerank.reranker import Reranker
from rerank.scores import CHUNK, PairScores, Processes, Scored, candidate_scores, head_of, reranked
from rerank.settings import ScoringSettings
from retrieval.base import Ranking, Retriever, nothing
from retrieval.filters import Filters
from retrieval.fusion import SCORE_FUSIONS, VALIDATION, fused_scores, sample_queries, tuned_weight
from retrieval.settings import recall_cutoff

PLOT = "reranking.png"
BASE, GAIN, DEPTH = "base/", "gain/", "depth/"
"""Prefixes of keys in metrics.json: the prefetcher, its distance to the reranker, fewer candidates."""
BASE_FILES = "base-"
"""Prefix of the prefetcher's files."""
COMPARED = ("mrr", "recall@10")
"""Measures by which the two stages are compared."""
OF_DEPTH = {"recall@10": "R@10", "mrr": "MRR", "ceiling": "prefetch ceiling", "seconds_per_query": "s/query"}
"""What is reported of each number of candidates."""
ALL, TUNED = "all", "tuned"
DEPTHS = (10, 20, 50, 100, 200, 500, 1000, 2000)


def depths_of(metrics: Metrics, protocol: str = TRANSDUCTIVE) -> dict[int, dict[str, float]]:
    """{reranked candidates: {one of OF_DEPTH: value}} of the metrics of a pipeline."""
    prefix = key_of(DEPTH, protocol)
    found: dict[int, dict[str, float]] = {}
    for name, value in metrics.items():
        if name.startswith(prefix):
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
        """The ranking with its first `depth` papers in the order of the reranker, or of both stages."""
        scores = self.scores[:, :depth]
        return reranked(self.ranking, fused_scores(head_of(self.ranking, depth), scores, method, weight))

    def seconds_at(self, depth: int) -> float:
        """Seconds to prefetch, and to rerank so many candidates."""
        pairs = np.count_nonzero(self.ranking.papers[:, :depth] >= 0)
        speed = self.scored.pairs_per_second
        return self.seconds + (pairs / speed if speed else 0.0)


@dataclass(frozen=True)
class Stages:
    """The prefetcher's outcome, and that of reranking by the number of reranked candidates."""

    base: Outcome
    by_depth: Mapping[int, Outcome]
    scored: Scored

    @property
    def depth(self) -> int:
        """How many candidates are reranked at most."""
        return max(self.by_depth)

    @property
    def final(self) -> Outcome:
        """With all of them reranked."""
        return self.by_depth[self.depth]

    def metrics(self, seed: int) -> dict[str, Any]:
        """Of the reranked, of the prefetched (`base/...`), the difference, the ceiling; and by depth."""
        protocol = self.base.protocol.name
        found: dict[str, Any] = dict(self.final.metrics(seed))
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
        # Not of the base: trec_eval orders its ties in another way, so that others would be the first.
        found[key_of("ceiling", protocol)] = self.final.mean(f"recall@{self.depth}")
        for depth, outcome in self.by_depth.items():
            values = [*map(outcome.mean, ("recall@10", "mrr", f"recall@{depth}"))]
            values.append(outcome.seconds / len(outcome.values))
            names = (key_of(f"{DEPTH}{depth}/{name}", protocol) for name in OF_DEPTH)
            found |= dict(zip(names, values, strict=True))
        return found


@dataclass(frozen=True)
class Fuse:
    """method: of SCORE_FUSIONS. weight: of the reranker, or `tuned`: what is best for `measure`
    (recall@k, or the mean of several) on `queries` of the validation split, drawn by `seed`."""

    method: str
    weight: float | str
    measure: str | Sequence[str]
    queries: int
    seed: int

    def __post_init__(self) -> None:
        """Raises InputError for a value that is not one of those above."""
        if self.method not in SCORE_FUSIONS:
            raise InputError(f"benchmark.fuse={self.method}: choose one of {', '.join(SCORE_FUSIONS)}")
        is_number = type(self.weight) in (int, float)
        if self.weight != TUNED and not (is_number and 0 <= float(self.weight) <= 1):
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
        """Raises InputError if a weight is to be tuned and there is nothing to tune it on."""
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
        contexts, wanted = sample_queries(corpus, VALIDATION, self.queries, self.seed)
        candidates = found(Split(VALIDATION, contexts, wanted))

        @cache
        def tuned(depth: int) -> float:
            head, scores = head_of(candidates.ranking, depth), candidates.scores[:, :depth]
            return tuned_weight(head, scores, wanted, self.method, self.cutoffs)

        return tuned


class Pipeline(CorpusBenchmark):
    """How well a reranker orders what a retriever finds.

    reranker: a folder that training wrote. candidates: papers of each query that are reranked, or `all`;
    the others keep their order behind them. scoring: options of rerank.settings.ScoringSettings.
    fuse, weight, measure, validation_queries: as in Fuse.
    depths: smaller numbers of candidates that are reported too: their scores are known anyway.
    scores_dir: where scores of pairs are kept, for all evaluations; chunk: pairs that are scored together
    (rerank.scores). The others: as for all benchmarks over a corpus.
    """

    name, heading = "pipeline", "Pipeline"
    columns: ClassVar[Sequence[str]] = (
        *("mrr", "recall@10", "base/recall@10", "ceiling"),
        *("recall@100", "recall@1000", "recall@2000", "seconds_per_query"),
    )
    about = Prefetch.about
    published: ClassVar[Sequence[str]] = ("pipelines",)
    section: tuple[str, str] = (
        "### Reranked",
        "Base: the prefetcher alone, then the result of reranking its first candidates. Ceiling: the share "
        "of the cited papers among these. s/query: prefetching, and the candidates by the pairs a second.",
    )

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
        """Raises InputError for unusable values, and without a reranker."""
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
        self.reranker, self.scoring = reranker, read_settings(ScoringSettings, scoring or {})
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
        queries, filters = self.sample(corpus, split), filters or Filters()
        chosen = protocols(self.protocols, corpus, queries, filters)
        self.fuse.check(corpus)
        scores = self._scores(corpus)
        index = open_index(retriever, corpus, index_dir)
        found = partial(self._found, retriever, scores)
        pool = int(filters.allowed(corpus).sum())
        weight = self.fuse.weigher(corpus, lambda split: found(split, filters, pool))
        names = (retriever.name, f"{retriever.name}+{scores.scorer.name}")
        stages = []
        for protocol in chosen:
            candidates = found(protocol.queries, protocol.filters, protocol.candidates)
            stages.append(self._stages(protocol, corpus, candidates, weight, names))
        metrics: dict[str, Any] = {}
        for one in stages:
            metrics |= one.metrics(self.seed)
        pairs = sum(len(one.scored.scores) for one in stages)
        seconds = sum(one.scored.seconds for one in stages)
        metrics |= {"reranked": stages[0].depth, "pairs": pairs}
        metrics |= {"pairs_new": sum(one.scored.new for one in stages)}
        metrics |= {"pairs_per_second": pairs / seconds if seconds else 0.0, "fuse": self.fuse.method}
        if self.fuse.method != "none":
            metrics["weight"] = weight(stages[0].depth)
        metrics |= self.scorer_facts(scores) | index | facts_of(retriever, corpus, split, filters)
        metrics |= {"reranker": scores.scorer.name, "benchmark": self.name}
        lines = self.protocol_lines(metrics, stages[0].base.run.ranking.k, len(corpus.split(split)))
        lines += self.candidate_lines(metrics)
        self._write(Path(output_dir), metrics, stages, lines, scores.folder, provenance or Provenance())
        return metrics

    def serve(self, corpus: Callable[[], Corpus]) -> None:
        """Score what the first process announces, until it ends."""
        scores = None
        while (keys := self.processes.announced()) is not None:
            scores = scores or self._scores(corpus())
            scores.compute(keys)

    def finish(self) -> None:
        self.processes.announce(None)

    def _scores(self, corpus: Corpus) -> PairScores:
        reranker = Reranker.open(self.reranker, self.scoring)
        return PairScores(self.scores_dir, reranker, corpus, self.chunk, processes=self.processes)

    def scorer_facts(self, scores: PairScores) -> dict[str, Any]:
        """More entries of metrics.json."""
        return {}

    def _found(
        self, retriever: Retriever, scores: PairScores, queries: Split, filters: Filters, pool: int
    ) -> Candidates:
        ranking, count, seconds = self.prefetched(retriever, queries, filters, pool)
        found, scored = candidate_scores(scores, queries.contexts, head_of(ranking, count).papers)
        return Candidates(ranking, found, seconds, scored)

    def prefetched(
        self, retriever: Retriever, queries: Split, filters: Filters, pool: int
    ) -> tuple[Ranking, int, float]:
        """Papers of each query, how many of them are to be reranked, and the seconds of the search."""
        count = pool if isinstance(self.candidates, str) else min(self.candidates, pool)
        ranking, seconds = self.search(retriever, queries.contexts, max(count, self.cutoffs[-1]), filters)
        return ranking, count, seconds

    def _stages(
        self,
        protocol: Protocol,
        corpus: Corpus,
        found: Candidates,
        weight: Callable[[int], float],
        names: tuple[str, str],
    ) -> Stages:
        depth = found.scores.shape[1]
        depths = sorted({depth, *(k for k in self.depths if k < depth)})
        own = [k for k in [self.candidates] if isinstance(k, int) and k <= depth]
        cutoffs = sorted({*self.cutoffs, *depths, *own})
        measured = partial(Outcome.of, protocol, corpus, cutoffs=cutoffs, f1_at=self.f1)
        by_depth = {
            k: measured(found.final(k, self.fuse.method, weight(k)), names[1], seconds=found.seconds_at(k))
            for k in depths
        }
        return Stages(measured(found.ranking, names[0], seconds=found.seconds), by_depth, found.scored)

    def candidate_lines(self, metrics: Metrics) -> list[str]:
        """What the report says of the candidates."""
        depth = metrics["reranked"]
        line = (
            f"{metrics['reranker']} reranks the first {depth:,} papers of each query; the others keep their "
            f"order behind them, so recall@k for k above {depth:,} is the prefetcher's."
        )
        if self.candidates != ALL and depth < int(self.candidates):
            line += f" candidates={self.candidates} is more than the pool has."
        return [line]

    def closing(self) -> list[str]:
        """More parts of the report, before the last."""
        return []

    def _write(
        self,
        folder: Path,
        metrics: Metrics,
        stages: list[Stages],
        lines: list[str],
        scores: Path,
        provenance: Provenance,
    ) -> None:
        clear(folder, (QRELS, *(stage + name for name in (RUN, PER_QUERY) for stage in ("", BASE_FILES))))
        for one in stages:
            one.base.write(folder, self.run_depth, BASE_FILES)
            one.final.write(folder, self.run_depth)
        protocol = stages[0].base.protocol.name
        base = float(metrics[BASE + key_of("recall@10", protocol)])
        name, title = pipeline_name(metrics), f"{metrics['data']}, split {metrics['split']}"
        reranking_plot(folder / PLOT, {name: depths_of(metrics, protocol)}, title, {name: base})
        parts = [f"# {self.heading}: {name} on {title}", *report_parts(metrics, lines, scores)]
        write_results(folder, metrics, [*parts, *self.closing()], provenance)

    def show(self, metrics: Metrics, folder: Path) -> None:
        for protocol in protocols_in(metrics):
            where = f"{metrics['data']}, split {metrics['split']}, {protocol}"
            show(stage_rows(metrics, protocol), f"{pipeline_name(metrics)} on {where}")
            say(headline(metrics, protocol))
        super().show(metrics, folder)

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        results: dict[str, Metrics] = {}
        for name, output in outputs.items():
            metrics, base = output.metrics, output.metrics[f"{BASE}recall@10"]
            results[name] = metrics | {"stages": pipeline_name(metrics)}
            if base:
                results[name] = {**results[name], "ratio": metrics["recall@10"] / base}
        columns = [
            Column("stages", "stages"),
            Column("reranked", "candidates"),
            Column("queries", "queries"),
            Column(f"{BASE}recall@10", "base R@10", interval=True),
            Column("recall@10", "R@10", interval=True),
            Column("ratio", "ratio", places=2),
            Column(f"{BASE}mrr", "base MRR"),
            Column("mrr", "MRR"),
            Column("ceiling", "ceiling"),
            Column("pairs_per_second", "pairs/s", places=1),
            Column("seconds_per_query", "s/query", places=2),
        ]
        return [*cls.section, comparison(results, columns), *cls.page_curves(results, plot, title)]

    @classmethod
    def page_curves(cls, results: Mapping[str, Metrics], plot: Path, title: str) -> list[str]:
        """A table and a plot by the number of reranked candidates."""
        curves = {
            name: {depth: of["recall@10"] for depth, of in depths_of(metrics).items()}
            for name, metrics in results.items()
        }
        plot = plot.with_stem(f"{plot.stem}-reranked")
        curve_plot(plot, curves, title, "reranked candidates", "R@10")
        table = comparison(results, depth_columns(results, "recall@10"))
        return [
            "### R@10 by the number of reranked candidates",
            table,
            f"![R@10 by candidates]({plot.name})",
        ]

    @classmethod
    def sweep(cls, jobs: Sequence[SweepJob], varied: Sequence[str], folder: Path) -> list[Section]:
        """Each pipeline by its candidates, and all of them in the form of Gu et al. 2022, table 4."""
        others = [key for key in varied if key != "candidates"]
        series: dict[str, dict[int, Metrics]] = {}
        for job in jobs:
            if f"{BASE}recall@10" in job.metrics:
                name = job.label(others) if others else pipeline_name(job.metrics)
                series.setdefault(name, {})[int(job.metrics["reranked"])] = job.metrics
        curves = {
            name: {k: depths_of(metrics)[k] for k, metrics in sorted(of.items())}
            for name, of in series.items()
        }
        sections = []
        for name, curve in curves.items():
            bases = [[series[name][k][f"{BASE}{key}"] for k in curve] for key in ("recall@10", "mrr")]
            head = ["reranked candidates", *OF_DEPTH.values(), "base R@10", "base MRR"]
            columns = [[curve[k][key] for k in curve] for key in OF_DEPTH]
            rows = aligned([list(curve), *columns, *bases])
            sections.append(Section(name, [markdown_table(head, rows)]))
        depths = sorted({k for curve in curves.values() for k in curve})
        if len(depths) > 1:
            found = [[curve.get(k, {}).get("recall@10") for curve in curves.values()] for k in depths]
            rows = aligned([list(curves), *found])
            heading = "R@10 by the number of reranked candidates"
            parts = [markdown_table(["pipeline", *(f"{k:,}" for k in depths)], rows)]
            if max(map(len, curves.values())) > 1:
                bases_of = {
                    name: float(next(iter(of.values()))[f"{BASE}recall@10"]) for name, of in series.items()
                }
                reranking_plot(folder / PLOT, curves, heading, bases_of)
                parts.append(f"![R@10 and seconds a query by reranked candidates]({PLOT})")
            sections.append(Section(heading, parts))
        return sections


class Reranking(Pipeline):
    """How well a reranker orders the first candidates of an oracle, or the whole database.

    Candidates are those of the retriever and, behind them, the cited papers that it missed; with
    `candidates=all` every paper that a query may find. All of them are reranked. Other settings: as for
    Pipeline.
    """

    name, heading = "rerank", "Reranking"
    published = ("oracle-rerankers",)
    section = (
        "### Candidates of an oracle",
        "Candidates include the cited paper by construction, as in Gu et al. 2022, table 3: not comparable "
        "with the tables above.",
    )

    def prefetched(
        self, retriever: Retriever, queries: Split, filters: Filters, pool: int
    ) -> tuple[Ranking, int, float]:
        count = pool if isinstance(self.candidates, str) else min(self.candidates, pool)
        ranking, seconds = self.search(retriever, queries.contexts, count, filters)
        completed = appended(ranking, _certain(retriever.corpus, queries, filters, self.candidates == ALL))
        return completed, completed.k, seconds

    def candidate_lines(self, metrics: Metrics) -> list[str]:
        name, retriever = metrics["reranker"], metrics["retriever"]
        if self.candidates == ALL:
            return [
                f"{name} ranks the whole database: every candidate of the query. In the base order, what "
                f"{retriever} does not find comes last."
            ]
        return [
            f"{name} reranks the candidates of an oracle: the first {self.candidates:,} of {retriever} and, "
            f"behind them, the cited papers that it missed. Up to there the base order is {retriever}'s own. "
            "benchmark=pipeline is what a user would see."
        ]

    def closing(self) -> list[str]:
        return ["## As published", *published("oracle-rerankers")]

    @classmethod
    def page_curves(cls, results: Mapping[str, Metrics], plot: Path, title: str) -> list[str]:
        return []


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
    """Each query's ranking followed by those of some papers [Q][n] that it lacks.

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


def pipeline_name(metrics: Metrics) -> str:
    """The two stages, and how they are fused, as `hatten + reranker`."""
    fused = f", fused by {metrics['fuse']}" if metrics["fuse"] != "none" else ""
    return f"{metrics['retriever']} + {metrics['reranker']}{fused}"


def stage_rows(metrics: Metrics, protocol: str, interval: bool = False) -> list[list[str]]:
    """Head and rows: each measure of the prefetcher, of the reranked, and the ratio."""
    rows = [["measure", "base", "reranked", "ratio"]]
    for name in measures_in(metrics, protocol):
        base = metrics[BASE + name]
        cells = [cell(metrics, stage + name, interval) for stage in (BASE, "")]
        ratio = f"{metrics[name] / base:.3f}" if base else ""
        rows.append([name.removeprefix(key_of("", protocol)), *cells, ratio])
    return rows


def depth_columns(results: Mapping[str, Metrics], measure: str) -> list[Column]:
    """A column of `measure` for each number of reranked candidates."""
    depths = sorted({depth for metrics in results.values() for depth in depths_of(metrics)})
    return [Column(f"{DEPTH}{depth}/{measure}", f"{depth:,}") for depth in depths]


def headline(metrics: Metrics, protocol: str) -> str:
    """Base -> Reranked and the ceiling, in one line."""
    start = key_of("f1@", protocol)
    ranks = [name.removeprefix(start) for name in metrics if name.startswith(start)]
    parts = []
    for name in [*COMPARED, *(f"f1@{rank}" for rank in ranks if rank.isdecimal())]:
        key = key_of(name, protocol)
        gain = f"{GAIN}{key}"
        sure = f"p {metrics[f'{gain}/p']:.4f}"
        if f"{gain}/low" in metrics:
            sure = f"95 % {metrics[f'{gain}/low']:+.4f} to {metrics[f'{gain}/high']:+.4f}, {sure}"
        values = f"{metrics[BASE + key]:.4f} -> {metrics[key]:.4f} ({metrics[gain]:+.4f}; {sure})"
        parts.append(f"{name.replace('recall', 'R').upper()} {values}")
    return (
        f"Base -> Reranked: {'; '.join(parts)}. Prefetch ceiling: {metrics[key_of('ceiling', protocol)]:.4f}"
        ", the share of the cited papers among the reranked candidates: what a perfect reranker would reach."
    )


def report_parts(metrics: Metrics, lines: Sequence[str], scores: Path) -> list[str]:
    """Markdown: base and reranked side by side, by depth, and the times; lines: of the protocol."""
    test = (
        "Differences: intervals as above, p of a two-sided randomisation test that swaps the two rankings of "
        "a citing paper."
    )
    fused = "Ranked by the reranker's score alone; ties keep the prefetcher's order."
    if metrics["fuse"] != "none":
        what = "reciprocal ranks" if metrics["fuse"] == "rank" else "z-scores"
        fused = (
            f"Ranked by a weighted sum of the {what} of both stages: "
            f"{metrics['weight']} the reranker's, the rest the prefetcher's (benchmark.weight)."
        )
    *general, own = lines
    parts = ["## Protocol", "\n".join(f"- {line}" for line in [*general, test, own, fused])]
    for protocol in protocols_in(metrics):
        head, *rows = stage_rows(metrics, protocol, interval=True)
        curve = depths_of(metrics, protocol)
        depth_rows = aligned([list(curve), *([of[key] for of in curve.values()] for key in OF_DEPTH)])
        parts += [
            *(f"## Results, {protocol}", pool_text(metrics, protocol), headline(metrics, protocol)),
            *(markdown_table(head, rows), *_groups(metrics, protocol)),
            "### By the number of reranked candidates",
            markdown_table(["reranked candidates", *OF_DEPTH.values()], depth_rows),
        ]
    pairs, new = int(metrics["pairs"]), int(metrics["pairs_new"])
    when = "all of them now" if new == pairs else f"{new:,} of them now, the others before"
    seconds = key_of("seconds_per_query", protocols_in(metrics)[0])
    costs = (
        f"{index_text(metrics)} Prefetching: {1000 * metrics[BASE + seconds]:.3f} ms a query, in batches. "
        f"Reranking: {metrics['pairs_per_second']:,.1f} pairs a second, measured when the {pairs:,} pairs "
        f"were scored ({when}; `{scores}`). Both: {metrics[seconds]:.3f} s a query. "
        f"{metrics['processors']} processors."
    )
    return [*parts, f"![R@10 by reranked candidates]({PLOT})", "## Time and size", costs]


def _groups(metrics: Metrics, protocol: str) -> list[str]:
    """Base and reranked of each group of queries."""
    groups = [group for group in GROUPS[protocol] if group and group != protocol]
    groups = [group for group in groups if metrics.get(f"{group}/queries")]
    pairs = [(measure, stage) for measure in COMPARED for stage in (BASE, "")]
    head = ["queries", "", *(f"{measure} {'base' if stage else 'reranked'}" for measure, stage in pairs)]
    rows = [
        [
            *(group, f"{metrics[f'{group}/queries']:,}"),
            *(cell(metrics, f"{stage}{group}/{measure}", True) for measure, stage in pairs),
        ]
        for group in groups
    ]
    return [markdown_table(head, rows)] if rows else []
