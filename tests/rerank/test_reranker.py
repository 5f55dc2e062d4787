"""Scores do not depend on what is scored beside them, and fingerprints on nothing else than scores do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datasets.corpus import Corpus
from datasets.errors import InputError
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import PairReader
from rerank.reranker import Reranker, ScoringConfig

EXACT = ScoringConfig(precision="float32")


@pytest.fixture
def all_pairs(tiny_corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    contexts, papers = np.divmod(np.arange(144), 12)
    return np.random.default_rng(0).permutation(contexts), papers


def test_scores_are_the_net_s_on_one_pair_at_a_time(
    tiny_reranker: Path, tiny_corpus: Corpus, all_pairs: tuple[np.ndarray, np.ndarray]
) -> None:
    found = Reranker.open(tiny_reranker, EXACT).score(tiny_corpus, *all_pairs)
    model = CrossEncoder.load(tiny_reranker)
    pairs = PairReader(tiny_corpus, model.tokenizer, model.config).pairs(*all_pairs)
    with torch.no_grad():
        expected = [float(model.scores(model(*pairs.padded(np.array([row]))))[0]) for row in range(144)]
    assert found.dtype == np.float32 and np.std(expected) > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 100, 1000, 100_000])
def test_scores_do_not_depend_on_the_batch(
    tiny_reranker: Path, tiny_corpus: Corpus, all_pairs: tuple[np.ndarray, np.ndarray], tokens: int
) -> None:
    whole = Reranker.open(tiny_reranker, EXACT).score(tiny_corpus, *all_pairs)
    other = Reranker.open(tiny_reranker, replace(EXACT, tokens=tokens))
    order = np.random.default_rng(1).permutation(144)
    done: list[int] = []
    found = other.score(tiny_corpus, all_pairs[0][order], all_pairs[1][order], done.append)
    np.testing.assert_allclose(found, whole[order], atol=1e-5)
    assert sum(done) == 144 and (tokens > 1000) == (len(done) == 1)
    few = other.score(tiny_corpus, all_pairs[0][:5], all_pairs[1][:5])
    np.testing.assert_allclose(few, whole[:5], atol=1e-5)


def test_no_pairs_have_no_scores(tiny_reranker: Path, tiny_corpus: Corpus) -> None:
    none = np.zeros(0, np.int64)
    assert Reranker.open(tiny_reranker).score(tiny_corpus, none, none).shape == (0,)


def test_another_corpus_is_read_anew(tiny_reranker: Path, tiny_corpus: Corpus, demo_corpus: Corpus) -> None:
    rows = np.arange(5)
    reranker = Reranker.open(tiny_reranker, EXACT)
    one, other = reranker.score(tiny_corpus, rows, rows), reranker.score(demo_corpus, rows, rows)
    assert not np.allclose(one, other)
    assert np.array_equal(reranker.score(tiny_corpus, rows, rows), one)


@pytest.fixture
def saved(tiny_reranker: Path, tmp_path: Path) -> Callable[[Callable[[CrossEncoder], Any]], Path]:
    def changed(change: Callable[[CrossEncoder], Any]) -> Path:
        model = CrossEncoder.load(tiny_reranker)
        change(model)
        model.save(tmp_path / "changed")
        return tmp_path / "changed"

    return changed


def configure(**changes: Any) -> Callable[[CrossEncoder], None]:
    def change(model: CrossEncoder) -> None:
        model.config = replace(model.config, **changes)

    return change


def nudge(model: CrossEncoder) -> None:
    with torch.no_grad():
        model.score.bias.add_(1e-6)


def sharpen(model: CrossEncoder) -> None:
    model.head = "sigmoid"


@pytest.mark.parametrize(
    "change", [configure(max_tokens=63), configure(others="drop"), nudge, sharpen], ids=lambda c: c.__name__
)
def test_all_that_scores_depend_on_is_in_the_fingerprint(
    tiny_reranker: Path,
    saved: Callable[[Callable[[CrossEncoder], Any]], Path],
    change: Callable[[CrossEncoder], Any],
) -> None:
    assert Reranker.open(saved(change), EXACT).fingerprint != Reranker.open(tiny_reranker, EXACT).fingerprint


def test_what_scores_do_not_depend_on_is_not_in_the_fingerprint(
    tiny_reranker: Path, saved: Callable[[Callable[[CrossEncoder], Any]], Path]
) -> None:
    one = Reranker.open(tiny_reranker, EXACT)
    copy = saved(lambda model: None)
    assert Reranker.open(copy, replace(EXACT, tokens=17)).fingerprint == one.fingerprint
    assert Reranker.open(copy).name == "changed"
    rounded = Reranker.open(tiny_reranker, ScoringConfig(precision="bfloat16"))
    assert rounded.fingerprint != one.fingerprint


def test_the_model_is_frozen(tiny_reranker: Path) -> None:
    reranker = Reranker.open(tiny_reranker)
    assert not reranker.model.training
    assert not any(weight.requires_grad for weight in reranker.model.parameters())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": "onnx"}, r"scoring\.backend=onnx: choose one of auto, torch, openvino"),
        ({"precision": "int4"}, r"scoring\.precision=int4: choose one of auto, float32, bfloat16, int8"),
        ({"tokens": 0}, r"scoring\.tokens=0: must be a whole number from 1 on"),
        ({"threads": -1}, r"scoring\.threads=-1: must be a whole number, 0 or more"),
        ({"compile": True, "precision": "int8"}, r"scoring\.compile=true: only with scoring\.backend=torch"),
    ],
)
def test_options_that_cannot_be_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ScoringConfig(**given)


def test_a_path_that_is_nothing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder of a reranker"):
        Reranker.open(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("not weights")
    with pytest.raises(InputError, match="not a torch checkpoint of plain weights"):
        Reranker.open(tmp_path / "notes.txt")
