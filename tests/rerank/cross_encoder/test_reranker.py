"""Scores do not depend on the batch and hardly on the back end; fingerprints cover what they depend on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.backends import batches
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import PairReader
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.queries import Queries
from citerec.tests.retrieval.test_every import question

EXACT = ScoringSettings("float32")
Pairs = tuple[np.ndarray, np.ndarray]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def all_pairs() -> Pairs:
    contexts, papers = np.divmod(np.arange(144), 12)
    return np.random.default_rng(0).permutation(contexts), papers


@pytest.fixture
def exact(tiny_reranker: Path, tiny_corpus: Corpus, all_pairs: Pairs) -> np.ndarray:
    return Reranker.open(tiny_reranker, EXACT).score(tiny_corpus, *all_pairs)


@given(st.lists(st.integers(1, 512), max_size=200), st.integers(1, 5000))
def test_batches_hold_each_pair_once_within_the_token_limit(lengths: list[int], tokens: int) -> None:
    given, found = np.array(lengths, np.int64), list(batches(np.array(lengths, np.int64), tokens))
    assert sorted(row for rows in found for row in rows.tolist()) == list(range(len(lengths)))
    longest = [int(given[rows].max()) for rows in found]
    assert longest == sorted(longest, reverse=True)
    padded = [-(-most // 8) * 8 for most in longest]
    assert all(most * len(rows) <= tokens or len(rows) == 1 for most, rows in zip(padded, found, strict=True))
    # No batch but the last has room for one more pair.
    assert all(most * (len(rows) + 1) > tokens for most, rows in zip(padded[:-1], found[:-1], strict=True))


def test_scores_match_the_network_on_single_pairs(
    exact: np.ndarray, tiny_reranker: Path, tiny_corpus: Corpus, all_pairs: Pairs
) -> None:
    model = CrossEncoder.open(tiny_reranker)
    pairs = PairReader(tiny_corpus, model.tokenizer, model.config).pairs(*all_pairs)
    with torch.no_grad():
        expected = [float(model.scores(model(*pairs.padded(np.array([row]))))[0]) for row in range(144)]
    assert exact.dtype == np.float32 and np.std(expected) > 0.01
    np.testing.assert_allclose(exact, expected, atol=1e-5)


def test_queries_by_text_are_scored_like_contexts(
    exact: np.ndarray, tiny_reranker: Path, tiny_corpus: Corpus, all_pairs: Pairs
) -> None:
    questions = [question(tiny_corpus, row) for row in range(12)]
    asked = Queries.from_list(tiny_corpus, questions)[::-1]
    papers = np.tile(np.arange(-1, 12, dtype=np.int32), (12, 1))
    found = Reranker.open(tiny_reranker, EXACT).score_candidates(asked, papers)
    assert (found[:, 0] == -np.inf).all()
    expected = np.empty((12, 12), np.float32)
    expected[11 - all_pairs[0], all_pairs[1]] = exact
    np.testing.assert_allclose(found[:, 1:], expected, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 100, 1000, 100_000])
def test_scores_do_not_depend_on_the_batch(
    exact: np.ndarray, tiny_reranker: Path, tiny_corpus: Corpus, all_pairs: Pairs, tokens: int
) -> None:
    other = Reranker.open(tiny_reranker, replace(EXACT, tokens=tokens))
    order = np.random.default_rng(1).permutation(144)
    done: list[int] = []
    found = other.score(tiny_corpus, all_pairs[0][order], all_pairs[1][order], done.append)
    np.testing.assert_allclose(found, exact[order], atol=1e-5)
    assert sum(done) == 144 and (tokens > 1000) == (len(done) == 1)
    few = other.score(tiny_corpus, all_pairs[0][:5], all_pairs[1][:5])
    np.testing.assert_allclose(few, exact[:5], atol=1e-5)


def test_no_pairs_and_another_corpus(tiny_reranker: Path, tiny_corpus: Corpus, demo_corpus: Corpus) -> None:
    rows, reranker = np.arange(5), Reranker.open(tiny_reranker, EXACT)
    assert reranker.score(tiny_corpus, rows[:0], rows[:0]).shape == (0,)
    one, other = reranker.score(tiny_corpus, rows, rows), reranker.score(demo_corpus, rows, rows)
    assert not np.allclose(one, other)
    assert np.array_equal(reranker.score(tiny_corpus, rows, rows), one)


def test_int8_is_close_and_its_graph_is_written_once(
    exact: np.ndarray, tiny_reranker: Path, tiny_corpus: Corpus, all_pairs: Pairs, cache: Path
) -> None:
    int8 = ScoringSettings("int8", threads=2)
    found = Reranker.open(tiny_reranker, int8).score(tiny_corpus, *all_pairs)
    assert not np.allclose(found, exact, atol=1e-4)
    assert np.corrcoef(exact, found)[0, 1] > 0.98  # a random network does not average errors out
    (graph,) = cache.glob("onnx/*.onnx")
    written = graph.stat().st_mtime_ns
    contexts, papers = all_pairs
    again = Reranker.open(tiny_reranker, replace(int8, threads=1, tokens=100))
    # Each pair is scored alone, so scores do not depend on the batch.
    np.testing.assert_array_equal(again.score(tiny_corpus, contexts[100:], papers[100:]), found[100:])
    assert graph.stat().st_mtime_ns == written


def test_fastest_is_int8_for_berts_on_cpus(tiny_reranker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    fastest = ScoringSettings("fastest")
    assert Reranker.open(tiny_reranker, fastest).backend.arithmetic == "onnxruntime int8"
    model = CrossEncoder.open(tiny_reranker)
    model.model.config.hidden_act = "relu"  # another network than the graph's
    assert Reranker(model, fastest).backend.arithmetic.startswith("torch cpu")
    with pytest.raises(InputError, match="int8: supports only BERT, and this model is a BertModel with relu"):
        Reranker(model, ScoringSettings("int8"))


def configure(**changes: Any) -> Callable[[CrossEncoder], None]:
    def change(model: CrossEncoder) -> None:
        model.config = replace(model.config, **changes)

    return change


def nudge(model: CrossEncoder) -> None:
    with torch.no_grad():
        model.score.bias.add_(1e-6)


def sharpen(model: CrossEncoder) -> None:
    model.head = "sigmoid"


def test_the_fingerprint_covers_exactly_what_scores_depend_on(tiny_reranker: Path, tmp_path: Path) -> None:
    def saved(name: str, change: Callable[[CrossEncoder], None]) -> Path:
        model = CrossEncoder.open(tiny_reranker)
        change(model)
        model.save(tmp_path / name)
        return tmp_path / name

    changes = [configure(max_tokens=63), configure(other_citations="drop"), nudge, sharpen]
    others = [Reranker.open(saved(f"m{i}", change), EXACT) for i, change in enumerate(changes)]
    kinds = [EXACT, ScoringSettings("bfloat16"), ScoringSettings("int8")]
    opened = [Reranker.open(tiny_reranker, kind) for kind in kinds]
    assert len({one.fingerprint for one in others + opened}) == len(others) + len(kinds)
    copy = Reranker.open(saved("copy", lambda model: None), replace(EXACT, tokens=17))
    assert copy.fingerprint == opened[0].fingerprint and copy.name == "copy"
    assert not copy.model.training and not any(one.requires_grad for one in copy.model.parameters())


def test_invalid_paths_raise_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such reranker folder"):
        Reranker.open(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("not weights")
    with pytest.raises(InputError, match="not a torch checkpoint of plain weights"):
        Reranker.open(tmp_path / "notes.txt")


def test_the_output_folder_of_a_training_opens_its_reranker(tiny_reranker: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_reranker, tmp_path / "reranker")
    found = Reranker.open(tmp_path, EXACT)
    assert found.fingerprint == Reranker.open(tiny_reranker, EXACT).fingerprint and found.name == "reranker"
