"""A trained prefetcher as what is trained on: the weights of retriever=hatten or biencoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from datasets.errors import InputError
from datasets.store import Corpus
from hatten.biencoder import BiEncoder, BiEncoderRetriever, FineTuning, FineTuningConfig
from hatten.checkpoint import Model, save_model
from hatten.documents import DocumentReader
from hatten.encoder import HAttenEncoder
from hatten.hatten import HAtten
from hatten.options import own_options
from hatten.recipe import Encoder, Parts, Recipe
from hatten.retriever import HAttenRetriever
from retrieval.article import ArticleEncoder
from retrieval.article_text import ArticleReader
from retrieval.base import Retriever
from retrieval.encode import precision, weights_hash


class HAttenStudent(Recipe):
    """The encoder of a HAtten checkpoint, with its words."""

    file, groups = HAtten.file, ()

    def __init__(self, model: Mapping[str, Any], trained: Model) -> None:
        self.model, self.precision = trained, precision(model["precision"])
        self.word_dropout = float(model["word_dropout"])
        if not 0 <= self.word_dropout < 1:
            raise InputError(f"model.word_dropout={self.word_dropout}: must be in 0..1, below 1")
        self.mean_path = trained.encoder.mean is not None

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        encoder, vocabulary = self.model.encoder, self.model.vocabulary
        encoder.precision = self.precision
        if encoder.mean is not None:
            encoder.mean.dropout = self.word_dropout
        about = {"start": weights_hash(encoder)}

        def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
            assert isinstance(trained, HAttenEncoder)
            save_model(Model(trained, vocabulary, about), path)

        reader = DocumentReader(corpus, vocabulary, encoder.config.max_tokens)
        return Parts(encoder.train(), reader, save, about)


class BiEncoderStudent(Recipe):
    """A fine-tuned article encoder."""

    file, groups = FineTuning.file, ()

    def __init__(self, model: Mapping[str, Any], folder: str | Path) -> None:
        self.config, self.folder = own_options(FineTuningConfig, model), folder

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        article = ArticleEncoder.load(self.folder)  # the retriever's own is in the precision of its search
        about = {"encoder": article.config.name, "start": weights_hash(article)}
        reader = ArticleReader(corpus, article.tokenizer, article.config)
        return Parts(BiEncoder(article, self.config), reader, FineTuning.save, about)


def student_of(retriever: Retriever, model: Mapping[str, Any], checkpoint: str | Path) -> Recipe:
    """InputError for a retriever without weights that can be trained on."""
    if isinstance(retriever, HAttenRetriever):
        return HAttenStudent(model, retriever.model)
    if isinstance(retriever, BiEncoderRetriever):
        return BiEncoderStudent(model, checkpoint)
    raise InputError(
        f"retriever={retriever.name}: has no weights to distil into; choose hatten or biencoder, with "
        "checkpoint=FILE"
    )
