"""Folders in the format of sentence-transformers; make test-peers compares with the package."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.settings import ArticleConfig
from citerec.tests.conftest import Hub

FLAGS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write(
    folder: Path, kinds: list[str], pooling: dict[str, Any], model: dict[str, Any] | None = None
) -> None:
    """Write a model of theirs around the files of a transformer."""
    paths = ["" if kind == "Transformer" else f"{number}_{kind}" for number, kind in enumerate(kinds)]
    modules = [{"path": path, "type": f"some.{kind}"} for path, kind in zip(paths, kinds, strict=True)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 40, "do_lower_case": False})
    )
    if model is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(model))


@pytest.fixture
def theirs(tiny_bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "theirs"))


def auto(folder: Path, **settings: Any) -> ArticleEncoder:
    return ArticleEncoder.pretrained(ArticleConfig("local", path=str(folder), pooling="auto", **settings))


def test_saved_encoders_have_the_documented_files(tiny_bert: Path, tmp_path: Path) -> None:
    given = ArticleConfig("tiny", path=str(tiny_bert), max_tokens=50, query_prompt="query: ")
    ArticleEncoder.pretrained(given).write(tmp_path)
    modules = content(tmp_path / "modules.json")
    assert [(one["idx"], one["path"], one["type"]) for one in modules] == [
        (0, "", "sentence_transformers.models.Transformer"),
        (1, "1_Pooling", "sentence_transformers.models.Pooling"),
        (2, "2_Normalize", "sentence_transformers.models.Normalize"),
    ]
    pooling = content(tmp_path / "1_Pooling" / "config.json")
    assert pooling["word_embedding_dimension"] == 16
    assert [key for key, value in pooling.items() if value is True] == ["pooling_mode_mean_tokens"]
    assert content(tmp_path / "sentence_bert_config.json")["max_seq_length"] == 50
    about = content(tmp_path / "config_sentence_transformers.json")
    assert (
        about["prompts"] == {"query": "query: ", "document": ""} and about["similarity_fn_name"] == "cosine"
    )
    (tmp_path / "encoder.json").unlink()  # as if it were theirs
    assert auto(tmp_path).config.encoding_settings() == given.encoding_settings()


def test_pooling_prompts_similarity_and_length_are_read(theirs: Path, tiny_corpus: Corpus) -> None:
    model = {"prompts": {"query": "Graph: ", "passage": "Speech: "}, "similarity_fn_name": "dot"}
    write(theirs, ["Transformer", "Pooling"], FLAGS, model)
    encoder = auto(theirs, query=("context",))
    config = encoder.config
    assert (config.pooling, config.max_tokens, config.similarity) == ("cls", 40, "dot")
    reader = ArticleReader(tiny_corpus, encoder.tokenizer, config)
    text = f"Speech: {tiny_corpus.titles[0]}. {tiny_corpus.abstracts[0]}"
    tokens = encoder.tokenizer(text)["input_ids"]
    assert reader.papers(np.array([0])).values.tolist() == tokens
    asked = reader.queries(np.array([0])).values.tolist()
    assert str(encoder.tokenizer.decode(asked)).startswith("[CLS] graph [UNK] early transition")
    (theirs / "modules.json").unlink()
    assert auto(theirs, max_tokens=40).config.pooling == "mean"  # a transformer alone


@pytest.mark.parametrize(
    ("kinds", "pooling", "model", "message"),
    [
        (["Transformer", "Pooling", "Dense"], FLAGS, {}, "has the modules Transformer, Pooling, Dense; supp"),
        (
            ["Transformer", "Pooling"],
            {"pooling_mode": "max"},
            {},
            "pooling is max; supported are mean and cls",
        ),
        (["Transformer", "Pooling"], {**FLAGS, "pooling_mode_mean_tokens": True}, {}, "pooling is cls, mean"),
        (
            ["Transformer", "Pooling"],
            FLAGS,
            {"similarity_fn_name": "manhattan"},
            "manhattan is not supported",
        ),
        (
            ["Transformer", "Pooling"],
            {**FLAGS, "include_prompt": False},
            {"prompts": {"query": "q: "}},
            "include_prompt=false is not supported",
        ),
        (["Transformer", "Pooling"], FLAGS, {"prompts": 3}, "config_sentence_transformers.json: damaged"),
    ],
)
def test_other_models_are_refused_in_one_line(
    theirs: Path, kinds: list[str], pooling: dict[str, Any], model: dict[str, Any], message: str
) -> None:
    write(theirs, kinds, pooling, model)
    with pytest.raises(InputError, match=message):
        auto(theirs)


def test_a_hub_id_brings_the_modules(theirs: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    write(theirs, ["Transformer", "Pooling", "Normalize"], FLAGS, {})
    monkeypatch.setenv("CITATION_CACHE", str(theirs.parent / "cache"))
    files = {str(path.relative_to(theirs)): path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    hub.add_files("some/model", {**files, "onnx/config.json": b"{}"})
    given = ArticleConfig("local", hub="some/model", pooling="auto")
    for _ in range(2):
        assert ArticleEncoder.pretrained(given).config.pooling == "cls"
        assert not any("onnx" in path for path, _ in hub.requests if "/resolve/" in path)
    hub.requests.clear()
    ArticleEncoder.pretrained(given)
    assert not hub.requests


@pytest.mark.parametrize("head", ["sigmoid", "linear"])
def test_the_modules_of_a_cross_encoder_compute_its_score(
    make_encoder: Callable[..., CrossEncoder], head: str, tmp_path: Path
) -> None:
    model = make_encoder(head)
    model.save(tmp_path / "model")
    modules = content(tmp_path / "model" / "modules.json")
    assert [one["path"] for one in modules[:2]] == ["", "1_Pooling"]
    given = value = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    for one in modules[2:]:
        config = content(tmp_path / "model" / one["path"] / "config.json")
        weights = load_file(tmp_path / "model" / one["path"] / "model.safetensors")
        assert weights["linear.weight"].shape == (config["out_features"], config["in_features"])
        value = value @ torch.tensor(weights["linear.weight"]).T + torch.tensor(weights["linear.bias"])
        value = torch.relu(value) if config["activation_function"].endswith("ReLU") else value
    assert config["module_output_name"] == "scores"
    about = content(tmp_path / "model" / "config_sentence_transformers.json")
    assert about["activation_fn"].endswith("Sigmoid" if head == "sigmoid" else "Identity")
    torch.testing.assert_close(value[:, 0], model.logits(given))


def test_a_classifier_of_one_label_is_a_reranker(theirs: Path, tiny_corpus: Corpus, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    for labels in (2, 1):
        torch.manual_seed(0)
        made = AutoModelForSequenceClassification.from_pretrained(theirs, num_labels=labels)
        made.save_pretrained(tmp_path / str(labels))
        for path in theirs.glob("token*"):
            shutil.copy(path, tmp_path / str(labels))
    reranker = Reranker.open(tmp_path / "1", ScoringSettings("float32"))
    scores = reranker.score(tiny_corpus, np.array([0, 1]), np.array([3, 4]))
    row = reranker.prepare(tiny_corpus).pairs(np.array([1]), np.array([4])).padded()
    plain = made.eval()
    plain.resize_token_embeddings(len(reranker.model.tokenizer), mean_resizing=False)
    words, mask = plain.get_input_embeddings().weight.data, reranker.model.tokenizer.mask_token_id
    words[reranker.model.tokenizer.convert_tokens_to_ids("<cit>")] = words[mask]
    words[reranker.model.tokenizer.convert_tokens_to_ids("<sep>")] = words[
        reranker.model.tokenizer.sep_token_id
    ]
    with torch.inference_mode():  # this tokeniser tells no token types
        np.testing.assert_allclose(plain(input_ids=row[0]).logits[0, 0], scores[1], rtol=1e-4)
    again = Reranker.open(reranker.save(tmp_path / "again"), ScoringSettings("float32"))
    np.testing.assert_allclose(
        again.score(tiny_corpus, np.array([0, 1]), np.array([3, 4])), scores, rtol=1e-5
    )
    with pytest.raises(InputError, match="gives 2 scores for a pair, not one"):
        Reranker.open(tmp_path / "2")
    with pytest.raises(InputError, match=r"neither a saved reranker .*architectures \['BertModel'\]"):
        Reranker.open(theirs)
