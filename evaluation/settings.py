"""Settings of benchmarks: over the contexts of a corpus, in two stages, and of sampled queries and pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from datasets.configuration import read_settings
from datasets.errors import InputError
from datasets.settings import Settings, check_count, register, setting
from rerank.settings import ScoringSettings
from retrieval.settings import recall_measures

PROTOCOLS = TRANSDUCTIVE, INDUCTIVE, DRAFT = "transductive", "inductive", "draft"


@dataclass(frozen=True)
class ContextSettings(Settings):
    """Contexts of a split are queries; all candidates but the citing paper are ranked."""

    where: ClassVar[str] = "benchmark"

    cutoffs: tuple[int, ...] = (1, 10, 20, 50, 100, 200, 500, 1000, 2000)
    """ranks k of recall@k, here those of Gu et al. 2022, table 2; MRR is of as many as the largest"""
    f1: tuple[int, ...] = ()
    """ranks k of precision@k and f1@k, of queries with several relevant papers; these have MAP too"""
    batch: int = setting(2048, least=1)
    """queries searched at a time; memory grows with batch * the largest cutoff"""
    protocols: tuple[str, ...] = (TRANSDUCTIVE,)
    """transductive: all queries and candidates; inductive: those that training knows nothing of; draft:
    all, and what the citing paper cites at other places is known"""
    draft: bool = False
    """also by the protocol draft"""
    queries: int | None = setting(None, least=1)
    """size of a sample of queries; null: all"""
    run_depth: int | None = setting(100)
    """papers of each query in run files; null: all that were retrieved; 0: no such file"""
    seed: int = 0
    """of samples and of the confidence intervals"""

    def __post_init__(self) -> None:
        ranks = [*self.cutoffs, *self.f1]
        if not ranks:
            raise InputError("benchmark.cutoffs: name the ranks k of recall@k, as [10,100]")
        for name in ("cutoffs", "f1"):
            for rank in getattr(self, name):
                check_count(f"benchmark.{name}", rank, 1)
        super().__post_init__()
        object.__setattr__(self, "cutoffs", tuple(sorted(set(ranks))))
        object.__setattr__(self, "f1", tuple(sorted(set(self.f1))))
        if self.draft and DRAFT not in self.protocols:
            object.__setattr__(self, "protocols", (*self.protocols, DRAFT))
        if not self.protocols or not set(self.protocols) <= set(PROTOCOLS):
            raise InputError(
                f"benchmark.protocols: {list(self.protocols)} is no list of {', '.join(PROTOCOLS)}"
            )


@dataclass(frozen=True)
class PrefetchSettings(ContextSettings):
    protocols: tuple[str, ...] = (TRANSDUCTIVE, INDUCTIVE)


@dataclass(frozen=True)
class RecommendSettings(ContextSettings):
    """A library answers, as it answers people."""

    library: str | None = None
    """folder that recommend.py build made"""
    reranker: str | None = None
    """a cross-encoder that reads the first papers again; null: none"""
    cutoffs: tuple[int, ...] = (1, 10, 20, 50, 100)
    batch: int = setting(256, least=1)


@dataclass(frozen=True)
class PipelineSettings(ContextSettings):
    """A retriever, then a reranker of its first candidates."""

    reranker: str | None = None
    """a folder that training wrote, or what else rerank.reranker.Reranker.open takes"""
    candidates: Any = 100
    """papers of each query that are reranked, or `all`; the others keep their order behind them"""
    scoring: Any = None
    """how pairs are scored: rerank.settings.ScoringSettings, or its options"""
    fuse: str = setting("none", choices=("none", "score", "rank"))
    """rank by the reranker alone, or by its scores or ranks fused with the retriever's"""
    weight: Any = "tuned"
    """of the reranker where it is fused: tuned on validation, or 0..1"""
    measure: Any = "recall@10"
    """what the weight is tuned for: recall@k, or the mean of several"""
    validation_queries: int = setting(500, least=1)
    """queries of the validation split that the weight is tuned on"""
    depths: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000, 2000)
    """smaller numbers of candidates that are reported too: their scores are known anyway"""
    scores_dir: str = ".cache/pair-scores"
    """scores of pairs, kept for all evaluations"""
    chunk: int = setting(512, least=1)
    """pairs that are scored together; more keep a fast GPU busy"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cutoffs", (*self.cutoffs, 10))  # stages are compared by recall@10
        super().__post_init__()
        if self.candidates != "all":
            check_count("candidates", self.candidates, 1)
        for depth in self.depths:
            check_count("benchmark.depths", depth, 1)
        is_number = type(self.weight) in (int, float)
        if self.weight != "tuned" and not (is_number and 0 <= float(self.weight) <= 1):
            raise InputError(f"benchmark.weight={self.weight}: choose tuned, or a number from 0 to 1")
        assert self.tuned_cutoffs
        if not isinstance(self.scoring, ScoringSettings):
            object.__setattr__(self, "scoring", read_settings(ScoringSettings, self.scoring or {}))

    @property
    def tuned_cutoffs(self) -> list[int]:
        """The k of the recalls that the weight is tuned for."""
        return recall_measures(self.measure, "benchmark.measure")[1]


@dataclass(frozen=True)
class GlobalRerankSettings(PipelineSettings):
    query_tokens: int | None = None
    """tokens of a pair that the query gets, the candidate the others (rerank.pairs); null: as trained"""


@dataclass(frozen=True)
class SamplingRules(Settings):
    """Which papers are queries and candidates; all have a title and a year."""

    where: ClassVar[str] = "benchmark.rules"

    year: int | None = None
    """of the queries, and the latest of candidates; null: any, and a query finds nothing later than itself"""
    min_abstract: int = 30
    """characters"""
    min_citations: int = 3
    """how often a paper is cited, at least"""
    min_cited: int = setting(1, least=1)
    """candidates that a query cites, at least"""
    leave_out: Any = None
    """ids that are not queries, as those a model was trained on, or a file of ids, one a line"""
    queries_file: str | None = None
    """only the papers of its splits are queries (datasets.citations.queries): test, and val to tune by"""


@dataclass(frozen=True)
class Tuning(Settings):
    """The grid of BM25's parameters, and the validation sample that chooses from it by MAP."""

    where: ClassVar[str] = "benchmark.tune"

    k1: tuple[float, ...] = (0.9, 1.2, 1.6, 2.0, 3.0)
    """values to try"""
    b: tuple[float, ...] = (0.3, 0.5, 0.75, 0.9)
    """values to try"""
    queries: int = setting(200, least=1)
    """validation queries, of each field if there are fields"""
    size: int | None = setting(None, least=1)
    """papers of a validation pool; null: as the smallest test pool, or more where the queries cite more"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.k1 or not self.b:
            raise InputError("benchmark.tune: k1 and b must be lists of values to try, or tune null")


register("prefetch", PrefetchSettings, target="evaluation.prefetch.Prefetch")
register("recommend", RecommendSettings, target="evaluation.benchmarks.recommend.Recommend")
register("pipeline", PipelineSettings, target="evaluation.pipeline.Pipeline")
register("rerank", PipelineSettings, target="evaluation.pipeline.Reranking")
_GLOBAL = "evaluation.benchmarks.global_reranking"
register("global_prefetch", ContextSettings, target=f"{_GLOBAL}.GlobalPrefetch")
register("global_rerank", GlobalRerankSettings, target=f"{_GLOBAL}.GlobalReranking")
register("sampling_rules", SamplingRules, target="evaluation.settings.SamplingRules")
register("tuning", Tuning, target="evaluation.settings.Tuning")
