"""What an encoder starts from: its words, their vectors, their inverse document frequencies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig

from datasets.errors import InputError
from datasets.ragged import Ragged
from datasets.store import Corpus
from hatten.vectors import WordVectors
from hatten.vocabulary import Vocabulary


@dataclass(frozen=True)
class WordsConfig:
    """What becomes of the words that a model is trained with."""

    punctuation: bool
    """keep tokens without a letter or digit"""
    centre_vectors: bool
    """word vectors less their mean, of unit length"""
    word_dropout: float
    """share of the words that a mean of word vectors leaves out in training"""

    def __post_init__(self) -> None:
        if self.word_dropout > 1:
            raise InputError(f"model.word_dropout={self.word_dropout}: must be in 0..1")


def starting_words(
    embeddings: DictConfig, corpus: Corpus, config: WordsConfig
) -> tuple[str, Vocabulary, NDArray[np.float32]]:
    """The name of the configured word vectors, the vocabulary [V] and the vectors [V, D] to start from."""
    vectors: WordVectors = instantiate(embeddings, corpus=corpus)
    vocabulary, table = words_and_vectors(vectors, config.punctuation)
    return vectors.name, vocabulary, centred(table, vocabulary, corpus) if config.centre_vectors else table


def words_and_vectors(vectors: WordVectors, punctuation: bool) -> tuple[Vocabulary, NDArray[np.float32]]:
    """The model's vocabulary [V] and vectors [V, D]; without `punctuation`, words have a letter or digit."""
    if not punctuation:
        rows = [row for row, word in enumerate(vectors.words) if any(map(str.isalnum, word))]
        vectors = WordVectors([vectors.words[row] for row in rows], vectors.matrix[rows], vectors.name)
    return vectors.vocabulary()


def centred(table: NDArray[np.float32], vocabulary: Vocabulary, corpus: Corpus) -> NDArray[np.float32]:
    """Vectors less their mean over running words, then of unit length; `<pad>` stays zero."""
    known = vocabulary.lookup(corpus.words)
    counts = np.bincount(known[known >= 0], np.asarray(corpus.word_counts)[known >= 0], len(vocabulary))
    moved = table - (table * (counts / max(counts.sum(), 1))[:, None]).sum(0)
    moved /= np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-8)
    moved[vocabulary.pad_id] = 0.0
    return moved.astype(np.float32)


def inverse_document_frequency(corpus: Corpus, vocabulary: Vocabulary) -> NDArray[np.float32]:
    """ln(1 + (N - n + 0.5) / (n + 0.5)) of each word [V], n of N papers have it in title or abstract."""
    frequency = np.zeros(len(corpus.words), np.int64)
    papers = len(corpus.paper_ids)
    for start in range(0, papers, 65536):
        rows = np.arange(start, min(start + 65536, papers))
        parts = [column.take(rows) for column in (corpus.title_tokens, corpus.abstract_tokens)]
        frequency += np.bincount(distinct_words(parts, len(corpus.words)), minlength=len(corpus.words))
    known = vocabulary.lookup(corpus.words)
    n = np.bincount(known[known >= 0], frequency[known >= 0], len(vocabulary))
    return np.log1p((papers - n + 0.5) / (n + 0.5)).astype(np.float32)


def distinct_words(parts: Iterable[Ragged], words: int) -> NDArray[np.int64]:
    """The words of each row over all parts, each once a row."""
    keys = [np.repeat(np.arange(len(part)), part.lengths) * words + part.values for part in parts]
    return np.asarray(np.unique(np.concatenate(keys)) % words)
