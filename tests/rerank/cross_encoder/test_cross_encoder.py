"""Cross-encoders: scores, initialisation, saving, and invalid folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
)

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.network import (
    CrossEncoder,
    first_hidden,
    subword_vectors,
)
from citerec.rerank.cross_encoder.pairs import CIT, EOS, SEP, PairReader
from citerec.rerank.settings import PairSettings
from citerec.retrieval.settings import ArticleConfig
from citerec.tests.conftest import Done

Given = tuple[Tensor, Tensor, Tensor]
Make = Callable[..., CrossEncoder]


@pytest.fixture
def given(make_encoder: Make, tiny_corpus: Corpus) -> Given:
    made = make_encoder()
    pairs = PairReader(tiny_corpus, made.tokenizer, made.config).pairs(np.arange(12), np.arange(12)[::-1])
    return pairs.padded()


@pytest.mark.parametrize("head", ["sigmoid", "linear"])
def test_scores_are_the_head_of_the_first_token(make_encoder: Make, given: Given, head: str) -> None:
    made = make_encoder(head)
    torch.nn.init.normal_(made.score.weight)
    ids, types, mask = given
    with torch.no_grad():
        hidden = made.model(input_ids=ids, token_type_ids=types, attention_mask=mask).last_hidden_state[:, 0]
        logits = made(ids, types, mask)
        if head == "sigmoid":
            hidden = hidden.clamp(min=0)
        expected = (hidden * made.score.weight[0]).sum(1) + made.score.bias
        scores = made.scores(logits)
    assert logits.dtype == torch.float32 and logits.shape == (12,)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(scores, 1 / (1 + (-expected).exp()) if head == "sigmoid" else expected)


def test_bfloat16_is_close_with_and_without_converted_weights(make_encoder: Make, given: Given) -> None:
    made = make_encoder("linear")
    torch.nn.init.normal_(made.score.weight)
    with torch.no_grad():
        exact = made(*given)
        made.precision = torch.bfloat16
        mixed = made(*given)
        whole = made.to(torch.bfloat16)(*given)
    assert mixed.dtype == whole.dtype == torch.float32
    for found in (mixed, whole):
        assert not torch.equal(found, exact)
        assert np.corrcoef(found, exact)[0, 1] > 0.995


def test_other_transformers_use_their_own_forward(tiny_bert: Path, tmp_path: Path, given: Given) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=16, n_heads=2, n_layers=1, hidden_dim=16)
    DistilBertModel(config).save_pretrained(tmp_path / "distil")
    tokenizer.save_pretrained(tmp_path / "distil")
    made = CrossEncoder.pretrained(ArticleConfig("distil", path=str(tmp_path / "distil")), PairSettings())
    made.eval()
    ids, _, mask = given
    with torch.no_grad():
        hidden = made.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
        assert torch.equal(made.first_hidden(*given), hidden)


def test_added_tokens_are_initialised_from_similar_ones(make_encoder: Make, tiny_bert: Path) -> None:
    made = make_encoder()
    row: Callable[[str], Any] = made.tokenizer.convert_tokens_to_ids
    vectors = subword_vectors(made.model)
    before = load_file(tiny_bert / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert [row(token) - len(before) for token in (CIT, SEP, EOS)] == [0, 1, 2]
    assert torch.equal(vectors[: len(before)], before) and len(vectors) == len(before) + 3
    assert torch.equal(vectors[row(CIT)], before[row("[MASK]")])
    assert torch.equal(vectors[row(SEP)], before[row("[SEP]")])
    assert torch.equal(vectors[row(EOS)], before[row("[SEP]")])


def test_added_tokens_can_be_random(tiny_bert: Path) -> None:
    encoder = ArticleConfig("tiny", path=str(tiny_bert))
    one, other = (
        CrossEncoder.pretrained(encoder, PairSettings(max_tokens=64), seed=seed, new_tokens="random")
        for seed in (0, 1)
    )
    before = load_file(tiny_bert / "model.safetensors")["embeddings.word_embeddings.weight"]
    new, others = (subword_vectors(made.model)[len(before) :] for made in (one, other))
    assert len(new) == 3 and (new != others).any(1).all()
    assert not any((row == before).all(1).any() for row in new)


def test_training_continues_from_a_saved_reranker(make_encoder: Make, tmp_path: Path) -> None:
    before = make_encoder("linear", 3)
    before.save(tmp_path / "before")
    start = ArticleConfig("local", path=str(tmp_path / "before"))
    after = CrossEncoder.pretrained(start, PairSettings(max_tokens=40), "linear", seed=9)
    assert after.config.max_tokens == 40
    wanted, found = before.state_dict(), after.state_dict()
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    with pytest.raises(InputError, match="linear"):
        CrossEncoder.pretrained(start, PairSettings(max_tokens=40), "sigmoid")


def test_the_head_depends_only_on_the_seed(make_encoder: Make) -> None:
    one = make_encoder(seed=5).score.weight
    torch.randn(7)
    assert torch.equal(one, make_encoder(seed=5).score.weight)
    assert not torch.equal(one, make_encoder(seed=6).score.weight)


@pytest.mark.parametrize("head", ["sigmoid", "linear"])
def test_saving_and_loading_round_trips(make_encoder: Make, given: Given, tmp_path: Path, head: str) -> None:
    made = make_encoder(head, context=3.0, other_citations="drop")
    made.about = {"seed": 1}
    made.save(tmp_path / "model")
    again = CrossEncoder.open(tmp_path / "model")
    assert (again.head, again.config, again.training) == (head, made.config, False)
    assert again.tokenizer.backend_tokenizer.to_str() == made.tokenizer.backend_tokenizer.to_str()
    with torch.no_grad():
        assert torch.equal(again(*given), made(*given))
    assert again.about == {"seed": 1}


def test_it_is_kept_beside_the_weights_it_started_from_and_restored(
    tiny_reranker: Path,
    tiny_bert: Path,
    tmp_path: Path,
    script: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/minilm").symlink_to(tiny_bert)
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    model = CrossEncoder.open(tiny_reranker)
    model.state_dict()["model.encoder.layer.1.output.dense.bias"].add_(1)
    kept = tmp_path / "kept.safetensors"
    for source, target in ((model.save(tmp_path / "trained"), kept), (kept, tmp_path / "restored")):
        assert script("reproduce/trained_layers.py", str(source), str(target)).code == 0
    restored = CrossEncoder.open(tmp_path / "restored")
    assert restored.config == model.config
    torch.testing.assert_close(restored.state_dict(), model.state_dict(), atol=1e-3, rtol=0)


def test_the_folder_loads_with_transformers(make_encoder: Make, given: Given, tmp_path: Path) -> None:
    made = make_encoder()
    made.save(tmp_path / "model")
    assert not list((tmp_path / "model").glob("*.bin"))
    model = AutoModel.from_pretrained(tmp_path / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.convert_tokens_to_ids([CIT, SEP, EOS]) == [len(tokenizer) - 3 + i for i in range(3)]
    ids, types, mask = given
    with torch.no_grad():
        found = model(input_ids=ids, token_type_ids=types, attention_mask=mask).last_hidden_state[:, 0]
        torch.testing.assert_close(made.first_hidden(*given), found, atol=1e-5, rtol=1e-5)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def settings(**changes: Any) -> Callable[[Path], object]:
    return lambda file: file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("file", "spoil", "message"),
    [
        ("reranker.json", Path.unlink, r"not a saved reranker \(no reranker.json\)"),
        ("head.safetensors", Path.unlink, "head.safetensors: this model file is missing"),
        ("model.safetensors", cut, "cannot load the model"),
        ("head.safetensors", cut, "head.safetensors: damaged"),
        ("reranker.json", cut, "reranker.json: damaged"),
        ("reranker.json", settings(pairs={"max_tokens": 129}), "max_tokens=129: the model reads at most 128"),
        ("reranker.json", settings(pairs={"colour": 1}), "colour: there is no such option"),
    ],
)
def test_damaged_folders_raise_one_line(
    tiny_reranker: Path, tmp_path: Path, file: str, spoil: Callable[[Path], object], message: str
) -> None:
    shutil.copytree(tiny_reranker, tmp_path / "model")
    spoil(tmp_path / "model" / file)
    with pytest.raises(InputError, match=message) as raised:
        CrossEncoder.open(tmp_path / "model")
    assert "\n" not in str(raised.value) and str(tmp_path / "model") in str(raised.value)


SIZES: dict[str, Any] = {
    "vocab_size": 90,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "initializer_range": 0.3,
}


def bert(layers: int = 3, attention: str = "sdpa", dropout: float = 0.0, **more: Any) -> Any:
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **{**SIZES, "attn_implementation": attention, **more},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertModel(config, add_pooling_layer=False)
        with torch.no_grad():  # biases are initialised to zero, which would hide a missing one
            for weight in model.parameters():
                if weight.ndim == 1:
                    weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def texts(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Make random padded texts: ids, token types (two per text) and mask."""
    random = torch.Generator().manual_seed(1)
    width = max(lengths)
    ids = torch.randint(1, SIZES["vocab_size"], (len(lengths), width), generator=random)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    types = (torch.arange(width) >= torch.tensor(lengths)[:, None] // 2) & mask
    return ids * mask, types.long(), mask


def theirs(model: Any, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
    hidden: Tensor = model(input_ids=ids, token_type_ids=types, attention_mask=mask.long()).last_hidden_state
    return hidden[:, 0]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("lengths", [[7], [9, 9, 9], [12, 1, 30, 2]])
def test_first_hidden_matches_transformers(layers: int, lengths: list[int]) -> None:
    model, given = bert(layers), texts(lengths)
    with torch.no_grad():
        torch.testing.assert_close(first_hidden(model, *given), theirs(model, *given), atol=1e-5, rtol=1e-5)
        if len(set(lengths)) == 1:  # no padding
            found = first_hidden(model, *given[:2], None)
            torch.testing.assert_close(found, theirs(model, *given), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])  # eager is used to train on short pairs
def test_gradients_match_transformers_for_every_weight(attention: str) -> None:
    model, given = bert(attention=attention).train(), texts([12, 5, 30])
    direction = torch.randn(3, SIZES["hidden_size"], generator=torch.Generator().manual_seed(2))
    gradients = []
    for compute in (first_hidden, theirs):
        model.zero_grad()
        (compute(model, *given) * direction).sum().backward()
        gradients.append({name: weight.grad.clone() for name, weight in model.named_parameters()})
    ours, others = gradients
    for name, gradient in ours.items():
        # The softmax is invariant to the bias of the keys, so its gradient is noise.
        torch.testing.assert_close(gradient, others[name], atol=2e-4, rtol=1e-4, msg=name)
        assert gradient.any() or name.endswith("key.bias"), name


def test_dropout_of_attention_keeps_the_mean() -> None:
    """In a linear layer, the mean over many dropout masks is the output without dropout."""
    model, given = bert(1), texts([12])
    layer = model.encoder.layer[0]
    layer.attention.output.LayerNorm = layer.output.LayerNorm = torch.nn.Identity()
    layer.output.dense.weight.data.zero_()
    with torch.no_grad():
        exact = first_hidden(model, *given)
        model.train()
        layer.attention.self.dropout.p = 0.2
        draws = torch.stack([first_hidden(model, *given) for _ in range(400)])
    assert draws.std(0).min() > 1e-3
    assert ((draws.mean(0) - exact).abs() < 5 * draws.std(0) / 400**0.5).all()
