"""Adapters of AdapterHub: what they give, and which are refused."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import BertModel, DistilBertConfig, DistilBertModel

from datasets.errors import InputError
from retrieval.adapters import add_adapter, is_adapted
from retrieval.encoder import ArticleEncoder, load_pretrained
from retrieval.settings import ArticleConfig
from retrieval.vectors import weights_hash

GOLDEN = Path(__file__).parent / "golden" / "adapter"
"""A tiny BERT with an adapter of normal weights, seed 0, and what the library adapters 1.3.0 with
transformers 4.57.6 (SeqBnConfig(reduction_factor=4)) gave for IDS."""
IDS = torch.tensor([[1, 5, 7, 9, 2, 0], [1, 8, 3, 12, 28, 2]])


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A copy of the adapter that may be damaged."""
    (tmp_path / "adapter").mkdir()
    for name in ("adapter_config.json", "pytorch_adapter.bin"):
        shutil.copy(GOLDEN / name, tmp_path / "adapter" / name)
    return tmp_path / "adapter"


def hidden(model: BertModel) -> Tensor:
    with torch.inference_mode():
        found: Tensor = model(input_ids=IDS, attention_mask=(IDS != 0).long()).last_hidden_state
    return found


def base() -> BertModel:
    return BertModel.from_pretrained(GOLDEN, add_pooling_layer=False).eval()


def changed(adapter: Path, **settings: Any) -> Path:
    path = adapter / "adapter_config.json"
    content = json.loads(path.read_text())
    content["config"] |= settings
    path.write_text(json.dumps(content))
    return adapter


def renamed(adapter: Path, old: str, new: str) -> Path:
    path = adapter / "pytorch_adapter.bin"
    weights = torch.load(path, weights_only=True)
    torch.save({key.replace(old, new): value for key, value in weights.items()}, path)
    return adapter


def test_gives_what_the_library_of_adapters_gives(adapter: Path) -> None:
    model = base()
    plain = hidden(model)
    add_adapter(model, adapter)
    expected = torch.from_numpy(np.load(GOLDEN / "expected.npy"))
    there = IDS != 0  # what stands at padding is nobody's concern
    torch.testing.assert_close(hidden(model)[there], expected[there], rtol=1e-5, atol=1e-5)
    assert (plain - expected)[there].abs().max() > 1


def test_one_layer_is_the_formula_of_the_paper(adapter: Path) -> None:
    model = base()
    add_adapter(model, adapter)
    weights = torch.load(adapter / "pytorch_adapter.bin", weights_only=True)
    own = load_file(GOLDEN / "model.safetensors")
    inner, x = torch.randn(3, 32), torch.randn(3, 16)
    name = "encoder.layer.1.output"

    def norm(values: Tensor) -> Tensor:
        return F.layer_norm(
            values, (16,), own[f"{name}.LayerNorm.weight"], own[f"{name}.LayerNorm.bias"], 1e-12
        )

    def side(values: Tensor, which: str) -> Tensor:
        key = f"{name}.adapters.[PRX].adapter_{which}"
        return values @ weights[f"{key}.weight"].T + weights[f"{key}.bias"]

    h = inner @ own[f"{name}.dense.weight"].T + own[f"{name}.dense.bias"]
    expected = norm(x + h + side(side(norm(x + h), "down.0").relu(), "up"))
    layers: Any = model.encoder.layer
    torch.testing.assert_close(layers[1].output(inner, x), expected, rtol=1e-5, atol=1e-5)


def test_names_with_and_without_the_model_s_prefix_and_safetensors_are_the_same(adapter: Path) -> None:
    model, other = base(), base()
    add_adapter(model, adapter)
    weights = torch.load(adapter / "pytorch_adapter.bin", weights_only=True)
    save_file({f"bert.{key}": value for key, value in weights.items()}, adapter / "adapter.safetensors")
    (adapter / "pytorch_adapter.bin").unlink()
    (adapter / "adapter_config.json").write_text('{"config": "pfeiffer", "hidden_size": 16}')
    add_adapter(other, adapter)
    assert weights_hash(other) == weights_hash(model) != weights_hash(base())


def test_an_encoder_with_an_adapter_is_saved_and_read_with_it(
    tiny_bert: Path, adapter: Path, tmp_path: Path
) -> None:
    config = ArticleConfig("tiny", path=str(tiny_bert), adapter=str(adapter), max_tokens=32)
    encoder = ArticleEncoder.pretrained(config)
    assert is_adapted(encoder)
    assert weights_hash(encoder) != weights_hash(ArticleEncoder.pretrained(replace(config, adapter=None)))
    with torch.no_grad():  # as training would
        trained: Any = encoder.model
        trained.encoder.layer[0].output.adapter_up.bias += 1
    encoder.save(tmp_path / "saved")
    again = ArticleEncoder.load(tmp_path / "saved")
    assert is_adapted(again) and weights_hash(again) == weights_hash(encoder)
    local = ArticleConfig("local", path=str(tmp_path / "saved"), max_tokens=32)
    assert weights_hash(ArticleEncoder.pretrained(local)) == weights_hash(encoder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mh_adapter": True}, "mh_adapter is true; only adapters of the configuration pfeiffer"),
        ({"non_linearity": "gelu"}, 'non_linearity is "gelu"; .* where it is "relu"'),
        ({"original_ln_before": False}, "original_ln_before is false"),
        ({"residual_before_ln": "post_add"}, 'residual_before_ln is "post_add"'),
        ({"scaling": 4.0}, "scaling is 4.0"),
        ({"leave_out": [0]}, r"leave_out is \[0\]"),
    ],
)
def test_other_kinds_of_adapters_are_refused(adapter: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        add_adapter(base(), changed(adapter, **settings))


def test_weights_of_another_model_are_refused(adapter: Path) -> None:
    for old, new, message in (
        ("layer.1.", "layer.5.", "layer.1.output.adapter_down.weight has shape none, and the model wants"),
        (".output.", ".attention.output.", "is no weight of an adapter after the feed-forward net"),
    ):
        shutil.copy(GOLDEN / "pytorch_adapter.bin", adapter / "pytorch_adapter.bin")
        with pytest.raises(InputError, match=message):
            add_adapter(base(), renamed(adapter, old, new))
    path = adapter / "adapter_config.json"
    path.write_text(path.read_text().replace('"hidden_size": 16', '"hidden_size": 768'))
    with pytest.raises(InputError, match="an adapter for a model of hidden size 768, and this one has 16"):
        add_adapter(base(), adapter)


def test_a_model_of_another_kind_is_refused(adapter: Path) -> None:
    model = DistilBertModel(DistilBertConfig(vocab_size=9, dim=16, hidden_dim=8, n_layers=1, n_heads=1))
    with pytest.raises(InputError, match="for models like BERT, not DistilBertModel"):
        add_adapter(model, adapter)


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("import builtins; builtins.adapter_payload_ran = True",)


def test_damaged_and_dangerous_files_are_one_clear_line(adapter: Path) -> None:
    content = (adapter / "pytorch_adapter.bin").read_bytes()
    for bad in (content[:700], b"", pickle.dumps(Payload(), 2)):
        (adapter / "pytorch_adapter.bin").write_bytes(bad)
        with pytest.raises(InputError, match=r"pytorch_adapter\.bin: the weights cannot be read") as error:
            add_adapter(base(), adapter)
        assert "\n" not in str(error.value)
    assert not hasattr(__import__("builtins"), "adapter_payload_ran")
    for bad_text in ("{", "[]", '{"config": 3}'):
        (adapter / "adapter_config.json").write_text(bad_text)
        with pytest.raises(InputError, match="not the settings of an adapter"):
            add_adapter(base(), adapter)
    (adapter / "adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"no configuration; expected adapter_config\.json there"):
        add_adapter(base(), adapter)


def test_an_adapter_is_looked_for_in_the_cache_and_then_on_the_hub(
    tiny_bert: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    config = ArticleConfig("specter2", path=str(tiny_bert), adapter="allenai/specter2", max_tokens=32)
    with pytest.raises(InputError) as error:
        load_pretrained(config)
    line, put = str(error.value), tmp_path / "cache" / "models" / "allenai" / "specter2"
    assert "https://huggingface.co/allenai/specter2 into" in line and str(put) in line and "\n" not in line
    assert "adapter_config.json and adapter.safetensors or pytorch_adapter.bin" in line
    shutil.copytree(adapter, put)
    assert is_adapted(load_pretrained(config)[0])
    with pytest.raises(InputError, match=r"encoder\.adapter=nowhere: neither a folder nor an id"):
        load_pretrained(replace(config, adapter="nowhere"))
