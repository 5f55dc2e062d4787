"""Vectors trained on the corpus: what they are trained on, that they make sense, and that they are kept."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hatten.word2vec
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.prepare import open_corpus
from hatten import word2vec as module
from hatten.word2vec import Texts, passes, train_vectors, word2vec

SETTINGS: dict[str, Any] = {
    "vector_size": 16,
    "epochs": 10,
    "window": 5,
    "min_count": 3,
    "seed": 0,
    "sg": 0,
    "negative": 5,
    "sample": 1e-2,
    "alpha": 0.05,
}
TOPICS = [[f"{letter}{i}" for i in range(6)] for letter in ("parse", "vision")]


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """120 papers whose abstracts take their words from one of two topics."""
    folder, draw = tmp_path_factory.mktemp("topics"), random.Random(0)

    def text(topic: int) -> str:
        return " ".join(draw.choices(TOPICS[topic], k=30))

    papers = {str(i): {"title": text(i % 2), "abstract": text(i % 2)} for i in range(120)}
    contexts, queries = {}, []
    for i in range(100):
        masked = f"{text(i % 2)} TARGETCIT {text(i % 2)}"
        contexts[f"c{i}"] = {"masked_text": masked, "citing_id": str(i), "refid": str(i + 2)}
        queries.append({"context_id": f"c{i}", "positive_ids": [str(i + 2)]})
    for name, content in (("papers", papers), ("contexts", contexts), ("train", queries)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return open_corpus(folder, cache_dir=folder / "cache")


def test_training_reads_titles_abstracts_and_training_contexts_alone(tiny_corpus: Corpus) -> None:
    texts = Texts(tiny_corpus)
    passages = list(texts)
    running = Counter(word for passage in passages for word in passage)
    counts = zip(tiny_corpus.words, tiny_corpus.word_counts.tolist(), strict=True)
    assert running == Counter({word: n for word, n in counts if n})
    assert len(passages) == len(texts) and running.total() == texts.words
    assert ["a", "dependency", "parser", "targetcit", "reads", "the", "captions", "."] in passages  # train
    assert not any("phonemes" in p and "targetcit" in p for p in passages)  # test
    assert not any("lists" in p and "targetcit" in p for p in passages)  # val
    assert list(texts) == passages, "every epoch reads the same"


def test_words_of_one_topic_come_out_near_each_other(topics: Corpus) -> None:
    vectors = train_vectors(topics, SETTINGS)
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    rows = [[vectors.words.index(word) for word in topic] for topic in TOPICS]
    within = np.mean([unit[a] @ unit[b] for topic in rows for a in topic for b in topic if a != b])
    across = np.mean([unit[a] @ unit[b] for a in rows[0] for b in rows[1]])
    assert within > across + 0.5
    assert "targetcit" in vectors.words


@pytest.mark.parametrize(("words", "epochs"), [(1, 20), (6_000_000, 10), (10**9, 4)])
def test_small_corpora_are_passed_over_more_often(words: int, epochs: int) -> None:
    assert passes(SimpleNamespace(word_counts=np.array([words - 1, 1]))) == epochs  # type: ignore[arg-type]


def test_one_thread_gives_the_same_vectors_each_time(topics: Corpus) -> None:
    settings = {**SETTINGS, "epochs": 2}
    one, two = train_vectors(topics, settings), train_vectors(topics, settings)
    assert one.words == two.words
    np.testing.assert_array_equal(one.matrix, two.matrix)
    other = train_vectors(topics, {**settings, "seed": 1})
    assert not np.array_equal(one.matrix, other.matrix)


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    known = {"dim": 8, "epochs": 1, "window": 3, "min_count": 2, "seed": 0, "workers": 1}
    return {**known, "cache_dir": str(folder), **changes}


def test_trained_once_for_each_corpus_and_settings(
    topics: Corpus, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = word2vec(topics, **arguments(tmp_path))
    word2vec(topics, **arguments(tmp_path, window=4))
    word2vec(tiny_corpus, **arguments(tmp_path))
    monkeypatch.setattr(module, "train_vectors", None)
    again = word2vec(topics, **arguments(tmp_path, workers=2))
    assert again.words == first.words
    np.testing.assert_array_equal(again.matrix, first.matrix)
    for change in ({"seed": 1}, {"dim": 9}, {"epochs": 2}, {"min_count": 3}):
        with pytest.raises(TypeError, match="NoneType"):
            word2vec(topics, **arguments(tmp_path, **change))


def test_rare_words_are_left_out_and_both_markers_never(
    tiny_corpus: Corpus, tiny_source: Path, tmp_path: Path
) -> None:
    found = word2vec(tiny_corpus, **arguments(tmp_path))
    frequent = {w for w, n in zip(tiny_corpus.words, tiny_corpus.word_counts, strict=True) if n >= 2}
    assert set(found.words) == frequent | {"targetcit", "othercit"} and found.dim == 8
    with pytest.raises(InputError, match=r"no word occurs 1000 times.*embeddings\.min_count"):
        word2vec(tiny_corpus, **arguments(tmp_path, min_count=1000))
    without_contexts = open_corpus(tiny_source, splits=["test"], cache_dir=tmp_path)
    assert {"targetcit", "othercit"} <= set(word2vec(without_contexts, **arguments(tmp_path)).words)


def test_the_log_tells_now_and_then_how_far_it_is_and_the_end(
    topics: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hatten.word2vec, "SAY_EVERY", 0.0)
    caplog.set_level(logging.INFO)
    word2vec(topics, **arguments(tmp_path, epochs=3))
    told = [message for message in caplog.messages if message.startswith("word vectors:")]
    assert "training word2vec of topics" in told[0] and "3 x " in told[0]
    assert "epoch 1 of 3" in told[1] and "epoch 2 of 3" in told[2] and "s left" in told[2]
    assert "trained in" in told[3]
    assert "cover 100.0 %" in told[-1]
