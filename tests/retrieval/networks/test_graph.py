"""Graphs compute what transformers computes, alone and in 8 bits."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from citerec.base.errors import InputError
from citerec.retrieval.networks.graph import Bert, Head, write_graph
from citerec.retrieval.networks.session import Network

HEADS, SIZE, WORDS = 4, 32, 200


@pytest.fixture(scope="module")
def model() -> BertModel:
    """A BERT of three layers whose biases and norms are not those of a new one."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=SIZE,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        intermediate_size=64,
    )
    made = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for name, value in made.named_parameters():
            value.add_(torch.randn_like(value) * (0.3 if "LayerNorm" in name or "bias" in name else 0.1))
        norm = made.encoder.layer[0].output.LayerNorm  # a channel that is far larger than the others
        norm.weight[3] = 20.0
    return made


def bert(model: BertModel, head: Head | None = None) -> Bert:
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    return Bert(weights, HEADS, model.config.layer_norm_eps, head)


def texts(count: int = 12) -> list[list[int]]:
    random = np.random.default_rng(1)
    return [random.integers(WORDS, size=random.integers(1, 40)).tolist() for _ in range(count)]


def expected(model: BertModel, ids: list[int], types: list[int] | None = None) -> np.ndarray:
    inputs = {"input_ids": torch.tensor([ids])}
    if types is not None:
        inputs["token_type_ids"] = torch.tensor([types])
    with torch.no_grad():
        return np.asarray(model(**inputs).last_hidden_state[0])


def test_hidden_states_equal_those_of_transformers(model: BertModel, tmp_path: Path) -> None:
    write_graph(bert(model), tmp_path / "exact.onnx", int8=False)
    network = Network(tmp_path / "exact.onnx")
    for ids in texts():
        np.testing.assert_allclose(network.run(ids), expected(model, ids), atol=2e-5)


@pytest.mark.parametrize("relu", [False, True])
def test_scores_equal_a_head_on_the_first_hidden_state(model: BertModel, tmp_path: Path, relu: bool) -> None:
    weight = np.random.default_rng(2).normal(size=SIZE).astype(np.float32)
    write_graph(bert(model, Head(weight, 0.25, relu)), tmp_path / "exact.onnx", int8=False)
    network = Network(tmp_path / "exact.onnx")
    for ids in texts():
        types = [int(number > len(ids) // 2) for number in range(len(ids))]
        first = expected(model, ids, types)[0]
        score = float(np.maximum(first, 0) @ weight if relu else first @ weight) + 0.25
        assert float(network.run(ids, types)) == pytest.approx(score, abs=1e-4)


def test_eight_bits_are_close_and_large_channels_do_not_spoil_them(
    model: BertModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error(name: str) -> float:
        write_graph(bert(model), tmp_path / name)
        network = Network(tmp_path / name)
        wrong = [np.abs(network.run(ids) - expected(model, ids)).mean() for ids in texts()]
        return float(np.mean(wrong))

    smoothed = error("smoothed.onnx")
    assert smoothed < 0.06
    monkeypatch.setattr("citerec.retrieval.networks.graph.LARGE", 1e9)  # no channel is made smaller
    assert error("plain.onnx") > 1.1 * smoothed


def test_words_of_four_bits_lose_nothing_that_had_four_bits(model: BertModel, tmp_path: Path) -> None:
    exact, name = bert(model), "embeddings.word_embeddings.weight"
    random = np.random.default_rng(3)
    scales = random.uniform(0.01, 0.1, (WORDS, SIZE // 32, 1)).astype(np.float16).astype(np.float32)
    words = random.integers(-8, 8, (WORDS, SIZE // 32, 32)) * scales
    words[:, :, 0] = -8 * scales[..., 0]
    weights = {**exact.weights, name: words.reshape(WORDS, SIZE).astype(np.float32)}
    hidden = {}
    for bits in (4, 8):
        write_graph(replace(exact, weights=weights, word_bits=bits), tmp_path / f"{bits}.onnx")
        network = Network(tmp_path / f"{bits}.onnx")
        hidden[bits] = np.concatenate([network.run(ids) for ids in texts()])
    write_graph(replace(exact, weights=weights), tmp_path / "exact.onnx", int8=False)
    expected = np.concatenate([Network(tmp_path / "exact.onnx").run(ids) for ids in texts()])
    wrong = {bits: float(np.abs(result - expected).mean()) for bits, result in hidden.items()}
    assert wrong[4] < 0.06 and wrong[4] < 1.02 * wrong[8]


def test_a_graph_of_other_weights_is_refused_and_files_are_the_same_each_time(
    model: BertModel, tmp_path: Path
) -> None:
    for name in ("a.onnx", "b.onnx"):
        write_graph(bert(model), tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    lacking = {name: value for name, value in bert(model).weights.items() if "layer.1.output" not in name}
    with pytest.raises(InputError, match=r"x\.onnx: these are not the weights of a BERT .*layer\.1\.output"):
        write_graph(Bert(lacking, HEADS), tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_many_texts_are_run_in_threads_and_errors_are_one_line(model: BertModel, tmp_path: Path) -> None:
    write_graph(bert(model), tmp_path / "one.onnx")
    network, inputs, done = Network(tmp_path / "one.onnx"), texts(30), list[int]()
    result = network.map(
        [(ids, None) for ids in inputs], lambda number, hidden: (number, hidden), done.append
    )
    assert [number for number, _ in result] == list(range(30)) and sum(done) == 30
    for (_, hidden), ids in zip(result, inputs, strict=True):
        np.testing.assert_array_equal(hidden, network.run(ids))

    def fail(number: int, _: object) -> None:
        raise RuntimeError(str(number))

    with pytest.raises(RuntimeError):
        network.map([(ids, None) for ids in inputs], fail)
    with pytest.raises(InputError, match=r"gone\.onnx: is missing"):
        Network(tmp_path / "gone.onnx").run([1])
    (tmp_path / "bad.onnx").write_bytes(b"not a graph")
    with pytest.raises(InputError, match=r"bad\.onnx: damaged"):
        Network(tmp_path / "bad.onnx").run([1])


def test_a_network_leaves_nothing_in_the_home_folder(model: BertModel, tmp_path: Path) -> None:
    write_graph(bert(model), tmp_path / "one.onnx")
    (home := tmp_path / "home").mkdir()
    code = "import sys, citerec.retrieval.networks.session as s; s.Network(s.Path(sys.argv[1])).run([1, 2])"
    kept = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "one.onnx")], env=kept | places, check=True)
    assert not list(home.rglob("*")), "a number of this machine and what was to be sent"
