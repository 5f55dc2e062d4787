"""Word vectors trained on the corpus with gensim's word2vec (Mikolov et al. 2013)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from citerec.base.errors import InputError
from citerec.base.progress import count_progress
from citerec.base.settings import cache_setting
from citerec.datasets.records import MARKER_WORDS, TRAIN
from citerec.hatten.words.vectors import Embeddings, WordVectors, cached_vectors, log_coverage
from citerec.retrieval.networks.session import cores

if TYPE_CHECKING:
    from citerec.datasets.columns import Ragged
    from citerec.datasets.corpus import Corpus

log = logging.getLogger(__name__)

TOKENS = 60_000_000
"""Approximate number of tokens to train on over all epochs; a minute or two on two cores."""
MIN_EPOCHS, MAX_EPOCHS = 4, 20
GENSIM_SETTINGS = {"sg": 0, "negative": 10, "sample": 1e-4, "alpha": 0.1}
"""CBOW, 10 negative samples, subsampling of words with a frequency above 1e-4, initial learning rate."""
REPORT_EVERY = 50_000  # tokens


@dataclass(frozen=True)
class Word2Vec(Embeddings):
    """Vectors trained on titles, abstracts and training contexts, or loaded from the cache.

    epochs: None: enough to read TOKENS, between MIN_EPOCHS and MAX_EPOCHS. window: maximum distance between a
    word and its context words. min_count: rarer words get no vector. workers: threads, one per core by
    default. Training is deterministic only with one thread; otherwise the cache, one file per corpus and
    settings, ensures that all runs use the same vectors.
    """

    dim: int = 200
    epochs: int | None = None
    window: int = 10
    min_count: int = 3
    seed: int = 0
    workers: int | None = None
    cache_dir: str = cache_setting()

    def width(self) -> int:
        return self.dim

    def load(self, corpus: Corpus) -> WordVectors:
        settings = {
            "vector_size": self.dim,
            "epochs": self.epochs or default_epochs(corpus),
            "window": self.window,
            "min_count": self.min_count,
            "seed": self.seed,
            **GENSIM_SETTINGS,
        }
        key = {"corpus": corpus.fingerprint, **settings}
        threads = self.workers or cores()
        kept = cached_vectors(
            self.cache_dir, "word2vec", key, lambda: train_vectors(corpus, settings, threads)
        )
        return log_coverage(kept.with_words(MARKER_WORDS, self.seed), corpus)


def default_epochs(corpus: Corpus) -> int:
    """Number of epochs for the size of the corpus."""
    words = max(int(corpus.word_counts.sum()), 1)
    return min(max(math.ceil(TOKENS / words), MIN_EPOCHS), MAX_EPOCHS)


def train_vectors(corpus: Corpus, settings: dict[str, Any], workers: int = 1) -> WordVectors:
    """Train vectors with gensim settings; InputError if no word is frequent enough."""
    from gensim.models import Word2Vec

    name, least, epochs = f"word2vec of {corpus.name}", settings["min_count"], settings["epochs"]
    counted = zip(corpus.words, corpus.word_counts.tolist(), strict=True)
    counts = {word: n for word, n in counted if n >= least or (n > 0 and word in MARKER_WORDS)}
    if not counts.keys() - set(MARKER_WORDS):
        raise InputError(f"corpus {corpus.name}: no word occurs {least} times; lower embeddings.min_count")
    texts = TrainingTexts(corpus)
    log.info(f"word vectors: training {name}, {epochs} x {texts.words:,} tokens, {workers} threads")
    start = time.monotonic()
    with count_progress("word vectors", texts.words * epochs) as texts.report:
        model = Word2Vec(workers=workers, **settings)
        model.build_vocab_from_freq(counts, corpus_count=len(texts))
        model.train(texts, total_examples=len(texts), total_words=texts.words, epochs=epochs)
    seconds = max(time.monotonic() - start, 1e-9)
    log.info(f"word vectors: trained in {seconds:.0f} s, {texts.words * epochs / seconds:,.0f} tokens/s")
    return WordVectors(model.wv.index_to_key, np.asarray(model.wv.vectors), name)


class TrainingTexts:
    """Iterates over titles, abstracts and training contexts as lists of words.

    Contexts of other splits are excluded, since models are evaluated on them. `report` is called with the
    number of words read since its last call.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._types = np.array(corpus.words, object)
        training = corpus.splits[TRAIN].contexts if TRAIN in corpus.splits else np.empty(0, np.int64)
        contexts = corpus.context_tokens.take(training)
        self._parts: list[Ragged] = [corpus.title_tokens, corpus.abstract_tokens, contexts]
        self.words: int = sum(int(part.offsets[-1]) for part in self._parts)
        self.report: Callable[[int], None] = lambda words: None

    def __len__(self) -> int:
        return sum(int((part.lengths > 0).sum()) for part in self._parts)

    def __iter__(self) -> Iterator[list[str]]:
        unreported = 0
        for tokens in chain(*self._parts):
            if len(tokens):
                yield self._types[tokens].tolist()
            unreported += len(tokens)
            if unreported >= REPORT_EVERY:
                self.report(unreported)
                unreported = 0
        self.report(unreported)
