"""A transformer fine-tuned on citation contexts: `python train.py model=biencoder encoder=minilm|...`.

Papers and queries go through one article encoder (retrieval.article); batches, mining and losses are those
of HAtten.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

from datasets.corpus import Corpus
from datasets.errors import InputError
from hatten.encoder import Encoder
from hatten.recipe import Parts, Recipe
from hatten.settings import BiEncoderSettings
from retrieval.article import ArticleRetriever
from retrieval.article_text import ArticleReader, Texts
from retrieval.encoder import ArticleEncoder
from retrieval.settings import ArticleConfig, IndexConfig, ProfileConfig
from training.checkpoint import find_saved
from training.module import prepare_transformer
from training.settings import FineTuningSettings


class BiEncoder(Encoder):
    """An article encoder in training."""

    def __init__(self, article: ArticleEncoder, config: FineTuningSettings) -> None:
        super().__init__()
        prepare_transformer(article, config)
        self.article, self.dim, self.precision = article, article.dim, article.precision

    def encode(self, documents: Texts) -> Tensor:
        return self.article.encode(documents)


class FineTuning(Recipe):
    """Fine-tunes the encoder of the configuration."""

    schema = BiEncoderSettings
    file = "biencoder"
    groups = ("encoder",)

    def __init__(self, model: BiEncoderSettings) -> None:
        self.config = model

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        given: ArticleConfig = instantiate(config.encoder)
        article_config = replace(given, similarity="cosine")  # what it is trained for
        if article_config.pooling == "aspire":
            raise InputError("encoder.pooling=aspire gives many vectors to a text; train with mean or cls")
        return fine_tuning(ArticleEncoder.pretrained(article_config), self.config, corpus)


def fine_tuning(article: ArticleEncoder, config: FineTuningSettings, corpus: Corpus) -> Parts:
    """An article encoder to train; it is saved as a folder that retriever=biencoder reads."""

    def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
        assert isinstance(trained, BiEncoder)
        trained.article.save(path, about)

    reader = ArticleReader(corpus, article.tokenizer, article.config)
    return Parts(BiEncoder(article, config), reader, save, {"encoder": article.config.name})


class BiEncoderRetriever(ArticleRetriever):
    """Nearest papers by a fine-tuned article encoder."""

    name = "biencoder"

    def __init__(
        self,
        checkpoint: str | Path | None,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
        profile: ProfileConfig | None = None,
    ) -> None:
        """checkpoint: the folder that train.py model=biencoder saved; InputError if it is anything else."""
        if checkpoint is None:
            raise InputError(
                "retriever=biencoder needs checkpoint=FOLDER, the `biencoder` of train.py model=biencoder"
            )
        super().__init__(
            ArticleEncoder.load(find_saved(checkpoint, FineTuning.file)), arithmetic, index, profile
        )
