"""A transformer fine-tuned on citation contexts: `citerec train model=biencoder encoder=minilm|...`.

One article encoder (retrieval.article) encodes both papers and queries. Batches, mining and losses are
shared with HAtten.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

from citerec.datasets.corpus import Corpus
from citerec.datasets.errors import InputError
from citerec.hatten.encoder import Encoder
from citerec.hatten.recipe import Parts, Recipe
from citerec.hatten.settings import BiEncoderSettings
from citerec.retrieval.article import ArticleRetriever
from citerec.retrieval.article_text import ArticleReader, Texts
from citerec.retrieval.encoder import ArticleEncoder
from citerec.retrieval.settings import ArticleConfig, IndexConfig
from citerec.training.checkpoint import find_saved
from citerec.training.module import prepare_transformer
from citerec.training.settings import FineTuningSettings


class BiEncoder(Encoder):
    """Wraps an article encoder for training."""

    def __init__(self, article: ArticleEncoder, config: FineTuningSettings) -> None:
        super().__init__()
        prepare_transformer(article, config)
        self.article, self.dim, self.precision = article, article.dim, article.precision

    def encode(self, documents: Texts) -> Tensor:
        return self.article.encode(documents)


class FineTuning(Recipe):
    """Fine-tunes the configured encoder."""

    schema = BiEncoderSettings
    file = "biencoder"
    groups = ("encoder",)

    def __init__(self, model: BiEncoderSettings) -> None:
        self.config = model

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        configured: ArticleConfig = instantiate(config.encoder)
        article_config = replace(configured, similarity="cosine")  # as the loss compares vectors
        if article_config.pooling == "aspire":
            raise InputError("encoder.pooling=aspire gives many vectors per text; train with mean or cls")
        return fine_tuning_parts(ArticleEncoder.pretrained(article_config), self.config, corpus)


def fine_tuning_parts(article: ArticleEncoder, config: FineTuningSettings, corpus: Corpus) -> Parts:
    """Prepare an article encoder for training; it is saved as a folder for retriever=biencoder."""

    def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
        assert isinstance(trained, BiEncoder)
        trained.article.save(path, about)

    reader = ArticleReader(corpus, article.tokenizer, article.config)
    return Parts(BiEncoder(article, config), reader, save, {"encoder": article.config.name})


class BiEncoderRetriever(ArticleRetriever):
    """Nearest-neighbour search with a fine-tuned article encoder."""

    name = "biencoder"

    def __init__(
        self,
        checkpoint: str | Path | None,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
    ) -> None:
        """checkpoint: a folder saved by train.py model=biencoder; InputError for anything else."""
        if checkpoint is None:
            raise InputError(
                "retriever=biencoder needs checkpoint=FOLDER, the `biencoder` folder of "
                "train.py model=biencoder"
            )
        super().__init__(ArticleEncoder.load(find_saved(checkpoint, FineTuning.file)), arithmetic, index)
