"""Nearest-neighbour retrieval by cosine with encoders over words; retriever=static."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.datasets.errors import InputError
from citerec.hatten.documents import DocumentReader, Documents, Vocabulary, check_tokenizer
from citerec.hatten.static import CONFIG, FOLDER, load_static, save_static
from citerec.retrieval.arrays import Floats
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import IndexConfig
from citerec.retrieval.vectors import encode, encode_queries
from citerec.training.checkpoint import find_saved

log = logging.getLogger(__name__)

KNOWN_SHARE = 0.9
"""Share of a corpus's running words below which a warning is logged."""


class WordsRetriever(DenseRetriever):
    """Encodes every candidate once, and compares each query with all of them."""

    vocabulary: Vocabulary
    """words of the encoder"""
    max_tokens: int
    """maximum words of a paragraph"""
    near: tuple[int, ...] = ()
    """words on each side of the marker, one extra query paragraph per entry"""
    about: Mapping[str, Any] = MappingProxyType({})
    """training record of the model; corpora with another tokeniser than in training are rejected"""
    checkpoint: str | Path | None = None
    """path of the model, for messages"""
    known_share: float
    """share of the running words of the prepared corpus that the model knows"""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the vectors."""

    @abstractmethod
    def encode(self, documents: Documents) -> Floats:
        """B documents -> [B, dim]; zeros for a document without known words."""

    def prepare(self, corpus: Corpus) -> None:
        if tokenizer := self.about.get("tokenizer"):  # missing in files of earlier versions
            check_tokenizer(corpus, tokenizer, f"checkpoint={self.checkpoint}")
        self._reader = DocumentReader(corpus, self.vocabulary, self.max_tokens, self.near)
        self.known_share = self._compute_known_share(corpus)
        if self.known_share < KNOWN_SHARE:
            log.warning(
                f"{self.name}: the model knows {self.known_share:.0%} of the running words of {corpus.name}; "
                "was it trained on other data, or with another data.tokenizer?"
            )

    def _compute_known_share(self, corpus: Corpus) -> float:
        is_word = np.array([any(map(str.isalnum, word)) for word in corpus.words], bool)
        counts = np.where(is_word, np.asarray(corpus.word_counts), 0)
        ids = self._reader.ids  # ids beyond the vocabulary are hashed unknown words
        return float(counts[(ids >= 0) & (ids < len(self.vocabulary))].sum() / max(counts.sum(), 1))

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return encode(self.encode, self._reader.papers, rows, self.dim, "papers")

    def encode_queries(self, queries: Queries | NDArray[np.int64]) -> NDArray[np.float32]:
        return encode_queries(self.encode, self._reader, queries, self.dim)


class StaticRetriever(WordsRetriever):
    """Nearest-neighbour search with a static embedding model."""

    name = "static"

    def __init__(
        self,
        checkpoint: str | Path | None,
        index: IndexConfig | None = None,
        unknown_weight: float | None = None,
    ) -> None:
        """checkpoint: saved by train.py model=static, or a HAtten checkpoint, whose mean path is used.

        unknown_weight: weight of out-of-vocabulary words; None: as saved. Raises InputError if a file is
        missing or of another kind.
        """
        super().__init__(index)
        if checkpoint is None:
            raise InputError(
                "retriever=static needs checkpoint=FOLDER, the output of citerec train model=static, or a "
                "hatten.ckpt with a mean path"
            )
        if unknown_weight is not None and unknown_weight < 0:
            raise InputError(f"retriever.unknown_weight={unknown_weight}: must not be below 0")
        self.model = load_static(checkpoint)
        if unknown_weight is not None:
            self.model = replace(self.model, unknown_weight=unknown_weight)
        self.encoder, self.vocabulary = self.model.with_unknown_words()
        self.max_tokens, self.near = self.model.max_tokens, self.model.near
        self.about, self.checkpoint = self.model.about, checkpoint

    @property
    def dim(self) -> int:
        return self.encoder.dim

    def fingerprint(self) -> dict[str, Any]:
        return {"weights": self.encoder.fingerprint, "arithmetic": "torch.float32"}

    def encode(self, documents: Documents) -> Floats:
        return self.encoder.encode(documents)

    def save_model(self, folder: Path) -> None:
        save_static(self.model, folder / FOLDER)


def trained_retriever(
    checkpoint: str | Path | None,
    index: IndexConfig | None = None,
    cache_dir: str | Path = ".cache",
) -> WordsRetriever:
    """Return the retriever of a saved static or HAtten model; InputError if there is none."""
    if checkpoint is not None and (find_saved(checkpoint, FOLDER) / CONFIG).is_file():
        return StaticRetriever(checkpoint, index)
    from citerec.hatten.retriever import HAttenRetriever  # torch

    return HAttenRetriever(checkpoint, index=index, cache_dir=cache_dir)
