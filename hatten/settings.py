"""Settings of encoders that are trained on contexts: model=hatten|static|nnselect|biencoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import retrieval.settings  # noqa: F401  (schemas of encoder, index and profile)
from datasets.errors import InputError
from datasets.settings import Settings, register, setting
from training.settings import FineTuningSettings, RateSettings, monitored


@dataclass(frozen=True)
class EncoderConfig(Settings):
    """Sizes and variants of HAtten, which a checkpoint carries; the defaults are the paper's."""

    where: ClassVar[str] = "model.encoder"
    dim: int = setting(200, least=1)
    """of word vectors, paragraphs and documents"""
    heads: int = setting(8, least=1)
    """of the attention"""
    hidden: int = setting(1024, least=1)
    """width of the feed-forward parts"""
    layers: int = 1
    """transformer layers in each level"""
    max_tokens: int = setting(512, least=1)
    """tokens read of a paragraph"""
    max_paragraphs: int = setting(3, least=1)
    """paragraphs of a document: title, abstract, context"""
    paragraph_types: int = setting(100, least=1)
    """rows of the table of paragraph types, of which few are used"""
    dropout: float = 0.1
    """after attention and after the feed-forward part of each layer"""
    input_dropout: float = 0.0
    """on what the first layer of a level reads, vectors with their positions; the authors have none"""
    trainable_vectors: str = setting("markers", choices=("none", "markers", "all"))
    """word vectors that training may change: none | markers (the two citation markers) | all"""
    input_scale: float = 1.0
    """factor on word vectors before positions are added"""
    residual: str = setting("none", choices=("none", "mean"))
    """none, or mean: add a weighted mean of word vectors to the output (hatten.layers); beyond the paper"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads or self.dim % 2:
            raise InputError(f"{self.where}: dim={self.dim} must be even and divisible by heads={self.heads}")


@dataclass(frozen=True)
class EncoderLossSettings(Settings):
    """What is minimised, over a batch's cosines (hatten.losses)."""

    where: ClassVar[str] = "model.loss"
    name: str = setting("infonce", choices=("triplet", "infonce"))
    """triplet (Gu et al. 2022, equation 3) or infonce"""
    margin: float = 0.05
    """of triplet, for each level between positive and negative"""
    positives: tuple[int, ...] = (1, 2)
    """levels that are positives in the triplet loss; (1,) switches positive mining off"""
    temperature: float = setting(0.05, above=0)
    """of infonce"""
    correct_rate: bool = True
    """of infonce: correct for popular papers being negatives more often"""


@dataclass(frozen=True)
class EncoderBatchSettings(Settings):
    """What a batch is made of."""

    where: ClassVar[str] = "model.batch"
    queries: int = setting(256, least=1)
    """contexts that are trained on together"""
    mined: int = 1
    """papers a query, drawn from those prefetched for it"""
    random: int = 3
    """papers a query, drawn from all candidates"""
    contexts_per_paper: int = setting(8, least=1)
    """contexts of one citing paper that stand together in a batch; its title and abstract are encoded once"""
    stale: bool = False
    """do not encode mined and random papers in each batch: take what the two levels gave for them in the last
    encoding of all papers, with a fresh mean path (residual=mean); many more negatives at the same cost"""
    steps_per_round: int = 250
    """batches between two minings; 0: one pass over the training contexts"""


@dataclass(frozen=True)
class MiningSettings(Settings):
    """How the pool of prefetched papers is made, once a round."""

    where: ClassVar[str] = "model.mining"
    depth: int = setting(100, least=1)
    """papers prefetched for a training query"""
    queries: int = setting(50_000, least=1)
    """training queries to prefetch for: those of the next round; a sample where there are more, and then the
    round has no others"""
    papers: int = 0
    """candidates to search, a sample of that size; 0: all"""
    first: str = setting("encoder", choices=("encoder", "bm25", "none"))
    """what the first round's pool comes from: the encoder as it starts, BM25, or none: no pool in that round.
    An encoder that starts at random finds random papers"""
    positives: bool = False
    """compare words to find prefetched papers that serve as positives"""


@dataclass(frozen=True)
class EncoderValidationSettings(Settings):
    """What is measured after each round, with the averaged weights."""

    where: ClassVar[str] = "model.validation"
    split: str = "val"
    """the split that is validated on"""
    queries: int = 2000
    """a sample where there are more; 0: no validation"""
    papers: int = 0
    """candidates to search: the papers that the queries cite and a sample of others, so many in all; 0: all.
    Recall in a sampled pool is higher than among all papers and not comparable to it"""
    depth: int = setting(2000, least=1)
    """papers ranked for a query"""
    monitor: str = "recall@10"
    """the weights of the round with the best value are saved"""

    def __post_init__(self) -> None:
        super().__post_init__()
        monitored(self.monitor, self.depth)


@dataclass(frozen=True)
class EncoderRateSettings(RateSettings):
    """Learning rates over the steps of a run."""

    vectors: float = 1.0
    """factor on the rate of what the encoder calls fast (HAtten's word vectors and mean path)"""
    mean_only_rounds: int = 0
    """rounds at the start that train the mean path and word vectors alone (residual=mean)"""


@dataclass(frozen=True)
class EncoderTraining(Settings):
    """What trainings of all encoders have in common; in batches, `mined` papers come from some pool."""

    where: ClassVar[str] = "model"
    train: str = "hatten.train.train"
    """the function that trains"""
    rounds: int = setting(5, least=1)
    """of mining, training and validation"""
    ema: float = setting(0.99, below=1)
    """decay of the moving average of the weights, which is validated, mined with and saved; 0: the weights"""
    workers: int = 0
    """processes that read batches ahead"""
    loss: EncoderLossSettings = field(default_factory=EncoderLossSettings)
    batch: EncoderBatchSettings = field(default_factory=EncoderBatchSettings)
    validation: EncoderValidationSettings = field(default_factory=EncoderValidationSettings)
    schedule: EncoderRateSettings = field(default_factory=EncoderRateSettings)
    optimizer: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MinedTraining(EncoderTraining):
    """A training that mines its pool itself."""

    recipe: str = ""
    """the kind of encoder, a hatten.recipe.Recipe"""
    mining: MiningSettings = field(default_factory=MiningSettings)


@dataclass(frozen=True)
class WordsSettings(Settings):
    """What becomes of the words that a model is trained with."""

    where: ClassVar[str] = "model"
    punctuation: bool = False
    """keep tokens without a letter or digit"""
    centre_vectors: bool = False
    """word vectors less their mean, scaled to unit length"""
    word_dropout: float = setting(0.3, most=1)
    """share of the words that a mean of word vectors leaves out in training"""


@dataclass(frozen=True)
class HAttenSettings(WordsSettings, MinedTraining):
    """model=hatten"""

    recipe: str = "hatten.recipe.HAtten"
    precision: str = setting("auto", choices=("auto", "float32", "bfloat16"))
    """in which the encoder computes; weights are float32"""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)


@dataclass(frozen=True)
class StaticSettings(WordsSettings, MinedTraining):
    """model=static"""

    recipe: str = "hatten.recipe.Static"
    max_tokens: int = setting(512, least=1)
    """words read of a paragraph"""
    unknown_weight: float = 1.5
    """of words that the trained model does not know, which get random vectors; 0: they are left out"""


@dataclass(frozen=True)
class NNSelectSettings(WordsSettings, MinedTraining):
    """model=nnselect"""

    recipe: str = "hatten.nnselect.NNSelect"
    weighting: str = setting("idf", choices=("mean", "idf"))
    """initial magnitudes: mean (the lengths of the vectors) | idf (those by inverse document frequency)"""
    max_tokens: int = setting(512, least=1)
    """words read of a field"""


@dataclass(frozen=True)
class BiEncoderSettings(FineTuningSettings, MinedTraining):
    """model=biencoder"""

    recipe: str = "hatten.biencoder.FineTuning"


register("hatten", HAttenSettings)
register("static", StaticSettings)
register("nnselect", NNSelectSettings)
register("biencoder", BiEncoderSettings)
