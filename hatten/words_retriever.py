"""Retrieval by an encoder over words: the nearest papers by cosine, with the static model or any other."""

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

from datasets.corpus import Corpus
from datasets.errors import InputError
from hatten.documents import DocumentReader, Documents, Vocabulary, check_tokenizer
from hatten.static import CONFIG, FOLDER, load_static, save_static
from retrieval.arrays import Floats
from retrieval.dense import DenseRetriever
from retrieval.queries import Queries
from retrieval.settings import IndexConfig, ProfileConfig
from retrieval.vectors import encode, encode_queries
from training.checkpoint import find_saved

log = logging.getLogger(__name__)

KNOWN_SHARE = 0.9
"""Share of a corpus's running words that a model should know; below it there is a warning."""


class WordsRetriever(DenseRetriever):
    """Encodes every candidate once; a query is encoded and compared with all of them."""

    vocabulary: Vocabulary
    """the words of the encoder"""
    max_tokens: int
    """words that are read of a paragraph"""
    near: tuple[int, ...] = ()
    """words on each side of the mark that are a paragraph more of a query"""
    about: Mapping[str, Any] = MappingProxyType({})
    """how the model came to be; it is refused for corpora of another tokeniser than that of its training"""
    checkpoint: str | Path | None = None
    """where the model is, for messages"""
    known_share: float
    """of the running words of the corpus that it is prepared for, those that the model knows"""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Of its vectors."""

    @abstractmethod
    def encode(self, documents: Documents) -> Floats:
        """B documents -> [B, dim]; zeros for one without a known word."""

    def prepare(self, corpus: Corpus) -> None:
        if wanted := self.about.get("tokenizer"):  # files of earlier versions do not say it
            check_tokenizer(corpus, wanted, f"checkpoint={self.checkpoint}")
        self._reader = DocumentReader(corpus, self.vocabulary, self.max_tokens, self.near)
        self.known_share = self._share_of(corpus)
        if self.known_share < KNOWN_SHARE:
            log.warning(
                f"{self.name}: the model knows {self.known_share:.0%} of the running words of {corpus.name}; "
                "was it trained on other data, or with another data.tokenizer?"
            )

    def _share_of(self, corpus: Corpus) -> float:
        words = np.array([any(map(str.isalnum, word)) for word in corpus.words], bool)
        counts = np.where(words, np.asarray(corpus.word_counts), 0)
        ids = self._reader.ids  # beyond the vocabulary: words that get a vector without being known
        return float(counts[(ids >= 0) & (ids < len(self.vocabulary))].sum() / max(counts.sum(), 1))

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return encode(self.encode, self._reader.papers, rows, self.dim, "papers")

    def encode_queries(self, queries: Queries | NDArray[np.int64]) -> NDArray[np.float32]:
        return encode_queries(self.encode, self._reader, queries, self.dim)


class StaticRetriever(WordsRetriever):
    """Nearest papers by a static embedding model."""

    name = "static"

    def __init__(
        self,
        checkpoint: str | Path | None,
        index: IndexConfig | None = None,
        profile: ProfileConfig | None = None,
        unknown_weight: float | None = None,
    ) -> None:
        """checkpoint: what train.py model=static saved, or a HAtten's, whose mean path is taken.

        unknown_weight: of words that the model lacks; None: as it was saved. Raises InputError when a file is
        missing or of another kind.
        """
        super().__init__(index, profile)
        if checkpoint is None:
            raise InputError(
                "retriever=static needs checkpoint=FOLDER, the output of train.py model=static, or a "
                "hatten.ckpt with a mean path"
            )
        if unknown_weight is not None and unknown_weight < 0:
            raise InputError(f"retriever.unknown_weight={unknown_weight}: must not be below 0")
        self.model = load_static(checkpoint)
        if unknown_weight is not None:
            self.model = replace(self.model, unknown_weight=unknown_weight)
        self.encoder, self.vocabulary = self.model.opened()
        self.max_tokens, self.near = self.model.max_tokens, self.model.near
        self.about, self.checkpoint = self.model.about, checkpoint

    @property
    def dim(self) -> int:
        return self.encoder.dim

    def fingerprint(self) -> dict[str, Any]:
        return {"weights": self.encoder.fingerprint, "arithmetic": "torch.float32"}

    def encode(self, documents: Documents) -> Floats:
        return self.encoder.encode(documents)

    def keep(self, folder: Path) -> None:
        save_static(self.model, folder / FOLDER)


def trained_retriever(
    checkpoint: str | Path | None,
    index: IndexConfig | None = None,
    profile: ProfileConfig | None = None,
    cache_dir: str | Path = ".cache",
) -> WordsRetriever:
    """The retriever of a saved model, a static one or HAtten; InputError where there is none."""
    if checkpoint is not None and (find_saved(checkpoint, FOLDER) / CONFIG).is_file():
        return StaticRetriever(checkpoint, index, profile)
    from hatten.retriever import HAttenRetriever  # torch

    return HAttenRetriever(checkpoint, index=index, profile=profile, cache_dir=cache_dir)
