"""A transformer fine-tuned on citation contexts: `citerec train model=biencoder encoder=minilm|...`.

One article encoder (retrieval.encoders.article) encodes both papers and queries. Batches, mining and losses
are shared with HAtten.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.hatten.dense import DenseModel
from citerec.hatten.encoder import Encoder
from citerec.hatten.settings import BiEncoderSettings, EncoderTraining
from citerec.retrieval.encoders.article import ArticleRetriever
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import SETTINGS, ArticleEncoder, TextInputs, TextLayout
from citerec.retrieval.settings import MINILM, ArticleConfig, IndexConfig
from citerec.training.module import prepare_transformer


class TunedEncoder(Encoder):
    """Wraps an article encoder for training."""

    def __init__(self, article: ArticleEncoder, config: BiEncoderSettings) -> None:
        super().__init__()
        prepare_transformer(article, config)
        article.gradient_cache = config.gradient_cache
        self.article, self.dim = article, article.dim

    @property
    def layout(self) -> TextLayout:
        return self.article.layout

    def adapt(self, device: torch.device | str, arithmetic: str = "float32") -> None:
        self.article.adapt(device, arithmetic, training=True)
        self.precision = self.article.precision

    def encode(self, documents: Ragged | TextInputs) -> Tensor:
        return self.article.encode(documents)


@dataclass(frozen=True)
class BiEncoder(DenseModel):
    """An article encoder that was fine-tuned, and its training record."""

    settings_file = SETTINGS
    folder = "biencoder"
    title = "bi-encoder"
    description = """\
A transformer that embeds papers and passages with a missing citation, fine-tuned on citation contexts. The
nearest papers by cosine similarity are recommended."""
    tags = ("sentence-similarity",)
    settings_class = BiEncoderSettings

    encoder: ArticleEncoder
    about: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def default_pretrained(cls, settings: EncoderTraining, seed: int) -> ArticleConfig:
        return MINILM

    @classmethod
    def untrained(
        cls, corpus: Corpus, settings: BiEncoderSettings, pretrained: ArticleConfig
    ) -> tuple[Self, TunedEncoder, ArticleReader]:
        config = replace(pretrained, similarity="cosine")
        if config.pooling == "aspire":
            raise InputError("encoder.pooling=aspire gives many vectors per text; train with mean or cls")
        article = ArticleEncoder.pretrained(config)
        article.config = replace(article.config, similarity="cosine")  # as the loss compares vectors
        reader = ArticleReader(corpus, article.tokenizer, article.config)
        return cls(article, {"encoder": config.name}), TunedEncoder(article, settings), reader

    def with_encoder(self, encoder: Any, about: dict[str, Any]) -> Self:
        return replace(self, encoder=encoder.article, about=about)

    def retriever(self, index: IndexConfig | None = None) -> BiEncoderRetriever:
        """Nearest-neighbour search with this model."""
        return BiEncoderRetriever(self, index=index)

    def write(self, folder: Path) -> None:
        self.encoder.write(folder)

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Self:
        return cls(ArticleEncoder.load(folder), about)


class BiEncoderRetriever(ArticleRetriever):
    """Nearest-neighbour search with a fine-tuned article encoder."""

    name = "biencoder"

    def __init__(
        self,
        checkpoint: BiEncoder | str | Path | None,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
    ) -> None:
        """checkpoint: a model, or the output of citerec train model=biencoder; else InputError."""
        self.model = BiEncoder.opened(checkpoint)
        super().__init__(self.model.encoder, arithmetic, index)
