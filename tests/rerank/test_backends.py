"""Back ends give the scores of the plain net, as near as their arithmetic allows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datasets.corpus import Corpus
from datasets.errors import InputError
from rerank.backends import MODEL
from rerank.reranker import Reranker, ScoringConfig

PLAIN = ScoringConfig("torch", "float32")
needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None or importlib.util.find_spec("nncf") is None,
    reason="the extra int8 is not installed",
)


def scores(folder: Path, scoring: ScoringConfig, corpus: Corpus, first: int = 0) -> np.ndarray:
    contexts, papers = np.divmod(np.arange(first, 144), 12)
    return Reranker.open(folder, scoring).score(corpus, contexts, papers)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "int8-cache"))
    return tmp_path / "int8-cache"


@pytest.mark.parametrize("backend", ["torch", pytest.param("openvino", marks=needs_openvino)])
def test_bfloat16_is_near(tiny_reranker: Path, tiny_corpus: Corpus, backend: str) -> None:
    exact = scores(tiny_reranker, PLAIN, tiny_corpus)
    found = scores(tiny_reranker, ScoringConfig(backend, "bfloat16"), tiny_corpus)
    assert np.corrcoef(exact, found)[0, 1] > 0.99
    assert np.abs(exact - found).max() < 0.3 * exact.std()


@pytest.mark.slow
def test_compiled_is_the_same(tiny_reranker: Path, tiny_corpus: Corpus) -> None:
    exact = scores(tiny_reranker, PLAIN, tiny_corpus)
    compiled = ScoringConfig("torch", "float32", compile=True)
    np.testing.assert_allclose(scores(tiny_reranker, compiled, tiny_corpus), exact, atol=1e-5)


def test_threads_are_set(tiny_reranker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    Reranker.open(tiny_reranker, ScoringConfig(threads=3))
    Reranker.open(tiny_reranker)
    assert asked == [3]


@needs_openvino
def test_openvino_computes_the_same(tiny_reranker: Path, tiny_corpus: Corpus) -> None:
    exact = scores(tiny_reranker, PLAIN, tiny_corpus)
    for tokens in (4096, 90):  # all in few batches; many batches beside each other
        found = scores(
            tiny_reranker, ScoringConfig("openvino", "float32", tokens=tokens, threads=2), tiny_corpus
        )
        np.testing.assert_allclose(found, exact, atol=2e-5)


@pytest.mark.slow
@needs_openvino
def test_int8_is_near_and_calibrated_once(
    tiny_reranker: Path, tiny_corpus: Corpus, demo_corpus: Corpus, cache: Path
) -> None:
    exact = scores(tiny_reranker, PLAIN, tiny_corpus)
    found = scores(tiny_reranker, ScoringConfig(precision="int8"), tiny_corpus)
    assert not np.allclose(found, exact, atol=1e-4)
    assert np.corrcoef(exact, found)[0, 1] > 0.9  # of a random net, where errors are not averaged
    (model,) = cache.glob(f"int8/*/{MODEL}")
    assert 'element_type="i8"' in model.read_text()
    written = model.stat().st_mtime_ns
    again = scores(tiny_reranker, ScoringConfig(precision="int8"), tiny_corpus, 100)
    # The ranges of activations are fixed: a score does not depend on the batch.
    np.testing.assert_allclose(again, found[100:], atol=0.02 * float(exact.std()))
    assert model.stat().st_mtime_ns == written


@needs_openvino
def test_int8_is_another_fingerprint(tiny_reranker: Path) -> None:
    kinds = [
        PLAIN,
        ScoringConfig("torch", "bfloat16"),
        ScoringConfig("openvino", "float32"),
        ScoringConfig("openvino", "bfloat16"),
        ScoringConfig(precision="int8"),
    ]
    assert len({Reranker.open(tiny_reranker, kind).fingerprint for kind in kinds}) == len(kinds)


@needs_openvino
def test_a_batch_that_fails_ends_the_scoring(
    tiny_reranker: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was started is waited for, and the error comes out."""
    reranker = Reranker.open(tiny_reranker, ScoringConfig("openvino", "float32", tokens=90))
    pairs = reranker.prepare(tiny_corpus).pairs(np.zeros(20, np.int64), np.arange(20) % 12)

    def parts() -> Any:
        yield np.arange(3)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(reranker._backend.scores(pairs, parts()))


def test_what_is_not_installed_is_named(tiny_reranker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "openvino" else found(name))
    with pytest.raises(InputError, match="needs the package openvino: install the extra int8"):
        Reranker.open(tiny_reranker, ScoringConfig(precision="int8"))


def test_int8_is_not_torch_s(tiny_reranker: Path) -> None:
    with pytest.raises(InputError, match=r"scoring\.precision=int8 needs scoring\.backend=openvino"):
        Reranker.open(tiny_reranker, ScoringConfig("torch", "int8"))
