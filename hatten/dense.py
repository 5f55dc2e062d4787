"""`DenseModel`, the base class of models that embed queries and papers (HAtten, the static model, NNSelect,
bi-encoders), with the training that they share."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.hatten.settings import EncoderTraining
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.settings import ArticleConfig, IndexConfig
from citerec.retrieval.vectors import Reader
from citerec.training.hub import Pretrained

if TYPE_CHECKING:
    from citerec.hatten.encoder import Encoder
    from citerec.hatten.words.vectors import Embeddings
    from citerec.training.loop import TrainingRun


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

        settings: an instance of `settings_class`. pretrained: what training starts from: the settings of a
        transformer (default: MiniLM) for a bi-encoder; else word vectors (default: GloVe for HAtten, for the
        others word2vec of the corpus). changes: fields of the settings, such as rounds=4.
        """
        # Imported late: torch and Lightning, which searching with a static model does not need.
        from citerec.hatten.training.batches import TrainingData
        from citerec.hatten.training.losses import build_loss
        from citerec.hatten.training.mining import build_mining
        from citerec.hatten.training.module import EncoderModule
        from citerec.hatten.training.rounds import EncoderRounds
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
        steps = settings.batch.steps(contexts)
        about = {**run.about(corpus, settings), **model.about}
        training = Training(
            EncoderModule(encoder, settings, run.seed, settings.rounds * steps),
            TrainingData(reader, settings, run.seed, encoder, run.workers(settings.workers)),
            EncoderRounds(run.path / model.folder, model, about, settings, run.seed),
            settings.rounds,
            start,
            f"{contexts:,} contexts, {settings.rounds} rounds of {steps} steps, "
            f"{settings.batch.queries} queries per step, in {encoder.precision}",
        )
        return cls.open(run.fit(corpus, settings, training))

    @classmethod
    def default_pretrained(cls, settings: EncoderTraining, seed: int) -> Any:
        """What training starts from by default."""
        from citerec.hatten.words.word2vec import Word2Vec

        return Word2Vec(seed=seed)

    @classmethod
    def untrained(cls, corpus: Corpus, settings: Any, pretrained: Any) -> tuple[Self, Encoder, Reader]:
        """Build what training starts from: the model, whose `about` names the initial vectors or transformer;
        its network; and the reader of the network's inputs."""
        raise NotImplementedError

    @classmethod
    def opened(cls, checkpoint: Self | str | Path | None) -> Self:
        """Open the `checkpoint` of a retriever: a model, or its location; InputError if that fails."""
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
