"""`train_encoder`, the `train` of HAtten, the static model, NNSelect and bi-encoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.hatten.retriever import DenseModel
from citerec.hatten.settings import EncoderTraining
from citerec.hatten.training.batches import TrainingData, steps_per_round
from citerec.hatten.training.losses import build_loss
from citerec.hatten.training.module import EncoderModule
from citerec.hatten.training.rounds import MINED, EncoderRounds
from citerec.hatten.words.vectors import Embeddings
from citerec.retrieval.settings import ArticleConfig
from citerec.training.loop import Training, TrainingRun
from citerec.training.queries import training_split

M = TypeVar("M", bound=DenseModel)


def train_encoder(
    kind: type[M],
    corpus: Corpus,
    settings: EncoderTraining | None,
    run: TrainingRun | None,
    pretrained: Embeddings | ArticleConfig | None,
    changes: Mapping[str, Any],
) -> M:
    """Train a model of a kind and return it with the best round's weights; arguments as DenseModel.train."""
    settings, run = replace(settings or kind.settings_class(), **changes), run or TrainingRun()
    pretrained = pretrained or kind.default_pretrained(settings, run.seed)
    build_loss(settings.loss)  # before anything slow
    _check_queries(settings, corpus, run)
    settings.check_vectors(pretrained)
    start = {pretrained.where: asdict(pretrained)}
    run.start(corpus, settings, start)
    model, encoder, reader = kind.untrained(corpus, settings, pretrained)
    encoder.adapt(run.device, settings.arithmetic)
    data = TrainingData(reader, settings, run.seed, encoder, run.workers(settings.workers))
    steps = steps_per_round(settings.batch, len(data.split))
    about = {**run.about(corpus, settings), **model.about}
    training = Training(
        EncoderModule(encoder, settings, run.seed, settings.rounds * steps),
        data,
        EncoderRounds(run.path / model.folder, model, about, settings, run.seed),
        settings.rounds,
        start,
        f"{len(data.split):,} contexts, {settings.rounds} rounds of {steps} steps, "
        f"{settings.batch.queries} queries per step, in {encoder.precision}",
        files=[MINED],
    )
    return kind.open(run.fit(corpus, settings, training))


def _check_queries(settings: EncoderTraining, corpus: Corpus, run: TrainingRun) -> None:
    """Raise InputError, before anything slow, if a batch has too many queries or too few."""
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
