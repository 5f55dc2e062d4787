"""A transformer fine-tuned on citation contexts: `python train.py model=biencoder encoder=minilm|...`.

Papers and queries go through one article encoder (retrieval.article); batches, mining and losses are those
of HAtten.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor, nn

from datasets.errors import InputError
from datasets.store import Corpus
from hatten.recipe import Encoder, Parts, Recipe
from retrieval.article import ArticleEncoder, ArticleRetriever
from retrieval.article_text import ArticleReader, Texts
from retrieval.encode import precision
from retrieval.indexes import IndexConfig
from retrieval.models import ArticleConfig
from retrieval.profiles import ProfileConfig


class BiEncoder(Encoder):
    """An article encoder in training."""

    def __init__(self, article: ArticleEncoder, arithmetic: torch.dtype, dropout: float) -> None:
        """dropout: of the transformer, in place of what it was pretrained with."""
        super().__init__()
        self.article, self.dim, self.precision = article, article.dim, arithmetic
        article.train()  # a pretrained one comes in evaluation mode
        article.precision = arithmetic
        for part in article.modules():
            if isinstance(part, nn.Dropout):
                part.p = dropout

    def encode(self, documents: Texts) -> Tensor:
        return self.article.encode(documents)


class FineTuning(Recipe):
    """Fine-tunes the encoder of the configuration."""

    file = "biencoder"
    groups = ("encoder",)

    def __init__(self, model: Mapping[str, Any]) -> None:
        self.precision, self.dropout = precision(model["precision"]), model["dropout"]
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout < 1:
            raise InputError(f"model.dropout={self.dropout}: must be a number in 0..1, below 1")

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        article_config: ArticleConfig = instantiate(config.encoder)
        if article_config.pooling == "aspire":
            raise InputError("encoder.pooling=aspire gives many vectors to a text; train with mean or cls")
        article = ArticleEncoder.pretrained(article_config)
        encoder = BiEncoder(article, self.precision, self.dropout)

        def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
            assert isinstance(trained, BiEncoder)
            trained.article.save(path, about)

        reader = ArticleReader(corpus, article.tokenizer, article_config)
        return Parts(encoder, reader, save, {"encoder": article_config.name})


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
        super().__init__(ArticleEncoder.load(checkpoint), arithmetic, index, profile)
