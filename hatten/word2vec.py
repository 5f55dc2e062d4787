"""Word vectors trained on the corpus at hand, by gensim's word2vec (Mikolov et al. 2013)."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets.errors import InputError
from datasets.progress import count_progress
from datasets.records import MARKER_WORDS, TRAIN
from hatten.words import WordVectors, cached_vectors, log_coverage, quiet_gensim

if TYPE_CHECKING:
    from datasets.columns import Ragged
    from datasets.corpus import Corpus

log = logging.getLogger(__name__)

RUNNING_WORDS = 60_000_000
"""Trained on in all, about; a minute or two on two cores."""
FEWEST, MOST = 4, 20
"""Epochs at least and at most."""
GENSIM = {"sg": 0, "negative": 10, "sample": 1e-4, "alpha": 0.1}
"""CBOW with 10 noise words to a neighbour, words above a share of 1e-4 thinned out, the rate at the start."""
REPORT_EVERY = 50_000  # running words
SAY_EVERY = 10.0  # seconds


def word2vec(
    corpus: Corpus,
    dim: int,
    epochs: int | None,
    window: int,
    min_count: int,
    seed: int,
    cache_dir: str,
    workers: int | None = None,
) -> WordVectors:
    """Vectors trained on titles, abstracts and training contexts, or those kept from the last time.

    Args:
        epochs: passes over the running words; None: as many as make RUNNING_WORDS, FEWEST to MOST.
        window: most words on each side that count as neighbours.
        min_count: rarer words get no vector.
        workers: threads, by default one a core. Only one thread gives the same vectors each time; with more
            it is the cache, a file for each corpus and settings, that keeps all runs on the same vectors.
    """
    settings = {
        "vector_size": dim,
        "epochs": epochs or passes(corpus),
        "window": window,
        "min_count": min_count,
        "seed": seed,
        **GENSIM,
    }
    key = {"corpus": corpus.fingerprint, **settings}
    threads = workers or len(os.sched_getaffinity(0))
    found = cached_vectors(cache_dir, "word2vec", key, lambda: train_vectors(corpus, settings, threads))
    return log_coverage(found.with_words(MARKER_WORDS, seed), corpus)


def passes(corpus: Corpus) -> int:
    """How many epochs suit the size of the corpus."""
    words = max(int(corpus.word_counts.sum()), 1)
    return min(max(math.ceil(RUNNING_WORDS / words), FEWEST), MOST)


def train_vectors(corpus: Corpus, settings: dict[str, Any], workers: int = 1) -> WordVectors:
    """Vectors trained with these settings of gensim's; InputError when no word is frequent enough."""
    from gensim.models import Word2Vec

    name, least, epochs = f"word2vec of {corpus.name}", settings["min_count"], settings["epochs"]
    counted = zip(corpus.words, corpus.word_counts.tolist(), strict=True)
    counts = {word: n for word, n in counted if n >= least or (n > 0 and word in MARKER_WORDS)}
    if not counts.keys() - set(MARKER_WORDS):
        raise InputError(f"corpus {corpus.name}: no word occurs {least} times; lower embeddings.min_count")
    texts = TrainingTexts(corpus, epochs)
    log.info(f"word vectors: training {name}, {epochs} x {texts.words:,} running words, {workers} threads")
    start = time.monotonic()
    with quiet_gensim(), count_progress("word vectors", texts.words * epochs) as texts.report:
        model = Word2Vec(workers=workers, **settings)
        model.build_vocab_from_freq(counts, corpus_count=len(texts))
        model.train(texts, total_examples=len(texts), total_words=texts.words, epochs=epochs)
    seconds = max(time.monotonic() - start, 1e-9)
    log.info(
        f"word vectors: trained in {seconds:.0f} s, {texts.words * epochs / seconds:,.0f} running words/s"
    )
    return WordVectors(model.wv.index_to_key, np.asarray(model.wv.vectors), name)


class TrainingTexts:
    """The texts that vectors are trained on, as lists of words: titles, abstracts, training contexts.

    Contexts of other splits are left out: they are what the model is tested on. `report` is told how many
    running words have passed, and the log now and then how many epochs.
    """

    def __init__(self, corpus: Corpus, epochs: int = 1) -> None:
        """epochs: how often they will be read."""
        self._types = np.array(corpus.words, object)
        training = corpus.splits[TRAIN].contexts if TRAIN in corpus.splits else np.empty(0, np.int64)
        contexts = corpus.context_tokens.take(training)
        self._parts: list[Ragged] = [corpus.title_tokens, corpus.abstract_tokens, contexts]
        self.words: int = sum(int(part.offsets[-1]) for part in self._parts)
        self.epochs, self._read = epochs, 0
        self._start = self._said = time.monotonic()
        self.report: Callable[[int], None] = lambda words: None

    def __len__(self) -> int:
        return sum(int((part.lengths > 0).sum()) for part in self._parts)

    def __iter__(self) -> Iterator[list[str]]:
        passed = 0
        for tokens in chain(*self._parts):
            if len(tokens):
                yield self._types[tokens].tolist()
            passed += len(tokens)
            if passed >= REPORT_EVERY:
                self.report(passed)
                passed = 0
        self.report(passed)
        self._read, now = self._read + 1, time.monotonic()
        if self._read < self.epochs and now - self._said > SAY_EVERY:
            self._said, left = now, (now - self._start) * (self.epochs / self._read - 1)
            log.info(f"word vectors: epoch {self._read} of {self.epochs} done, about {left:.0f} s left")
