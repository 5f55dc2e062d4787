"""Retrieval by an encoder over words: what HAtten, NNSelect and averaged word vectors share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.store import Corpus
from hatten.documents import DocumentReader
from hatten.recipe import Encoder
from hatten.vocabulary import Vocabulary
from retrieval.dense import DenseRetriever
from retrieval.encode import encode, encode_queries, weights_hash


class WordsRetriever(DenseRetriever):
    """Encodes every candidate once; a query is encoded and compared with all of them."""

    encoder: Encoder
    vocabulary: Vocabulary
    """the words of the encoder"""
    max_tokens: int
    """words that are read of a paragraph"""

    def fingerprint(self) -> dict[str, Any]:
        return {"weights": weights_hash(self.encoder), "arithmetic": str(self.encoder.precision)}

    def prepare(self, corpus: Corpus) -> None:
        self._reader = DocumentReader(corpus, self.vocabulary, self.max_tokens)

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return encode(self.encoder.encode, self._reader.papers, rows, self.encoder.dim, "papers")

    def encode_queries(self, contexts: NDArray[np.int64]) -> NDArray[np.float32]:
        return encode_queries(self.encoder.encode, self._reader, contexts, self.encoder.dim)
