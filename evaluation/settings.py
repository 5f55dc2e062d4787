"""Settings of the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import citerec.rerank.settings  # noqa: F401  (schema of scoring)
from citerec.base.errors import InputError
from citerec.base.settings import Settings, cache_setting, check_count, register, setting
from citerec.retrieval.settings import recall_measures

PROTOCOLS = TRANSDUCTIVE, INDUCTIVE, DRAFT = "transductive", "inductive", "draft"


@dataclass(frozen=True)
class ContextSettings(Settings):
    """Queries are the contexts of a split; all candidates except the citing paper are ranked."""

    where: ClassVar[str] = "benchmark"

    cutoffs: tuple[int, ...] = setting((1, 10, 20, 50, 100, 200, 500, 1000, 2000), least=1, filled=True)
    """cutoffs k of recall@k, by default those of Gu et al. 2022, table 2; MRR is cut off at the largest"""
    f1: tuple[int, ...] = setting((), least=1)
    """cutoffs k of precision@k and f1@k, for queries with several relevant papers; adds MAP"""
    batch: int = setting(2048, least=1)
    """queries searched together; memory grows with batch * largest cutoff"""
    protocols: tuple[str, ...] = setting((TRANSDUCTIVE,), choices=PROTOCOLS, filled=True)
    """transductive (all queries and candidates) | inductive (only those unseen in training) | draft (all;
    the citing paper's other citations are known)"""
    draft: bool = False
    """also evaluate the draft protocol"""
    queries: int | None = setting(None, least=1)
    """size of a random sample of the queries; null: all"""
    run_depth: int | None = setting(100)
    """papers per query in run files; null: all retrieved; 0: no run files"""
    seed: int = 0
    """random seed of samples and confidence intervals"""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "cutoffs", tuple(sorted({*self.cutoffs, *self.f1})))
        object.__setattr__(self, "f1", tuple(sorted(set(self.f1))))
        if self.draft and DRAFT not in self.protocols:
            object.__setattr__(self, "protocols", (*self.protocols, DRAFT))


@dataclass(frozen=True)
class PrefetchSettings(ContextSettings):
    protocols: tuple[str, ...] = setting((TRANSDUCTIVE, INDUCTIVE), choices=PROTOCOLS, filled=True)


@dataclass(frozen=True)
class PipelineSettings(ContextSettings):
    """A retriever, then a reranker of its top candidates."""

    reranker: str | None = None
    """folder of a trained reranker, or whatever else rerank.cross_encoder.reranker.Reranker.open accepts"""
    candidates: Any = 100
    """candidates to rerank per query, or all; the rest follow in their original order"""
    scoring: Any = None
    """how pairs are scored, a rerank.settings.ScoringSettings; null: the defaults"""
    fuse: str = setting("none", choices=("none", "score"))
    """none (reranker only) | score (weighted sum of the z-scores of reranker and retriever)"""
    weight: Any = "tuned"
    """weight of the reranker in the fusion: tuned (on validation), or 0 to 1"""
    measure: Any = "recall@10"
    """measure to tune the weight for: recall@k, or a list to average"""
    validation_queries: int = setting(500, least=1)
    """validation queries to tune the weight on"""
    depths: tuple[int, ...] = setting((10, 20, 50, 100, 200, 500, 1000, 2000), least=1)
    """smaller numbers of candidates to report as well, at no extra cost"""
    scores_dir: str = cache_setting("pair-scores")
    """cache of pair scores, shared by all evaluations"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cutoffs", (*self.cutoffs, 10))  # stages are compared by recall@10
        super().__post_init__()
        if self.candidates != "all":
            check_count("candidates", self.candidates)
        is_number = type(self.weight) in (int, float)
        if self.weight != "tuned" and not (is_number and 0 <= float(self.weight) <= 1):
            raise InputError(f"benchmark.weight={self.weight}: choose tuned, or a number from 0 to 1")
        assert self.tuned_cutoffs  # raises InputError for an unknown measure

    @property
    def tuned_cutoffs(self) -> list[int]:
        """Cutoffs k of the recall@k that the weight is tuned for."""
        return recall_measures(self.measure, "benchmark.measure")[1]


@dataclass(frozen=True)
class PoolSettings(Settings):
    """Queries are papers, each with a given pool of candidates."""

    where: ClassVar[str] = "benchmark"

    cache_dir: str = cache_setting()
    """cache for prepared and downloaded data"""
    index_dir: str | None = None
    """folder of the retriever's index: loaded if present, else built and saved"""


@dataclass(frozen=True)
class MDCRSettings(PoolSettings):
    """Given pairs in 19 fields, scored by a retriever or read from a file."""

    file: str | None = None
    """mdcr_test.json or a file in that format; null: that of the split, downloaded on first use"""
    scores_file: str | None = None
    """pair scores, {"QUERY_CANDIDATE": score}; null: scored by a retriever, which writes such a file"""
    texts: str | None = None
    """titles and abstracts in JSON lines, of the papers in `file`; null: downloaded"""
    split: str = setting("test", choices=("val", "test"))
    """MDCR's own split: val | test"""


@dataclass(frozen=True)
class CSFCubeSettings(PoolSettings):
    """Candidate pools with relevance grades per facet."""

    dir: str | None = None
    """folder of the collection; null: downloaded on first use"""
    ranked_dir: str | None = None
    """folder of test-pid2pool-csfcube-NAME-FACET-ranked.json files; null: ranked by a retriever, which
    writes them"""
    experiment_name: str | None = None
    """NAME in these file names; null: the retriever's name"""
    query: str = setting("whole", choices=("whole", "facet"))
    """query text for the retriever: whole (abstract) | facet (its sentences)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranked_dir is not None and self.experiment_name is None:
            raise InputError(
                "ranked_dir needs experiment_name=NAME, as in its files "
                "test-pid2pool-csfcube-NAME-FACET-ranked.json"
            )


@dataclass(frozen=True)
class SciDocsSettings(PoolSettings):
    """Papers cited, co-cited, co-viewed or co-read, scored by a retriever or embeddings."""

    dir: str | None = None
    """folder of the data (cite/test.qrel etc.); null: downloaded on first use"""
    embeddings_file: str | None = None
    """JSON lines of paper_id and embedding, compared by Euclidean distance"""
    split: str = setting("test", choices=("val", "test"))


@dataclass(frozen=True)
class SamplingRules(Settings):
    """Requirements for queries and candidates, which all have a title and a year."""

    where: ClassVar[str] = "benchmark.rules"

    year: int | None = None
    """year of the queries and latest year of candidates; null: any, with candidates no later than the
    query"""
    min_abstract: int = 30
    """minimum characters of an abstract"""
    min_citations: int = 3
    """minimum citations of a candidate"""
    min_cited: int = setting(1, least=1)
    """minimum candidates that a query cites"""
    queries_file: str | None = None
    """file of query ids by split (datasets.citations.queries): test, and val for tuning"""


@dataclass(frozen=True)
class Tuning(Settings):
    """Grid search for BM25's parameters by MAP on a validation sample, in pools of the test's size, each of
    which has its own parameters (as in the paper)."""

    where: ClassVar[str] = "benchmark.tune"

    k1: tuple[float, ...] = setting((0.9, 1.2, 1.6, 2.0, 3.0), filled=True)
    """values to try"""
    b: tuple[float, ...] = setting((0.3, 0.5, 0.75, 0.9), filled=True)
    """values to try"""
    queries: int = setting(200, least=1)
    """validation queries, per field if there are fields"""


@dataclass(frozen=True)
class SampledSettings(PoolSettings):
    """Queries are papers, by title and abstract, each searched in random pools."""

    papers: Any = None
    """files of papers"""
    distractors: Any = None
    """files of papers of any year, without citations, to enlarge the pools"""
    queries: int | None = setting(None, least=1)
    """size of a random sample of the queries; null: all"""
    rules: SamplingRules = field(default_factory=SamplingRules)
    tune: Tuning | None = field(default_factory=Tuning)
    """grid search for BM25's parameters by MAP on a validation sample; null: retriever.k1 and .b"""
    samplings: int = setting(3, least=1)
    """random pools to draw and average over"""
    depth: int = setting(500, least=1)
    """papers retrieved per query"""
    seed: int = 0
    """random seed"""


@dataclass(frozen=True)
class DatasetLevelSettings(SampledSettings):
    sizes: tuple[int, ...] = setting((200_000, 500_000, 1_000_000, 2_000_000), least=1, filled=True)
    """pool sizes, in papers"""


@dataclass(frozen=True)
class FieldLevelSettings(SampledSettings):
    size: int = setting(100_000, least=1)
    """papers in a pool, or all if there are fewer"""
    fields: tuple[str, ...] | None = setting(None, filled=True)
    """fields to evaluate; null: all with at least min_queries queries"""
    min_queries: int = setting(10, least=1)
    """minimum queries per field"""


for name, kind, target in (
    ("prefetch", PrefetchSettings, "contexts.prefetch.Prefetch"),
    ("pipeline", PipelineSettings, "contexts.pipeline.Pipeline"),
    ("rerank", PipelineSettings, "contexts.pipeline.Reranking"),
    ("global_prefetch", ContextSettings, "papers.reranking.GlobalPrefetch"),
    ("global_rerank", PipelineSettings, "papers.reranking.GlobalReranking"),
    ("mdcr", MDCRSettings, "papers.mdcr.MDCR"),
    ("csfcube", CSFCubeSettings, "papers.csfcube.CSFCube"),
    ("scidocs", SciDocsSettings, "papers.scidocs.SciDocs"),
    ("dataset_level", DatasetLevelSettings, "papers.sampled.DatasetLevel"),
    ("field_level", FieldLevelSettings, "papers.sampled.FieldLevel"),
):
    register(name, kind, target=f"citerec.evaluation.benchmarks.{target}")

READERS = {
    "retriever": ("index", "encoder", "embeddings"),
    "benchmark": ("scores_file", "ranked_dir", "experiment_name", "embeddings_file", "drafts"),
}
"""Options of `citerec evaluate` that only some retrievers or benchmarks read."""
