"""Settings of encoders trained on citation contexts: model=hatten|static|nnselect|biencoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import citerec.retrieval.settings  # noqa: F401  (schemas of encoder and index)
from citerec.base.errors import InputError
from citerec.base.settings import Settings, check_count, register, setting
from citerec.datasets.records import TRAIN
from citerec.training.settings import (
    FineTuningSettings,
    OptimizerSettings,
    QuerySettings,
    RateSettings,
    check_monitor,
)

HIDDEN_RATIO = 5.12
"""Ratio of the width of the paper's feed-forward layers to its dimension."""


@dataclass(frozen=True)
class EncoderConfig(Settings):
    """Architecture of HAtten, saved with each checkpoint; the defaults are the paper's."""

    where: ClassVar[str] = "model.encoder"
    dim: int = 0
    """dimension of word, paragraph and document vectors; 0: that of the word vectors"""
    heads: int = 0
    """attention heads; 0: the most, up to 8, that divide the dimension"""
    hidden: int = setting(0, least=0)
    """width of the feed-forward layers; 0: 5.12 times the dimension, the paper's 1,024 for 200"""
    layers: int = 1
    """transformer layers per level"""
    max_tokens: int = setting(512, least=1)
    """maximum tokens of a paragraph"""
    max_paragraphs: int = setting(3, least=3)
    """maximum paragraphs of a document: title, abstract, context"""
    paragraph_types: int = setting(100, least=11)
    """size of the paragraph-type embedding table, mostly unused"""
    dropout: float = 0.1
    """dropout after the attention and the feed-forward part of each layer"""
    trainable_vectors: str = setting("none", choices=("none", "all"))
    """word vectors to train: none | all"""
    input_scale: float = 1.0
    """factor on the word vectors before positions are added"""
    initial: str = setting("torch", choices=("torch", "mean"))
    """initial weights: torch (its own) | mean (each level starts as the mean of its tokens:
    HAttenEncoder.start_as_mean)"""
    levels: str = setting("both", choices=("both", "words", "paragraphs"))
    """both | words (a document is the mean of its paragraph vectors) | paragraphs (a paragraph is the mean of
    its word vectors)"""
    pooling: str = setting("attention", choices=("attention", "mean"))
    """pooling of a level: attention (multi-head attention pooling) | mean"""

    def fit(self, dim: int) -> EncoderConfig:
        """Return the architecture for word vectors of a dimension; InputError that names all conflicts.

        >>> small, paper = EncoderConfig().fit(50), EncoderConfig().fit(200)
        >>> (small.heads, small.hidden), (paper.heads, paper.hidden)
        ((5, 256), (8, 1024))
        """
        heads = self.heads or next(heads for heads in range(8, 0, -1) if dim % heads == 0)
        wrong = []
        if self.dim not in (0, dim):
            wrong.append(f"{self.where}.dim={self.dim} is not the {dim} of the word vectors; leave it out")
        if dim % 2:
            wrong.append(f"word vectors of {dim} dimensions cannot take positions, which need an even number")
        if dim % heads:
            fitting = ", ".join(str(count) for count in range(1, 17) if dim % count == 0)
            wrong.append(f"{self.where}.heads={heads} does not divide {dim}; choose from {fitting}")
        if wrong:
            raise InputError("; ".join(wrong))
        return replace(self, dim=dim, heads=heads, hidden=self.hidden or round(HIDDEN_RATIO * dim))


def loss_factory(name: str, **options: Any) -> Callable[[], dict[str, Any]]:
    """Return a default factory for the settings of a loss of hatten.training.losses."""
    return lambda: {"_target_": f"citerec.hatten.training.losses.{name}", **options}


@dataclass(frozen=True)
class EncoderBatchSettings(Settings):
    """Composition of a batch."""

    where: ClassVar[str] = "model.batch"
    queries: int = setting(256, least=1)
    """contexts per batch"""
    mined: int = 1
    """papers per query, drawn from its prefetched candidates"""
    random: int = 3
    """papers per query, drawn from all candidates"""
    contexts_per_paper: int = setting(8, least=1)
    """contexts of one citing paper grouped in a batch; its title and abstract are encoded once"""
    steps_per_round: int = 250
    """batches per round; 0: one pass over the training contexts"""
    splits: tuple[str, ...] = field(default=(TRAIN,), kw_only=True)
    """splits to train on, as far as the data has them (e.g. [train,train_named])"""

    def steps(self, contexts: int) -> int:
        """Number of batches per round, given the number of training contexts."""
        return self.steps_per_round or -(-contexts // self.queries)


@dataclass(frozen=True)
class MiningSettings(Settings):
    """How candidates are prefetched, once per round (hatten.training.mining.Miner)."""

    where: ClassVar[str] = "model.mining"
    depth: int = setting(100, least=1)
    """papers to prefetch per training query"""
    queries: int = setting(50_000, least=1)
    """maximum training queries to prefetch for, sampled if the round has more; the round then trains on
    this sample only"""
    papers: int = 0
    """number of candidates to search, drawn at random; 0: all"""
    first: str = setting("encoder", choices=("encoder", "bm25", "none"))
    """source of the first candidates: encoder (as initialised; a random one finds random papers) |
    bm25 | none"""
    skip: int = 0
    """rounds to train without mined papers at the beginning"""
    positives: bool = False
    """also mine positives among the prefetched papers, by word overlap"""


def mining_factory(**options: Any) -> Callable[[], dict[str, Any]]:
    """Return a default factory for the settings of hatten.training.mining.Miner."""
    return lambda: {"_target_": MINER, **options}


MINER = "citerec.hatten.training.mining.Miner"
MINED = {"options": MiningSettings}
"""Where --help finds what mining's options do."""


@dataclass(frozen=True)
class EncoderValidationSettings(Settings):
    """Validation after each round, with the averaged weights."""

    where: ClassVar[str] = "model.validation"
    split: str = "val"
    """split to validate on; val/1: half of val's citing papers, to train a ranker on the other half, val/2"""
    queries: int = 2000
    """maximum queries, sampled if there are more; 0: no validation"""
    papers: int = 0
    """candidates to search: the cited papers and a random sample of others; 0: all. Recall in a sampled
    pool is higher than over all papers and not comparable to it"""
    depth: int = setting(2000, least=1)
    """papers to rank per query"""
    monitor: str = "recall@10"
    """measure that selects the round whose weights are saved"""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "monitor", check_monitor(self.monitor, self.depth))


@dataclass(frozen=True)
class EncoderRateSettings(RateSettings):
    """Learning-rate schedule."""

    vectors: float = 1.0
    """factor on the learning rate of word vectors"""


@dataclass(frozen=True)
class EncoderTraining(Settings):
    """Settings shared by all encoders."""

    where: ClassVar[str] = "model"
    rounds: int = setting(5, least=1)
    """number of rounds of mining, training and validation"""
    ema: float = setting(0.99, below=1)
    """decay of the moving average of the weights, used for validation, mining and saving; 0: no averaging"""
    restart: bool = False
    """start each round from the averaged weights"""
    workers: int | None = None
    """data-loader processes; null: none on a CPU, up to 4 with a GPU"""
    loss: dict[str, Any] = field(default_factory=loss_factory("InfoNCE"))
    """_target_ and options of a loss: Triplet (margin, positives) or InfoNCE (temperature, correct_rate) of
    citerec.hatten.training.losses, or your own"""
    batch: EncoderBatchSettings = field(default_factory=EncoderBatchSettings)
    validation: EncoderValidationSettings = field(default_factory=EncoderValidationSettings)
    schedule: EncoderRateSettings = field(default_factory=EncoderRateSettings)
    mining: dict[str, Any] = field(default_factory=mining_factory(), metadata=MINED)
    """_target_ and options of the miner: citerec.hatten.training.mining.Miner (depth, queries, papers, first,
    skip, positives) or your own"""
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)

    @property
    def arithmetic(self) -> str:
        """The precision of the encoder's computation."""
        return "float32"

    @property
    def batch_word_dropout(self) -> float:
        """Share of words that batches drop; 0 for means of word vectors, which drop words themselves."""
        return 0.0

    def check_vectors(self, vectors: Any) -> None:
        """Find what training starts from, before a corpus is opened; InputError if it does not fit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mining.get("_target_", MINER) == MINER:  # with all defaults, as saved with runs and models
            options = {name: value for name, value in self.mining.items() if name != "_target_"}
            try:
                object.__setattr__(self, "mining", asdict(MiningSettings(**options)))
            except TypeError as error:
                raise InputError(f"model.mining: {error}") from None


@dataclass(frozen=True)
class WordsSettings(Settings):
    """How words are preprocessed and dropped in training."""

    where: ClassVar[str] = "model"
    punctuation: bool = False
    """keep tokens without a letter or digit"""
    markers: bool = True
    """give the two citation markers random vectors if the word vectors lack them; else they are dropped"""
    random_vectors: int = 0
    """give a random vector to words without one that occur at least this often; 0: they are dropped"""
    centre_vectors: bool = True
    """subtract the mean from the word vectors and scale them to unit length"""
    word_dropout: float = setting(0.3, most=1)
    """share of words dropped in training"""


@dataclass(frozen=True)
class HAttenSettings(WordsSettings, EncoderTraining):
    """model=hatten: both levels from the first round, triplet loss, mined negatives and positives; shorter
    than the paper's training, which is experiment=paper."""

    precision: str = setting("auto", choices=("auto", "float32", "bfloat16"))
    """precision of the encoder's computation; weights are float32"""
    rounds: int = setting(4, least=1)
    random_vectors: int = 5
    encoder: EncoderConfig = field(
        default_factory=lambda: EncoderConfig(trainable_vectors="all", input_scale=14.0, initial="mean")
    )
    loss: dict[str, Any] = field(default_factory=loss_factory("Triplet"))
    batch: EncoderBatchSettings = field(
        default_factory=lambda: EncoderBatchSettings(128, random=0, steps_per_round=500)
    )
    mining: dict[str, Any] = field(
        default_factory=mining_factory(first="bm25", positives=True), metadata=MINED
    )
    schedule: EncoderRateSettings = field(
        default_factory=lambda: EncoderRateSettings(20, "linear", vectors=4.0)
    )

    @property
    def arithmetic(self) -> str:
        return self.precision

    @property
    def batch_word_dropout(self) -> float:
        return self.word_dropout

    def check_vectors(self, vectors: Any) -> None:
        if (dim := vectors.width()) is not None:
            self.encoder.fit(dim)
        vectors.find()


@dataclass(frozen=True)
class StaticSettings(WordsSettings, EncoderTraining):
    """model=static"""

    max_tokens: int = setting(512, least=1)
    """maximum words of a paragraph"""
    near: tuple[int, ...] = (4, 12)
    """window sizes: each gives a query a paragraph of so many words on each side of the marker; []: none"""
    unknown_weight: float = 1.5
    """weight of out-of-vocabulary words, which get random vectors; 0: ignore them"""
    batch: EncoderBatchSettings = field(default_factory=lambda: EncoderBatchSettings(queries=512))
    schedule: EncoderRateSettings = field(default_factory=lambda: EncoderRateSettings(20, "linear"))

    def __post_init__(self) -> None:
        super().__post_init__()
        for words in self.near:
            check_count("model.near", words)


@dataclass(frozen=True)
class NNSelectSettings(WordsSettings, EncoderTraining):
    """model=nnselect"""

    centre_vectors: bool = False
    max_tokens: int = setting(512, least=1)
    """maximum words of a field"""
    rounds: int = setting(3, least=1)
    schedule: EncoderRateSettings = field(default_factory=lambda: EncoderRateSettings(20, "linear"))
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(lr=0.1))


@dataclass(frozen=True)
class BiEncoderBatchSettings(EncoderBatchSettings, QuerySettings):
    """Composition of a batch of texts."""


@dataclass(frozen=True)
class BiEncoderSettings(FineTuningSettings, EncoderTraining):
    """model=biencoder"""

    rounds: int = setting(3, least=1)
    ema: float = setting(0.98, below=1)
    gradient_cache: bool = False
    """compute the activations again in the backward pass, a chunk of texts at a time: batches of any size
    need the memory of one chunk only, and the gradients are the same (GradCache, Gao et al. 2021)"""
    loss: dict[str, Any] = field(default_factory=loss_factory("InfoNCE", correct_rate=False))
    batch: BiEncoderBatchSettings = field(
        default_factory=lambda: BiEncoderBatchSettings(
            32, random=0, contexts_per_paper=1, steps_per_round=100
        )
    )
    mining: dict[str, Any] = field(default_factory=mining_factory(depth=50, papers=3000), metadata=MINED)
    """a sample of the papers: encoding all would take longer than training"""
    validation: EncoderValidationSettings = field(
        default_factory=lambda: EncoderValidationSettings(queries=400, papers=3000, depth=1000)
    )
    schedule: EncoderRateSettings = field(default_factory=lambda: EncoderRateSettings(30, "linear"))
    optimizer: OptimizerSettings = field(
        default_factory=lambda: OptimizerSettings("adamw", lr=1e-4, weight_decay=0.01)
    )

    @property
    def arithmetic(self) -> str:
        return self.precision


register("hatten", HAttenSettings)
register("static", StaticSettings)
register("nnselect", NNSelectSettings)
register("biencoder", BiEncoderSettings)
