"""The fastest back end is timed once; a more exact one of nearly the same speed is preferred."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder import fastest as module
from citerec.rerank.cross_encoder.fastest import choose_fastest
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.settings import ScoringSettings

FASTEST = ScoringSettings("fastest", threads=2)
RATES = {
    "torch float32": 10.0,
    "openvino float32": 20.0,
    "torch bfloat16": 30.0,
    "openvino bfloat16": 46.0,
    "openvino int8": 50.0,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    return tmp_path / "fastest"


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Simulate a machine with all back ends, as fast as RATES; returns those that were timed."""
    timed: list[str] = []

    def fake_backend(model: CrossEncoder, scoring: ScoringSettings, identity: str) -> Any:
        name = f"{scoring.backend} {scoring.precision}"

        def prepare(*given: object) -> None:
            if name not in RATES:
                raise InputError("cannot take this model")

        return SimpleNamespace(name=name, prepare=prepare)

    def speed(backend: Any, pairs: object) -> float:
        timed.append(backend.name)
        return RATES[backend.name]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(module, "precision", lambda name: torch.bfloat16)
    monkeypatch.setattr(module, "_version", lambda name: "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(module, "open_backend", fake_backend)
    monkeypatch.setattr(module, "_pairs_per_second", speed)
    return timed


def chosen(model: CrossEncoder, scoring: ScoringSettings = FASTEST, identity: str = "a") -> str:
    found = choose_fastest(model, scoring, identity)
    return f"{found.backend} {found.precision}"


def test_the_most_exact_of_the_fastest_is_chosen_and_timed_once(
    timed: list[str], tiny_reranker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = CrossEncoder.open(tiny_reranker)
    assert chosen(model) == "openvino bfloat16"  # 46 of 50 pairs/s
    assert timed == list(RATES)
    assert "openvino bfloat16; pairs of 64 tokens per second on 2 threads: torch float32 10.0" in caplog.text
    assert chosen(model) == "openvino bfloat16" and len(timed) == 5
    assert chosen(model, ScoringSettings("fastest", "float32", threads=2)) == "openvino float32"
    assert timed[5:] == ["torch float32", "openvino float32"]
    for other in ({"identity": "b"}, {"scoring": ScoringSettings("fastest", threads=1)}):
        before = len(timed)
        chosen(model, **other)
        assert len(timed) == before + 5
    for plain in (ScoringSettings(), ScoringSettings("torch", "float32"), ScoringSettings("openvino")):
        assert choose_fastest(model, plain, "a") == plain
    assert chosen(model, ScoringSettings("fastest", "int8")) == "auto int8"  # no choice on a GPU or for int8


def test_a_back_end_that_does_not_support_the_model_is_skipped(
    timed: list[str], tiny_reranker: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(RATES, "openvino int8")
    monkeypatch.delitem(RATES, "openvino bfloat16")
    assert chosen(CrossEncoder.open(tiny_reranker)) == "torch bfloat16"
    assert "openvino int8 skipped: cannot take this model" in caplog.text


def test_only_installed_back_ends_are_timed(
    timed: list[str], tiny_reranker: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = CrossEncoder.open(tiny_reranker)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert chosen(model) == "torch bfloat16" and timed == ["torch float32", "torch bfloat16"]
    monkeypatch.setattr(module, "precision", lambda name: torch.float32)
    caplog.set_level("INFO")
    assert chosen(model) == "torch float32" and len(timed) == 2
    assert "the extra int8 adds faster back ends" in caplog.text


@pytest.mark.slow
def test_real_timings_choose_a_back_end_with_the_scores_of_float32(
    tiny_reranker: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.01)
    contexts, papers = np.divmod(np.arange(24), 12)
    exact = Reranker.open(tiny_reranker, ScoringSettings("torch", "float32"))
    found = Reranker.open(tiny_reranker, ScoringSettings("fastest", "float32"))
    assert found.scoring.backend in ("torch", "openvino")
    assert len(list(cache.glob("*"))) == (importlib.util.find_spec("openvino") is not None)
    scores = found.score(tiny_corpus, contexts, papers)
    np.testing.assert_allclose(scores, exact.score(tiny_corpus, contexts, papers), atol=1e-4)
