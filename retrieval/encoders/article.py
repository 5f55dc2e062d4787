"""Retrievers with an article encoder: one vector per paper, or one per sentence (Aspire)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Rows, to_unit_length
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.embeddings import Advance, load_or_encode
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.encoders.nets import as_numpy
from citerec.retrieval.encoders.sentences import SentenceRetriever
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import ArticleConfig, IndexConfig
from citerec.retrieval.vectors import VectorTable, encode_queries


class ArticleRetriever(DenseRetriever):
    """Finds the nearest papers by the cosine or distance of an article encoder's vectors."""

    name = "article"

    def __init__(
        self,
        encoder: ArticleConfig | ArticleEncoder,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
    ) -> None:
        """arithmetic: auto, float32 or bfloat16. Raises InputError if the encoder cannot be loaded."""
        super().__init__(index)
        self.encoder = ArticleEncoder.frozen(encoder, arithmetic)
        self.similarity = self.encoder.config.similarity
        if self.similarity == "l2" and self.index_config.kind != "exact":
            raise InputError("encoder.similarity=l2 needs exact search: set index.kind=exact")

    def fingerprint(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    def prepare(self, corpus: Corpus) -> None:
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)

    def encode_papers(self, rows: Rows, advance: Advance | None = None) -> Floats:
        """advance: progress callback."""
        with torch.inference_mode():
            vectors = self.encoder.encode(self._reader.papers(rows), advance).cpu().numpy()
        if self.similarity == "l2":
            return np.column_stack([vectors, np.square(vectors).sum(axis=1) / -2])
        return to_unit_length(vectors) if self.similarity == "cosine" else vectors

    def encode_queries(self, queries: Queries | Rows) -> Floats:
        forward, dim, unit = as_numpy(self.encoder.encode), self.encoder.dim, self.similarity == "cosine"
        vectors = encode_queries(forward, self._reader, queries, dim, normalise=unit)
        if self.similarity == "l2":  # queries without a word stay zeros
            return np.column_stack([vectors, vectors.any(axis=1).astype(np.float32)])
        return vectors

    def paper_vectors(self, corpus: Corpus, rows: Rows) -> VectorTable:
        of_queries = ("query", "markers", "query_prompt")
        model = {key: value for key, value in self.encoder.fingerprint().items() if key not in of_queries}
        dtype = "float32" if self.similarity == "l2" else "float16"  # squares need the digits
        vectors, encoded = load_or_encode(corpus, rows, model, self.encode_papers, dtype)
        self.reused = encoded < len(rows)
        return vectors


def article_retriever(encoder: ArticleConfig, **options: Any) -> ArticleRetriever | SentenceRetriever:
    """The retriever for an encoder's pooling; options: arguments of either class."""
    kind = SentenceRetriever if encoder.pooling == "aspire" else ArticleRetriever
    return kind(encoder, **options)
