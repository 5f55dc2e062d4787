"""What HAtten, the static model, NNSelect and bi-encoders share: `DenseModel`, how they are trained, and
search by cosine with encoders over words (Gu et al. 2022, section 4.1.3)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.hatten.documents import DocumentReader, Documents, Vocabulary, check_tokenizer
from citerec.hatten.settings import EncoderTraining
from citerec.retrieval.arrays import Floats
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import ArticleConfig, IndexConfig
from citerec.retrieval.vectors import Reader, encode, encode_queries
from citerec.training.hub import Pretrained

if TYPE_CHECKING:
    from citerec.hatten.encoder import Encoder
    from citerec.hatten.training.batches import TrainingData
    from citerec.hatten.training.module import EncoderModule
    from citerec.hatten.training.rounds import EncoderRounds
    from citerec.hatten.words.vectors import Embeddings
    from citerec.training.loop import TrainingRun

    Parts = tuple[type[TrainingData], type[EncoderModule], type[EncoderRounds]]


class DenseModel(Pretrained):
    """A trained model that embeds queries and papers."""

    settings_class: ClassVar[type[EncoderTraining]]
    """settings of its training"""
    usage = "benchmark=prefetch retriever={folder} checkpoint={place}"

    @classmethod
    def train(
        cls,
        corpus: Corpus,
        settings: EncoderTraining | None = None,
        run: TrainingRun | None = None,
        *,
        pretrained: Embeddings | ArticleConfig | None = None,
        **changes: Any,
    ) -> Self:
        """Train on the training contexts of a corpus.

        settings: of `settings_class`. pretrained: what training starts from: for a bi-encoder the settings of
        a transformer, by default MiniLM; else word vectors, by default GloVe's for HAtten, for others
        word2vec's of the corpus. changes: fields of the settings, such as rounds=4.
        """
        # torch and Lightning, which searching with a static model does not need
        from citerec.hatten.training.losses import build_loss
        from citerec.hatten.training.mining import build_mining
        from citerec.training.loop import Training, TrainingRun

        settings, run = replace(settings or cls.settings_class(), **changes), run or TrainingRun()
        pretrained = pretrained or cls.default_pretrained(settings, run.seed)
        build_loss(settings.loss), build_mining(settings.mining)  # before anything slow
        contexts = _check_queries(settings, corpus, run)
        settings.check_vectors(pretrained)
        start = {pretrained.where: asdict(pretrained)}
        run.start(corpus, settings, start)
        model, encoder, reader = cls.untrained(corpus, settings, pretrained)
        encoder.adapt(run.device, settings.arithmetic)
        data, module, rounds = cls.parts(settings)
        steps = settings.batch.steps(contexts)
        about = {**run.about(corpus, settings), **model.about}
        training = Training(
            module(encoder, settings, run.seed, settings.rounds * steps),
            data(reader, settings, run.seed, encoder, run.workers(settings.workers)),
            rounds(run.path / model.folder, model, about, settings, run.seed),
            settings.rounds,
            start,
            f"{contexts:,} contexts, {settings.rounds} rounds of {steps} steps, "
            f"{settings.batch.queries} queries per step, in {encoder.precision}",
        )
        return cls.open(run.fit(corpus, settings, training))

    @classmethod
    def parts(cls, settings: EncoderTraining) -> Parts:
        """The classes of its batches, its Lightning module, and what happens between rounds."""
        from citerec.hatten.training.batches import TrainingData
        from citerec.hatten.training.module import EncoderModule
        from citerec.hatten.training.rounds import EncoderRounds

        return TrainingData, EncoderModule, EncoderRounds

    @classmethod
    def default_pretrained(cls, settings: EncoderTraining, seed: int) -> Any:
        """What training starts from unless it is given."""
        from citerec.hatten.words.word2vec import Word2Vec

        return Word2Vec(seed=seed)

    @classmethod
    def untrained(cls, corpus: Corpus, settings: Any, pretrained: Any) -> tuple[Self, Encoder, Reader]:
        """Build what training starts from: the model, with where it starts from in `about`; its network; what
        reads the network's inputs."""
        raise NotImplementedError

    @classmethod
    def opened(cls, checkpoint: Self | str | Path | None) -> Self:
        """The model of a retriever's option `checkpoint`: a model, or where it is; else InputError."""
        if checkpoint is None:
            raise InputError(
                f"retriever={cls.folder} needs checkpoint=FOLDER, the output of citerec train "
                f"model={cls.folder}"
            )
        return cls.open(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint

    def retriever(self, index: IndexConfig | None = None) -> DenseRetriever:
        """Nearest-neighbour search with this model."""
        raise NotImplementedError


def _check_queries(settings: EncoderTraining, corpus: Corpus, run: TrainingRun) -> int:
    """Return the number of training contexts; InputError if a batch has too many queries or too few."""
    from citerec.training.queries import training_split

    contexts = len(training_split(corpus, settings.batch.splits))
    queries, processes = settings.batch.queries, run.trainer.processes
    if queries > contexts:
        raise InputError(
            f"model.batch.queries={queries}: more than the {contexts:,} training contexts of {corpus.name}"
        )
    if queries < processes:
        raise InputError(
            f"model.batch.queries={queries}: cannot be divided among {processes} processes; set it to at "
            f"least {processes}"
        )
    return contexts


log = logging.getLogger(__name__)

KNOWN_SHARE, LEAST_TOKENS = 0.9, 1000
"""Share of a corpus's tokens below which a warning is logged, if there are enough of them to tell."""


class WordsRetriever(DenseRetriever):
    """Encodes every candidate once, and compares each query with all of them."""

    vocabulary: Vocabulary
    """words of the encoder"""
    max_tokens: int
    """maximum words of a paragraph"""
    near: tuple[int, ...] = ()
    """words on each side of the marker, one extra query paragraph per entry"""
    about: Mapping[str, Any] = MappingProxyType({})
    """training record of the model; corpora with another tokeniser than in training are rejected"""
    checkpoint: str | Path | None = None
    """path of the model, for messages"""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the vectors."""

    @abstractmethod
    def encode(self, documents: Documents) -> Floats:
        """B documents -> [B, dim]; zeros for a document without known words."""

    def prepare(self, corpus: Corpus) -> None:
        if tokenizer := self.about.get("tokenizer"):  # untrained averages have none
            check_tokenizer(corpus, tokenizer, f"checkpoint={self.checkpoint}")
        self._reader = DocumentReader(corpus, self.vocabulary, self.max_tokens, self.near)

    def _index(self, corpus: Corpus) -> None:
        super()._index(corpus)
        if corpus.whole is None:
            self.warn_of_unknown_words(self.known_share(corpus))

    def warn_of_unknown_words(self, share: float) -> None:
        """Warn if the `known_share` of a corpus is low."""
        if share < KNOWN_SHARE:
            log.warning(
                f"{1 - share:.0%} of the words of these papers are new to the model; they may be in another "
                "language or field, and results may be worse"
            )

    def known_share(self, corpus: Corpus) -> float:
        """Return the share of the words of the corpus that was prepared, by their occurrences, that the model
        knows; 1 if there are too few to tell."""
        is_word = np.array([any(map(str.isalnum, word)) for word in corpus.words], bool)
        counts = np.where(is_word, np.asarray(corpus.word_counts), 0)
        ids = self._reader.ids  # ids beyond the vocabulary are hashed unknown words
        total = counts.sum()
        in_vocabulary = counts[(ids >= 0) & (ids < len(self.vocabulary))].sum()
        return float(in_vocabulary / total) if total >= LEAST_TOKENS else 1.0

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return encode(self.encode, self._reader.papers, rows, self.dim, "papers")

    def encode_queries(self, queries: Queries | NDArray[np.int64]) -> NDArray[np.float32]:
        return encode_queries(self.encode, self._reader, queries, self.dim)
