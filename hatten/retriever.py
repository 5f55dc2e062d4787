"""Nearest-neighbour retrieval by cosine with encoders over words (Gu et al. 2022, section 4.1.3)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.hatten.documents import DocumentReader, Documents, Vocabulary, check_tokenizer
from citerec.retrieval.arrays import Floats
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.queries import Queries
from citerec.retrieval.vectors import encode, encode_queries

log = logging.getLogger(__name__)

KNOWN_SHARE, LEAST_TOKENS = 0.9, 1000
"""Share of known tokens below which a warning is logged; fewest tokens in a corpus to judge the share by."""


class WordsRetriever(DenseRetriever):
    """Encodes every candidate once, and compares each query with all of them."""

    encoder: Any
    """has `dim`, the dimension of its vectors"""
    vocabulary: Vocabulary
    """words of the encoder"""
    max_tokens: int
    """maximum words of a paragraph"""
    near: tuple[int, ...] = ()
    """words on each side of the marker, one extra query paragraph per entry"""
    about: Mapping[str, Any] = MappingProxyType({})
    """training record of the model; corpora tokenised otherwise than in training are rejected"""
    checkpoint: str | Path | None = None
    """path of the model, for messages"""

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
            self._warn_of_unknown_words(corpus)

    def _warn_of_unknown_words(self, corpus: Corpus) -> None:
        """Warn if the model knows few words of the prepared corpus, counted by occurrence, unless there are
        too few to tell."""
        is_word = np.array([any(map(str.isalnum, word)) for word in corpus.words], bool)
        counts = np.where(is_word, np.asarray(corpus.word_counts), 0)
        ids = self._reader.ids  # ids beyond the vocabulary are hashed unknown words
        total = counts.sum()
        in_vocabulary = counts[(ids >= 0) & (ids < len(self.vocabulary))].sum()
        if total >= LEAST_TOKENS and (share := in_vocabulary / total) < KNOWN_SHARE:
            log.warning(
                f"{1 - share:.0%} of the words of these papers are new to the model; they may be in another "
                "language or field, and results may be worse"
            )

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return encode(self.encode, self._reader.papers, rows, self.encoder.dim, "papers")

    def encode_queries(self, queries: Queries | NDArray[np.int64]) -> NDArray[np.float32]:
        return encode_queries(self.encode, self._reader, queries, self.encoder.dim)
