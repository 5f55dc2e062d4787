"""Vectors trained on the corpus: training texts, epochs, determinism and caching."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.hatten.words import word2vec as module
from citerec.hatten.words.word2vec import TrainingTexts, Word2Vec, default_epochs


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    options = {"dim": 8, "epochs": 1, "window": 3, "min_count": 2, "seed": 0, "workers": 1}
    return {**options, "cache_dir": str(folder), **changes}


def test_training_reads_only_titles_abstracts_and_training_contexts(tiny_corpus: Corpus) -> None:
    texts = TrainingTexts(tiny_corpus)
    passages = list(texts)
    running = Counter(word for passage in passages for word in passage)
    counts = zip(tiny_corpus.words, tiny_corpus.word_counts.tolist(), strict=True)
    assert running == Counter({word: n for word, n in counts if n})
    assert len(passages) == len(texts) and running.total() == texts.words
    assert ["a", "dependency", "parser", "targetcit", "reads", "the", "captions", "."] in passages  # train
    assert not any("phonemes" in p and "targetcit" in p for p in passages)  # test
    assert not any("lists" in p and "targetcit" in p for p in passages)  # val
    assert list(texts) == passages, "every epoch reads the same"


@pytest.mark.parametrize(("words", "epochs"), [(1, 20), (6_000_000, 10), (10**9, 4)])
def test_small_corpora_get_more_epochs(words: int, epochs: int) -> None:
    assert default_epochs(SimpleNamespace(word_counts=np.array([words - 1, 1]))) == epochs  # type: ignore[arg-type]


def test_one_thread_is_deterministic(tiny_corpus: Corpus, tmp_path: Path) -> None:
    item, two, other = (
        Word2Vec(**arguments(tmp_path / name, seed=seed)).load(tiny_corpus)
        for name, seed in (("one", 0), ("two", 0), ("two", 1))
    )
    assert item.words == two.words
    np.testing.assert_array_equal(item.matrix, two.matrix)
    assert not np.array_equal(item.matrix, other.matrix)


def test_vectors_are_trained_once_per_corpus_and_settings(
    tiny_corpus: Corpus, demo_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Word2Vec(**arguments(tmp_path)).load(tiny_corpus)
    Word2Vec(**arguments(tmp_path, window=4)).load(tiny_corpus)
    Word2Vec(**arguments(tmp_path)).load(demo_corpus)
    monkeypatch.setattr(module, "train_vectors", None)
    again = Word2Vec(**arguments(tmp_path, workers=2)).load(tiny_corpus)
    assert again.words == first.words
    np.testing.assert_array_equal(again.matrix, first.matrix)
    for change in ({"seed": 1}, {"dim": 9}, {"epochs": 2}, {"min_count": 3}):
        with pytest.raises(TypeError, match="NoneType"):
            Word2Vec(**arguments(tmp_path, **change)).load(tiny_corpus)


def test_rare_words_are_excluded_but_markers_always_included(
    tiny_corpus: Corpus, tiny_source: Path, tmp_path: Path
) -> None:
    result = Word2Vec(**arguments(tmp_path)).load(tiny_corpus)
    frequent = {w for w, n in zip(tiny_corpus.words, tiny_corpus.word_counts, strict=True) if n >= 2}
    assert set(result.words) == frequent | {"targetcit", "othercit"} and result.dim == 8
    with pytest.raises(InputError, match=r"no word occurs 1000 times.*embeddings\.min_count"):
        Word2Vec(**arguments(tmp_path, min_count=1000)).load(tiny_corpus)
    without_contexts = open_corpus(tiny_source, splits=["test"], cache_dir=tmp_path)
    assert {"targetcit", "othercit"} <= set(Word2Vec(**arguments(tmp_path)).load(without_contexts).words)
