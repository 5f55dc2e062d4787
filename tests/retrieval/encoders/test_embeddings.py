"""Vectors of papers in the cache: written in shards, resumed, used again, and damaged."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.retrieval.encoders import embeddings
from citerec.retrieval.encoders.article import ArticleRetriever
from citerec.retrieval.encoders.embeddings import Advance, load_or_encode
from citerec.retrieval.settings import ArticleConfig
from citerec.retrieval.vectors import VectorTable
from citerec.tests.base.test_files import flip
from citerec.tests.forked import exit_code

MODEL: dict[str, Any] = {"weights": "abc", "query": ("title",)}
ROWS = np.arange(12)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and shards of three papers."""
    monkeypatch.setattr(embeddings, "SHARD", 3)
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vectors"


class Encoder:
    """Random vectors seeded by the texts. Records the calls, and stops before call number `stop`."""

    def __init__(self, corpus: Corpus, stop: int = -1) -> None:
        self.corpus, self.stop = corpus, stop
        self.asked: list[int] = []

    def __call__(self, rows: NDArray[np.int64], advance: Advance) -> NDArray[np.float32]:
        if len(self.asked) == self.stop:
            raise KeyboardInterrupt
        self.asked.append(len(rows))
        titles = (self.corpus.titles[row] for row in rows.tolist())
        drawn = [np.random.default_rng(list(title.encode())).standard_normal(6) for title in titles]
        advance(0.5)
        return np.array(drawn, np.float32)

    def load(self, rows: NDArray[np.int64] = ROWS, **model: Any) -> tuple[VectorTable, int]:
        return load_or_encode(self.corpus, rows, MODEL | model, self)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.npy")}


def test_vectors_are_kept_in_half_precision_and_used_again(tiny_corpus: Corpus, cache: Path) -> None:
    encoder = Encoder(tiny_corpus)
    vectors, encoded = encoder.load()
    assert encoder.asked == [3, 3, 3, 3] and encoded == 12
    np.testing.assert_array_equal(vectors[:], encoder(ROWS, lambda share: None).astype(np.float16))
    again = Encoder(tiny_corpus)
    kept, encoded = again.load()
    assert encoded == 0 and again.asked == [] and (kept[:] == vectors[:]).all()
    assert Encoder(tiny_corpus).load(weights="new")[1] == 12
    assert Encoder(tiny_corpus).load(ROWS[:11])[1] == 11
    assert len(list(cache.iterdir())) == 3
    assert Encoder(tiny_corpus).load(ROWS[:3])[1] == 3  # so few are not kept
    assert len(list(cache.iterdir())) == 3


def test_damage_is_named_and_repaired(tiny_corpus: Corpus, cache: Path) -> None:
    encoder = Encoder(tiny_corpus)
    encoder.load()
    good, (folder,) = files(cache), cache.iterdir()
    names = ("000000003.npy", "000000009.npy")
    for name in names:
        flip(folder / name)
    for name in names:
        with pytest.raises(InputError, match=rf"{name}: damaged .*; remove this file and run again") as error:
            encoder.load()
        assert "\n" not in str(error.value)
        (folder / name).unlink()
    assert encoder.load()[1] == 3
    assert files(cache) == good


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])  # the last is infinite in 16 bits
@pytest.mark.parametrize("rows", [ROWS, ROWS[:3]])
def test_vectors_that_are_not_finite_are_not_kept(
    tiny_corpus: Corpus, cache: Path, value: float, rows: NDArray[np.int64]
) -> None:
    def diverged(rows: NDArray[np.int64], advance: Advance) -> NDArray[np.float32]:
        vectors = Encoder(tiny_corpus)(rows, advance)
        vectors[1, 2] = value
        return vectors

    with pytest.raises(InputError, match=r"vector 1 .*is not finite as float16; the encoder is damaged"):
        load_or_encode(tiny_corpus, rows, MODEL, diverged)
    assert not files(cache)


def test_a_retriever_finds_the_same_with_kept_vectors(tiny_corpus: Corpus, tiny_bert: Path) -> None:
    config = ArticleConfig("tiny", path=str(tiny_bert), max_tokens=64)
    rankings = []
    for reused in (False, True):
        retriever = ArticleRetriever(config, "float32").index(tiny_corpus)
        assert retriever.reused == reused
        rankings.append(retriever.search(ROWS, 5))
    first, second = rankings
    assert first.papers.tolist() == second.papers.tolist() and (first.scores == second.scores).all()
    # The vectors of papers do not depend on the settings of queries.
    assert ArticleRetriever(replace(config, query=("context",)), "float32").index(tiny_corpus).reused


def test_a_killed_run_resumes_to_the_same_bytes(
    tiny_corpus: Corpus, tiny_bert: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ArticleConfig("tiny", path=str(tiny_bert), max_tokens=64)

    def encode_and_die() -> None:
        torch.set_num_threads(1)  # the threads of this process are not copied
        write = embeddings._write

        def write_and_die(path: Path, array: Any) -> None:
            write(path, array)
            if path.name == "000000003.npy":
                os.kill(os.getpid(), signal.SIGKILL)

        pytest.MonkeyPatch().setattr(embeddings, "_write", write_and_die)
        ArticleRetriever(config, "float32").index(tiny_corpus)

    assert exit_code(encode_and_die) == -signal.SIGKILL
    assert sorted(files(cache)) == ["000000000.npy", "000000003.npy"]
    ArticleRetriever(config, "float32").index(tiny_corpus)
    resumed = files(cache)
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "other"))
    ArticleRetriever(config, "float32").index(tiny_corpus)
    assert resumed == files(tmp_path / "other")
