"""Settings of benchmarks: over the contexts of a corpus, in two stages, with given and with sampled pools."""

from __future__ import annotations

from dataclasses import dataclass, field
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
        _check_counts(self, "cutoffs", "f1")
        super().__post_init__()
        object.__setattr__(self, "cutoffs", tuple(sorted(set(ranks))))
        object.__setattr__(self, "f1", tuple(sorted(set(self.f1))))
        if self.draft and DRAFT not in self.protocols:
            object.__setattr__(self, "protocols", (*self.protocols, DRAFT))
        if not self.protocols or not set(self.protocols) <= set(PROTOCOLS):
            raise InputError(
                f"benchmark.protocols: {list(self.protocols)} is no list of {', '.join(PROTOCOLS)}"
            )


def _check_counts(settings: Settings, *names: str) -> None:
    """InputError unless these lists hold whole numbers from 1."""
    for name in names:
        for number in getattr(settings, name):
            check_count(f"benchmark.{name}", number)


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
            check_count("candidates", self.candidates)
        _check_counts(self, "depths")
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
class PoolSettings(Settings):
    """Queries are papers with candidates of their own."""

    where: ClassVar[str] = "benchmark"

    cache_dir: str = ".cache"
    """folder of what is prepared and downloaded once"""
    index_dir: str | None = None
    """folder of the retriever's index: read if it is there, else written"""


@dataclass(frozen=True)
class MDCRSettings(PoolSettings):
    """Scores of given pairs in 19 fields."""

    file: str | None = None
    """mdcr_test.json or another file of that format; null: that of the split, downloaded on first use"""
    scores_file: str | None = None
    """{"QUERY_CANDIDATE": score}; null: a retriever scores, and writes such a file"""
    texts: str | None = None
    """titles and abstracts, JSON lines; null: FILE_data.jsonl beside FILE.json, or downloaded"""
    split: str = setting("test", choices=("val", "test"))
    """which of MDCR's own files: val | test"""


@dataclass(frozen=True)
class CSFCubeSettings(PoolSettings):
    """Pools of candidates graded by facet."""

    dir: str | None = None
    """folder of the collection"""
    ranked_dir: str | None = None
    """folder of test-pid2pool-csfcube-NAME-FACET-ranked.json; null: a retriever ranks, and writes these"""
    experiment_name: str | None = None
    """NAME in the names of these files; null: that of the retriever"""
    query: str = setting("whole", choices=("whole", "facet"))
    """what a retriever is asked by: whole (abstract) | facet (its sentences)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dir is None:
            raise InputError("benchmark=csfcube needs data.dir=FOLDER, that of the collection")
        if self.ranked_dir is not None and self.experiment_name is None:
            raise InputError(
                "ranked_dir needs experiment_name=NAME: of the files "
                "test-pid2pool-csfcube-NAME-FACET-ranked.json in it"
            )


@dataclass(frozen=True)
class SciDocsSettings(PoolSettings):
    """Papers cited, co-cited, viewed or read together; without embeddings and runs, a retriever scores."""

    dir: str | None = None
    """folder of the data (cite/test.qrel and so on); null or `download`: downloaded on first use"""
    embeddings_file: str | None = None
    """JSON lines of paper_id and embedding, compared by Euclidean distance"""
    ranked_dir: str | None = None
    """folder of cite.run, cocite.run, coview.run, coread.run"""
    texts: str | None = None
    """titles and abstracts; null: paper_metadata_view_cite_read.json of the folder"""
    split: str = setting("test", choices=("val", "test"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embeddings_file is not None and self.ranked_dir is not None:
            raise InputError("embeddings_file and ranked_dir: give one of the two")


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


@dataclass(frozen=True)
class SampledSettings(PoolSettings):
    """Papers that cite papers, by title and abstract, in random pools."""

    papers: Any = None
    """files of papers"""
    citations: str | None = None
    """a file of further citations"""
    distractors: Any = None
    """files of papers, of any year and without citations, that pools are grown by"""
    queries: int | None = setting(None, least=1)
    """how many are drawn; null: all"""
    rules: SamplingRules = field(default_factory=SamplingRules)
    tune: Tuning | None = field(default_factory=Tuning)
    """how the parameters of BM25 are chosen, by MAP on a validation sample; null: retriever.k1 and .b"""
    samplings: int = setting(3, least=1)
    """of pools"""
    depth: int = setting(500, least=1)
    """papers retrieved for a query"""
    run_depth: int | None = setting(0)
    """papers of a query in run.trec, of the first sampling; null: all; 0: no such file"""
    seed: int = 0
    """of whatever is drawn"""


@dataclass(frozen=True)
class DatasetLevelSettings(SampledSettings):
    sizes: tuple[int, ...] = (200_000, 500_000, 1_000_000, 2_000_000)
    """papers of the pools"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sizes:
            raise InputError("benchmark.sizes: name the sizes of the pools, as [10000,20000]")
        _check_counts(self, "sizes")


@dataclass(frozen=True)
class FieldLevelSettings(SampledSettings):
    size: int = setting(100_000, least=1)
    """papers of a pool, or all there are"""
    fields: tuple[str, ...] | None = None
    """which fields; null: all with so many queries:"""
    min_queries: int = setting(10, least=1)
    """queries that a field needs"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fields is not None and not self.fields:
            raise InputError("benchmark.fields: name at least one, or null for all")


for name, kind, target in (
    ("prefetch", PrefetchSettings, "prefetch.Prefetch"),
    ("recommend", RecommendSettings, "benchmarks.recommend.Recommend"),
    ("pipeline", PipelineSettings, "pipeline.Pipeline"),
    ("rerank", PipelineSettings, "pipeline.Reranking"),
    ("global_prefetch", ContextSettings, "benchmarks.global_reranking.GlobalPrefetch"),
    ("global_rerank", GlobalRerankSettings, "benchmarks.global_reranking.GlobalReranking"),
    ("mdcr", MDCRSettings, "benchmarks.mdcr.MDCR"),
    ("csfcube", CSFCubeSettings, "benchmarks.csfcube.CSFCube"),
    ("scidocs", SciDocsSettings, "benchmarks.scidocs.SciDocs"),
    ("dataset_level", DatasetLevelSettings, "benchmarks.sampled.DatasetLevel"),
    ("field_level", FieldLevelSettings, "benchmarks.sampled.FieldLevel"),
):
    register(name, kind, target=f"evaluation.{target}")
