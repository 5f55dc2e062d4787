"""Settings of cross-encoders and of the learned ranker."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, ClassVar

import msgspec

from citerec.base.errors import InputError
from citerec.base.settings import Settings, register, setting
from citerec.retrieval.settings import Lengths
from citerec.training.settings import (
    FineTuningSettings,
    OptimizerSettings,
    QuerySettings,
    RateSettings,
    check_monitor,
)

MIN_TOKENS = 16
"""Minimum tokens of a pair."""


@dataclass(frozen=True)
class PairSettings(Settings):
    """Composition and truncation of a pair.

    Shares are relative. The tokens are divided between query and candidate, then the query's between citing
    text and context; what one part does not need goes to the other. The target marker is always kept.
    """

    where: ClassVar[str] = "model.pairs"
    max_tokens: int = setting(512, least=MIN_TOKENS)
    """maximum tokens of a pair, including special tokens"""
    citing: float = setting(1.0, below=inf)
    """share of the citing paper's title and abstract"""
    context: float = setting(1.0, below=inf)
    """share of the context; 0: truncated first, as in the reference, except for the target marker"""
    candidate: float = setting(2.0, above=0, below=inf)
    """share of the candidate's title and abstract"""
    citing_words: int | None = setting(179)
    """maximum words of the citing title and abstract (reference: 0.35 of 512); null: all"""
    citing_abstract: bool = True
    """include the citing paper's abstract"""
    truncate: str = setting("both", choices=("both", "end"))
    """truncate a context at: both ends, around the target marker | end (as in the reference)"""
    other_citations: str = setting("keep", choices=("keep", "drop"))
    """markers of other citations in a context: keep (as in the reference) | drop"""
    query: str = setting("context", choices=("context", "paper"))
    """query: context (the citing text, then the context) | paper (the citing text only)"""
    layout: str = setting("shares", choices=("shares", "lengths"))
    """shares (as above) | lengths (as the small networks read them: [MASK] is the citation, the citing title
    follows the context, candidates have names and year, each field has its own length)"""
    lengths: Lengths = field(default_factory=Lengths)
    """layout=lengths: maximum subwords of each field"""

    def __post_init__(self) -> None:
        super().__post_init__()
        longest = 3 + self.lengths.query + self.lengths.paper
        if self.layout == "lengths" and longest > self.max_tokens:
            raise InputError(
                f"model.pairs.layout=lengths: model.pairs.lengths give pairs of up to {longest} tokens; "
                f"set model.pairs.max_tokens={longest} or shorter lengths"
            )
        if (self.citing if self.query == "paper" else self.citing + self.context) == 0:
            raise InputError("model.pairs: citing text or context must have a share above 0")

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> PairSettings:
        """Read the values of a saved reranker; InputError for anything else."""
        if unknown := saved.keys() - {part.name for part in fields(cls)}:
            raise InputError(f"pairs.{min(unknown)}: there is no such option")
        try:
            return msgspec.convert(saved, cls)
        except msgspec.ValidationError as error:
            raise InputError(f"pairs: {error}") from None

    @classmethod
    def reference(cls, max_tokens: int = 512) -> PairSettings:
        """Return the published code's settings, except that the target marker is never cut."""
        words = int(0.35 * max_tokens)
        return cls(max_tokens, citing=1.0, context=0.0, candidate=1.0, citing_words=words, truncate="end")


@dataclass(frozen=True)
class ListLossSettings(Settings):
    """Training loss over the list of a query (rerank.cross_encoder.train)."""

    where: ClassVar[str] = "model.loss"
    name: str = setting("hinge", choices=("hinge", "pointwise", "listwise"))
    """hinge (of sigmoid scores; Gu et al. 2022) | pointwise (Nogueira et al. 2020) | listwise"""
    margin: float = 0.1
    """hinge: margin"""
    temperature: float = setting(1.0, above=0)
    """listwise: temperature"""


@dataclass(frozen=True)
class StepSettings(QuerySettings):
    """Composition of an optimiser step."""

    where: ClassVar[str] = "model.batch"
    queries: int = setting(1, least=1)
    """queries per backward pass, over all processes"""
    accumulate: int = setting(1, least=1)
    """backward passes per optimiser step"""
    tokens: int | None = setting(None, least=1)
    """maximum padded tokens of a forward pass, over pairs of similar length; null: 4,096 on a CPU, on a GPU
    by its memory"""
    kept: int = setting(4, least=1)
    """forward passes whose activations are kept for the backward pass; those of the others are computed
    again, so that memory does not grow with the length of a list"""

    def check_divisible(self, processes: int) -> None:
        """Raise InputError if the queries of a backward pass cannot be divided among the processes."""
        if self.queries % processes:
            raise InputError(
                f"model.batch.queries={self.queries}: cannot be divided among {processes} processes; "
                f"set it to a multiple of {processes}"
            )


@dataclass(frozen=True)
class NegativesSettings(Settings):
    """Negatives of a query: sampled from the first `depth` prefetched papers (with model.batch.shares, those
    of the query's own folder) and from the siblings of the cited paper."""

    where: ClassVar[str] = "model.negatives"
    count: int = setting(62, least=1)
    """maximum negatives per query"""
    depth: int = setting(2000, least=1)
    """papers to prefetch per query"""
    skew: float = 0.0
    """rank r is sampled with a weight of 1 / r^skew; 0: all ranks alike"""
    siblings: int = 0
    """number of further negatives, which the citing paper cites in other passages"""
    sibling_lists: float = setting(0.0, most=1)
    """share of the lists whose negatives are all siblings, as far as there are any"""

    @property
    def has_siblings(self) -> bool:
        return self.siblings > 0 or self.sibling_lists > 0


@dataclass(frozen=True)
class RerankingValidationSettings(Settings):
    """Validation and early stopping."""

    where: ClassVar[str] = "model.validation"
    split: str = "val"
    """split to validate on"""
    queries: int = 500
    """maximum queries, sampled if there are more; 0: no validation"""
    candidates: int = setting(100, least=1)
    """candidates to prefetch and rerank per query; cited papers beyond them count as missed"""
    every: int = setting(1000, least=1)
    """steps between validations"""
    monitor: str = "recall@10"
    """measure that selects the weights to save"""
    patience: int = 3
    """validations without improvement before training stops; 0: never"""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "monitor", check_monitor(self.monitor, self.candidates))


@dataclass(frozen=True)
class RerankerSettings(FineTuningSettings):
    """model=scibert_reranker"""

    epochs: int = setting(1, least=1)
    """passes over the training queries"""
    queries_per_epoch: int = setting(10_000, least=1)
    """maximum training queries per epoch, sampled if there are more"""
    dropout: float = setting(0.1, below=1)
    """dropout, replacing the pretrained model's; slow on a CPU"""
    head: str = setting("sigmoid", choices=("sigmoid", "linear"))
    """sigmoid: sigmoid(linear(relu(CLS))) | linear: linear(CLS)"""
    new_tokens: str = setting("copied", choices=("copied", "random"))
    """initial vectors of the added tokens: copied (<cit> from the mask, <sep> from the separator) | random"""
    ema: float = setting(0.0, below=1)
    """decay of the moving average of the weights, used for validation and saving; 0: no averaging"""
    workers: int | None = None
    """data-loader processes; null: none on a CPU, up to 4 with a GPU"""
    lists: str = setting("cited", choices=("cited", "top"))
    """cited (one cited paper per query, and sampled negatives) | top (the top negatives.depth papers as
    retrieved, cited or not, with model.loss.name=pointwise: Nogueira et al. 2020)"""
    pairs: PairSettings = field(default_factory=PairSettings)
    loss: ListLossSettings = field(default_factory=ListLossSettings)
    batch: StepSettings = field(default_factory=StepSettings)
    negatives: NegativesSettings = field(default_factory=NegativesSettings)
    validation: RerankingValidationSettings = field(default_factory=RerankingValidationSettings)
    schedule: RateSettings = field(default_factory=RateSettings)
    optimizer: OptimizerSettings = field(
        default_factory=lambda: OptimizerSettings("adamw", lr=1e-5, weight_decay=0.01)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lists == "top" and self.loss.name != "pointwise":
            raise InputError(
                f"model.lists=top: model.loss.name={self.loss.name} needs exactly one cited paper per list; "
                "set model.loss.name=pointwise"
            )
        if self.lists == "top" and self.negatives.has_siblings:
            raise InputError("model.negatives.siblings: only with model.lists=cited")
        if self.batch.varies_texts and self.pairs.layout != "lengths":
            raise InputError("model.batch.abstracts: needs model.pairs.layout=lengths")


@dataclass(frozen=True)
class ScoringSettings(Settings):
    """Options of scoring pairs."""

    where: ClassVar[str] = "scoring"
    precision: str = setting("auto", choices=("auto", "float32", "bfloat16", "int8", "fastest"))
    """float32 | bfloat16 | int8 (BERTs, by ONNX Runtime on CPUs) | auto (bfloat16 if the hardware is faster
    with it, else float32) | fastest (int8 for a BERT on a CPU, else auto)"""
    tokens: int | None = setting(None, least=1)
    """padded tokens per batch; null: 4,096 on a CPU, on a GPU by its memory"""
    threads: int = 0
    """CPU threads; 0: torch's default"""
    encoder: str | None = None
    """folder with the config and tokeniser of a published checkpoint (rerank.cross_encoder.published); null:
    SciBERT's"""


@dataclass(frozen=True)
class RankerSettings(Settings):
    """model=ranker"""

    where: ClassVar[str] = "model"
    split: str = "val"
    """split to train the ranker on; its retrievers must not have been trained on it. val/2: the half of val
    that did not choose the dense model's round, if that was trained with model.validation.split=val/1"""
    queries: int | None = setting(4000, least=1)
    """maximum queries, sampled if there are more; null: all"""
    folds: int = setting(3, least=2)
    """cross-validation folds over citing papers, for the measures in the log"""
    l2: float = 1e-3
    """L2 penalty"""


register("ranker", RankerSettings)
register("scibert_reranker", RerankerSettings)
register("scoring", ScoringSettings)
