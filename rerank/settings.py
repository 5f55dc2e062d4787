"""Settings of rerankers: how pairs are made, trained on and scored, and how a prefetcher is distilled from
one.

The options of conf/model/scibert_reranker.yaml, conf/model/distil.yaml and conf/evaluate.yaml (scoring).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from math import inf
from typing import Any, ClassVar

from datasets.configuration import read_settings
from datasets.errors import InputError
from datasets.settings import Settings, register, setting
from hatten.settings import EncoderTraining
from training.settings import FineTuningSettings, RateSettings, monitored

LEAST_TOKENS, LEAST_SIDE = 16, 8
"""Tokens of a pair, and of a side that has a budget of its own, at the least."""


@dataclass(frozen=True)
class PairSettings(Settings):
    """What a pair is made of, and what is cut when it is too long.

    The shares are relative to each other. Query and candidate divide the tokens first, then citing text and
    context divide those of the query; what one does not need goes to the other. The target marker is always
    kept.
    """

    where: ClassVar[str] = "model.pairs"
    max_tokens: int = setting(512, least=LEAST_TOKENS)
    """tokens of a pair, special ones included"""
    citing: float = setting(1.0, below=inf)
    """share of the citing paper's title and abstract"""
    context: float = setting(1.0, below=inf)
    """share of the context; 0: it is cut first, as in the reference, but for its target marker"""
    candidate: float = setting(2.0, above=0, below=inf)
    """share of the candidate's title and abstract"""
    citing_words: int | None = setting(179)
    """words read of the citing title and abstract (the reference: 0.35 of 512); null: all"""
    citing_abstract: bool = True
    """read the citing paper's abstract after its title"""
    cut: str = setting("both", choices=("both", "end"))
    """which end of a context is cut: both, around the target marker | end (as the reference)"""
    others: str = setting("keep", choices=("keep", "drop"))
    """markers of other citations in a context: keep (as the reference) | drop"""
    contexts: int = setting(0, most=2)
    """training contexts that cite the candidate, the most like the query, which are read behind it; never of
    the query's own citing paper"""
    cited: float = setting(1.5, above=0, below=inf)
    """share of each of them within the candidate's side, where `candidate` is that of title and abstract"""
    query: str = setting("context", choices=("context", "paper"))
    """what the query is: the context, behind the citing text | paper: the citing text alone"""
    query_tokens: int | None = None
    """tokens of the query, its [CLS] and [SEP] included; the candidate has the rest of `max_tokens`, and
    neither lends to the other; null: they divide `max_tokens` by their shares"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.citing + self.context == 0:
            raise InputError("model.pairs: citing text or context must have a share above 0")
        if self.query == "paper" and (self.citing == 0 or self.citing_words == 0):
            raise InputError(
                "model.pairs.query=paper: the citing text is the query: it needs a share and words"
            )
        tokens = self.query_tokens
        if tokens is not None and not LEAST_SIDE <= tokens <= self.max_tokens - LEAST_SIDE:
            raise InputError(
                f"model.pairs.query_tokens={tokens}: must be null or a whole number that leaves query and "
                f"candidate at least {LEAST_SIDE} of max_tokens={self.max_tokens}"
            )

    def plain(self) -> dict[str, Any]:
        """As saved with a reranker and hashed for the scores of its pairs: the same for the same pairs,
        always.

        What came after the first rerankers is left out at its default; the former option `candidate_words`
        is written as the null that it was.
        """
        values = asdict(self)
        defaults = {part.name: part.default for part in fields(self)}
        for name in ("query", "query_tokens", "contexts", "cited"):
            if values[name] == defaults[name]:
                del values[name]
        names = list(values)
        names.insert(names.index("cut"), "candidate_words")
        return {name: values.get(name) for name in names}

    @classmethod
    def read(cls, saved: dict[str, Any]) -> PairSettings:
        """What `plain` gave; InputError if it is anything else."""
        known = {name: value for name, value in saved.items() if (name, value) != ("candidate_words", None)}
        return read_settings(cls, known, "pairs")

    @classmethod
    def reference(cls, max_tokens: int = 512) -> PairSettings:
        """As the published code reads pairs, except that the target marker is never cut."""
        words = int(0.35 * max_tokens)
        return cls(max_tokens, citing=1.0, context=0.0, candidate=1.0, citing_words=words, cut="end")


@dataclass(frozen=True)
class ListLossSettings(Settings):
    """What is minimised over the list of a query (rerank.losses)."""

    where: ClassVar[str] = "model.loss"
    name: str = setting("hinge", choices=("hinge", "pointwise", "listwise"))
    """hinge (of sigmoid scores; Gu et al. 2022) | pointwise (Nogueira et al. 2020) | listwise"""
    margin: float = 0.1
    """of hinge"""
    temperature: float = setting(1.0, above=0)
    """of listwise"""


@dataclass(frozen=True)
class StepSettings(Settings):
    """What a step of the optimiser is made of."""

    where: ClassVar[str] = "model.batch"
    queries: int = setting(1, least=1)
    """of a backward pass, over all processes"""
    accumulate: int = setting(1, least=1)
    """backward passes of a step"""
    tokens: int = setting(4096, least=1)
    """of pairs of about equal length that go through the net together, after padding"""

    def check_divisible(self, processes: int) -> None:
        """InputError where a backward pass cannot be divided among processes."""
        if self.queries % processes:
            raise InputError(
                f"model.batch.queries={self.queries}: cannot be divided among {processes} processes; "
                f"set it to a multiple of {processes}"
            )


@dataclass(frozen=True)
class NegativesSettings(Settings):
    """Which prefetched papers are a query's negatives: drawn uniformly from ranks skip + 1 to depth."""

    where: ClassVar[str] = "model.negatives"
    count: int = setting(62, least=1)
    """papers a query; fewer where fewer are left to draw from"""
    depth: int = setting(2000, least=1)
    """papers prefetched for a query"""
    skip: int = 0
    """of those, the best that are left out"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.skip >= self.depth:
            raise InputError(
                f"model.negatives.skip={self.skip}: nothing is left of depth={self.depth}; skip fewer"
            )


F1_AT = 20
"""The rank of F1: that of Nogueira et al. 2020."""


@dataclass(frozen=True)
class RerankingValidationSettings(Settings):
    """What is measured, how often, and what follows from it."""

    where: ClassVar[str] = "model.validation"
    split: str = "val"
    """the split that is validated on"""
    queries: int = 500
    """a sample where there are more; 0: no validation"""
    candidates: int = setting(100, least=1)
    """papers prefetched and reranked for a query; a cited paper that is not among them is missed"""
    every: int = setting(1000, least=1)
    """steps between two validations"""
    monitor: str = "recall@10"
    """the weights that are best in this are saved"""
    patience: int = 3
    """validations in a row without a better one after which training stops; 0: never"""

    def __post_init__(self) -> None:
        super().__post_init__()
        monitored(self.monitor, self.candidates, [f"f1@{F1_AT}"] if self.candidates >= F1_AT else [])


@dataclass(frozen=True)
class RerankerSettings(FineTuningSettings):
    """model=scibert_reranker"""

    train: str = "rerank.train.train"
    """the function that trains"""
    epochs: int = setting(1, least=1)
    """passes over the training queries"""
    queries_per_epoch: int = setting(10_000, least=1)
    """training queries drawn for an epoch; all where there are fewer"""
    dropout: float = setting(0.1, below=1)
    """in place of what the transformer was pretrained with; on a CPU, drawing it takes time"""
    head: str = setting("sigmoid", choices=("sigmoid", "linear"))
    """sigmoid: sigmoid(linear(relu(CLS))) | linear: linear(CLS)"""
    layers: int | None = setting(None, least=1)
    """of the transformer that are kept, evenly spaced from the first to the last; null: all"""
    ema: float = setting(0.0, below=1)
    """decay of the moving average of the weights, which is validated and saved; 0: the weights"""
    workers: int = 0
    """processes that read batches ahead"""
    lists: str = setting("cited", choices=("cited", "top"))
    """cited: a cited paper of each query and drawn negatives | top: the first `negatives.depth` papers as
    they were found, cited or not (Nogueira et al. 2020)"""
    pairs: PairSettings = field(default_factory=PairSettings)
    loss: ListLossSettings = field(default_factory=ListLossSettings)
    distil: DistilLossSettings = field(default_factory=lambda: DistilLossSettings(temperature=1.0))
    """where there is teacher=FOLDER"""
    batch: StepSettings = field(default_factory=StepSettings)
    negatives: NegativesSettings = field(default_factory=NegativesSettings)
    validation: RerankingValidationSettings = field(default_factory=RerankingValidationSettings)
    schedule: RateSettings = field(default_factory=RateSettings)
    optimizer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lists == "top" and self.loss.name != "pointwise":
            raise InputError(
                f"model.lists=top: model.loss.name={self.loss.name} takes lists of one cited paper, these "
                "have any number; set model.loss.name=pointwise"
            )


@dataclass(frozen=True)
class ScoringSettings(Settings):
    """How pairs are scored."""

    where: ClassVar[str] = "scoring"
    backend: str = setting("auto", choices=("auto", "torch", "openvino", "fastest"))
    """torch | openvino (CPUs; the extra int8) | auto: openvino for int8, else torch | fastest: what a quick
    measurement on first use says, of all precisions for precision=auto (rerank.fastest)"""
    precision: str = setting("auto", choices=("auto", "float32", "bfloat16", "int8"))
    """float32 | bfloat16 | int8 | auto: bfloat16 where the processor multiplies it faster, else float32"""
    tokens: int = setting(4096, least=1)
    """of a batch, after padding"""
    compile: bool = False
    """let torch.compile make the net faster; it takes a minute or two to begin with"""
    threads: int = 0
    """processor cores to use; 0: as many as torch takes"""
    encoder: str | None = None
    """folder with configuration and tokeniser for a published checkpoint (rerank.published); null: SciBERT"""
    query_tokens: int | None = None
    """in place of the pairs.query_tokens that a reranker was trained with; null: as it was trained"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compile and (self.backend in ("openvino", "fastest") or self.precision == "int8"):
            raise InputError("scoring.compile=true: only with scoring.backend=torch, and not for int8")
        if self.backend == "torch" and self.precision == "int8":
            raise InputError("scoring.precision=int8 needs scoring.backend=openvino")


@dataclass(frozen=True)
class TeacherSettings(Settings):
    """Which training queries the teacher scores papers for."""

    where: ClassVar[str] = "model.teacher"
    queries: int = setting(10_000, least=1)
    """a sample where there are more; the student is trained on these alone"""
    chunk: int = setting(512, least=1)
    """pairs scored together"""


@dataclass(frozen=True)
class DistilLossSettings(Settings):
    """How the student's cosines, or the logits of a reranker, are to follow the teacher's logits."""

    where: ClassVar[str] = "model.distil"
    name: str = setting("kl", choices=("kl", "margin_mse"))
    """kl (listwise) | margin_mse"""
    weight: float = setting(0.5, above=0, most=1)
    """of the distillation; the rest is that of the student's own loss (model.loss)"""
    temperature: float = setting(0.05, above=0)
    """what the student says is divided by it"""
    teacher_temperature: float = setting(1.0, above=0)
    """the teacher's logits are divided by it"""


@dataclass(frozen=True)
class DistilSettings(FineTuningSettings, EncoderTraining):
    """model=distil: the settings of an encoder's training, without mining, and the teacher's."""

    train: str = "rerank.distil.train"
    """the function that trains"""
    rounds: int = setting(3, least=1)
    """of training and validation"""
    word_dropout: float = setting(0.3, below=1)
    """of words in HAtten's mean path"""
    teacher: TeacherSettings = field(default_factory=TeacherSettings)
    negatives: NegativesSettings = field(default_factory=lambda: NegativesSettings(15, 100))
    """which candidates the teacher scores, beside the cited papers"""
    distil: DistilLossSettings = field(default_factory=DistilLossSettings)


@dataclass(frozen=True)
class RankerSettings(Settings):
    """How the model of the ranker is fitted."""

    where: ClassVar[str] = "model.ranker"
    kind: str = setting("linear", choices=("linear", "lightgbm"))
    """linear: weights, by the softmax over a list | lightgbm: trees, by lambdarank (the extra trees)"""
    split: str = "val"
    """whose contexts are ranked to learn from; the parts must not have been trained on them"""
    queries: int | None = setting(10_000, least=1)
    """a sample where there are more; null: all"""
    fewer: int = setting(3000, least=1)
    """a sample for the models of corpora without training contexts"""
    foreign: str | None = None
    """checkpoint of a dense model that was trained on another field: how far it is to be trusted here is what
    the model for other fields learns; null: there is no such model"""
    folds: int = setting(3, least=2)
    """parts of the citing papers, each ranked by a model of the others, for the figures in the log"""
    ablate: bool = False
    """also log the figures without each group of features"""
    drop: float = setting(0.0, below=1)
    """share of lists in which a group of features is empty, for each group"""
    l2: float = 1e-3
    """of linear: weight of the sum of squared weights"""
    iterations: int = setting(100, least=1)
    """of linear: steps of Newton's method, at most"""
    trees: int = setting(300, least=1)
    """of lightgbm"""
    leaves: int = setting(31, least=2)
    """of lightgbm: of a tree"""
    rate: float = setting(0.05, above=0)
    """of lightgbm: how much of a tree's answer counts"""


@dataclass(frozen=True)
class RankerTrainingSettings(Settings):
    """model=ranker"""

    where: ClassVar[str] = "model"
    train: str = "rerank.ranker_training.train"
    """the function that trains"""
    ranker: RankerSettings = field(default_factory=RankerSettings)


register("ranker", RankerTrainingSettings)
register("scibert_reranker", RerankerSettings)
register("distil", DistilSettings)
register("scoring", ScoringSettings)
