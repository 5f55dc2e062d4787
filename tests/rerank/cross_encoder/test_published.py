"""Published rerankers compared with the reference's network in plain transformers, in float64."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.published import load_reference
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.settings import ScoringSettings
from citerec.tests.hatten.made import Evil

Floats = NDArray[np.float64]


@pytest.fixture
def transformer(tiny_bert: Path, tmp_path: Path) -> Path:
    """The configuration and tokeniser of the transformer that was fine-tuned, without weights."""
    folder = tmp_path / "transformer"
    shutil.copytree(tiny_bert, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


@pytest.fixture
def scorer(tiny_bert: Path) -> dict[str, torch.Tensor]:
    """Weights under the reference's names, with the extra entries of old versions of transformers."""
    from transformers import AutoTokenizer, BertModel

    random = torch.Generator().manual_seed(3)
    model: Any = BertModel.from_pretrained(tiny_bert)
    model.resize_token_embeddings(len(AutoTokenizer.from_pretrained(tiny_bert)) + 3, mean_resizing=False)
    state = {
        f"bert_model.{name}": value + 0.3 * torch.randn(value.shape, generator=random)
        for name, value in model.state_dict().items()
    }
    assert any("pooler" in name for name in state)
    state["bert_model.embeddings.position_ids"] = torch.arange(128)[None]
    state["ln_score.weight"] = torch.randn(1, 16, generator=random)
    state["ln_score.bias"] = torch.randn(1, generator=random)
    return state


@pytest.fixture
def checkpoint(scorer: dict[str, torch.Tensor], tmp_path: Path) -> Path:
    path = tmp_path / "model_batch_7.pt"
    torch.save({"current_batch": 7, "scorer": scorer, "optimizer": {"state": {}, "param_groups": []}}, path)
    return path


def reference_score(scorer: dict[str, torch.Tensor], transformer: Path, read: Any) -> Floats:
    """Compute sigmoid(linear(relu(CLS))) of padded texts with transformers, [B, L] -> [B] float64."""
    from transformers import BertConfig, BertModel

    model: Any = BertModel(BertConfig.from_pretrained(transformer, vocab_size=179)).double().eval()
    prefix = "bert_model."
    state = {name.removeprefix(prefix): value for name, value in scorer.items() if name.startswith(prefix)}
    model.load_state_dict({name: value for name, value in state.items() if name != "embeddings.position_ids"})
    with torch.no_grad():
        first = model(**read).last_hidden_state[:, 0].relu()
        scores = first @ scorer["ln_score.weight"][0].double() + scorer["ln_score.bias"].double()
    return scores.sigmoid().numpy()


def reference_texts(corpus: Corpus, context: int, paper: int, length: int) -> tuple[str, str]:
    citing = int(corpus.citing[context])
    words = f"{corpus.titles[citing]} {corpus.abstracts[citing]}".split()[: int(length * 0.35)]
    passage = corpus.context_texts[context].replace("TARGETCIT", "<cit>")
    return " ".join(words) + "<sep>" + passage, f"{corpus.titles[paper]} {corpus.abstracts[paper]}"


@pytest.mark.parametrize("length", [128, 32])  # all pairs fit; most are truncated
def test_scores_match_the_reference(
    length: int, scorer: dict[str, torch.Tensor], transformer: Path, tmp_path: Path, tiny_corpus: Corpus
) -> None:
    from transformers import AutoTokenizer, BertConfig

    config = BertConfig.from_pretrained(transformer, max_position_embeddings=length)
    config.save_pretrained(transformer)
    table = "bert_model.embeddings.position_embeddings.weight"
    scorer[table] = scorer[table][:length]
    torch.save({"current_batch": 7, "scorer": scorer, "optimizer": {}}, tmp_path / "scorer.pt")
    contexts, papers = np.divmod(np.arange(144), 12)
    tokenizer = AutoTokenizer.from_pretrained(transformer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<cit>", "<sep>", "<eos>"]})
    texts = [
        reference_texts(tiny_corpus, *row, length)
        for row in zip(contexts.tolist(), papers.tolist(), strict=True)
    ]
    read = tokenizer(
        [query for query, _ in texts],
        [paper for _, paper in texts],
        max_length=length,
        padding="max_length",
        truncation=True,
        return_token_type_ids=True,
        return_tensors="pt",
    )
    # If the reference truncates the mark, our pair differs.
    kept = (read["input_ids"] == tokenizer.convert_tokens_to_ids("<cit>")).any(1).numpy()
    full = (read["attention_mask"].sum(1) == length).numpy()
    assert (kept & full).sum() > 40 if length == 32 else kept.all() and not full.any()
    exact = reference_score(scorer, transformer, read)
    assert exact.std() > 0.01
    scoring = ScoringSettings(precision="float32", encoder=str(transformer))
    found = Reranker.open(tmp_path / "scorer.pt", scoring).score(tiny_corpus, contexts, papers)
    np.testing.assert_allclose(found[kept], exact[kept], atol=2e-5)


def test_checkpoints_of_several_gpus_are_the_same(
    checkpoint: Path, scorer: dict[str, torch.Tensor], transformer: Path, tmp_path: Path
) -> None:
    other = tmp_path / "parallel.pt"
    torch.save({"scorer": {f"module.{name}": value for name, value in scorer.items()}}, other)
    one, two = (load_reference(path, transformer).state_dict() for path in (checkpoint, other))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_the_published_reranker_is_opened_by_name(
    checkpoint: Path, transformer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the release's file and SciBERT in the cache."""
    folder = tmp_path / "cache" / "checkpoints" / "scibert-acl200"
    folder.mkdir(parents=True)
    shutil.copy(checkpoint, folder / "model_batch_91170.pt")
    shutil.copytree(transformer, tmp_path / "cache" / "models" / "scibert")
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    named, given = load_reference("scibert-acl200"), load_reference(checkpoint, transformer)
    assert torch.equal(named.score.weight, given.score.weight)
    assert Reranker.open("scibert-acl200").name == "scibert-acl200"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"document_encoder": {}},
            "no weights under 'scorer'; expected a checkpoint of the published reranker",
        ),
        ({"scorer": {"a": 1}}, "no weights under 'scorer'"),
        (
            {"scorer": {}},
            "has no subword vectors, but the tokeniser in .* has 179 subwords; .*scoring.encoder=FOLDER",
        ),
        ({"scorer": Evil(print, "unpickled")}, "damaged, or contains something other than tensors"),
    ],
)
def test_invalid_files_are_named(
    content: Any, message: str, transformer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(InputError, match=message) as raised:
        load_reference(tmp_path / "other.pt", transformer)
    assert "\n" not in str(raised.value) and "unpickled" not in capsys.readouterr().out


def test_weights_that_do_not_fit_are_named(
    scorer: dict[str, torch.Tensor], checkpoint: Path, transformer: Path, tmp_path: Path
) -> None:
    for name, change, message in (
        ("ln_score.bias", None, "weights do not fit the transformer in .* Missing key"),
        ("bert_model.encoder.layer.1.output.dense.bias", None, "weights do not fit the transformer"),
        ("bert_model.encoder.layer.2.output.dense.bias", torch.ones(16), "Unexpected key"),
    ):
        changed = {key: value for key, value in scorer.items() if key != name}
        torch.save({"scorer": changed | ({} if change is None else {name: change})}, tmp_path / "other.pt")
        with pytest.raises(InputError, match=message) as raised:
            load_reference(tmp_path / "other.pt", transformer)
        assert "\n" not in str(raised.value)
    (transformer / "config.json").unlink()
    with pytest.raises(InputError, match=r"cannot read the configuration .* scoring\.encoder=FOLDER"):
        load_reference(checkpoint, transformer)
