"""The first token's hidden state is that of transformers, and so are its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rerank.cross_encoder import first_hidden, is_bert

SIZES: dict[str, Any] = {
    "vocab_size": 90,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "initializer_range": 0.3,
}


def bert(layers: int = 3, attention: str = "sdpa", dropout: float = 0.0, **more: Any) -> Any:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        num_hidden_layers=layers,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **{**SIZES, "attn_implementation": attention, **more},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertModel(config, add_pooling_layer=False)
        with torch.no_grad():  # biases begin as zeros, and would hide that one is left out
            for weight in model.parameters():
                if weight.ndim == 1:
                    weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def texts(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Padded ids of random texts, of two types each, and where they are."""
    random = torch.Generator().manual_seed(1)
    width = max(lengths)
    ids = torch.randint(1, SIZES["vocab_size"], (len(lengths), width), generator=random)
    there = torch.arange(width) < torch.tensor(lengths)[:, None]
    types = (torch.arange(width) >= torch.tensor(lengths)[:, None] // 2) & there
    return ids * there, types.long(), there


def theirs(model: Any, ids: Tensor, types: Tensor, there: Tensor) -> Tensor:
    hidden: Tensor = model(input_ids=ids, token_type_ids=types, attention_mask=there.long()).last_hidden_state
    return hidden[:, 0]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("lengths", [[7], [9, 9, 9], [12, 1, 30, 2]])
def test_it_is_what_transformers_computes(layers: int, lengths: list[int]) -> None:
    model, given = bert(layers), texts(lengths)
    with torch.no_grad():
        torch.testing.assert_close(first_hidden(model, *given), theirs(model, *given), atol=1e-5, rtol=1e-5)
        if len(set(lengths)) == 1:  # nothing is padded
            found = first_hidden(model, *given[:2], None)
            torch.testing.assert_close(found, theirs(model, *given), atol=1e-5, rtol=1e-5)


def test_types_and_padding_count() -> None:
    """Without them it would be another vector: the test above can fail."""
    model, (ids, types, there) = bert(), texts([12, 5])
    with torch.no_grad():
        whole = first_hidden(model, ids, types, there)
        untyped = first_hidden(model, ids, torch.zeros_like(types), there)
        unmasked = first_hidden(model, ids, types, None)
    assert (whole - untyped).abs().amax(1).min() > 1e-2
    assert torch.allclose(whole[0], unmasked[0], atol=1e-5)
    assert (whole[1] - unmasked[1]).abs().max() > 1e-2


def test_bfloat16_is_near() -> None:
    model, given = bert(), texts([12, 5, 30])
    with torch.no_grad():
        exact = theirs(model, *given)
        model.to(torch.bfloat16)
        found = first_hidden(model, *given)
    assert found.dtype == torch.bfloat16
    cosine = torch.nn.functional.cosine_similarity(found.float(), exact)
    assert cosine.min() > 0.998
    assert (found.float() - exact).abs().max() < 0.25


@pytest.mark.parametrize("attention", ["sdpa", "eager"])  # eager: how short pairs are trained
def test_gradients_are_those_of_transformers_and_no_weight_lacks_one(attention: str) -> None:
    model, given = bert(attention=attention).train(), texts([12, 5, 30])
    direction = torch.randn(3, SIZES["hidden_size"], generator=torch.Generator().manual_seed(2))
    gradients = []
    for compute in (first_hidden, theirs):
        model.zero_grad()
        (compute(model, *given) * direction).sum().backward()
        gradients.append({name: weight.grad.clone() for name, weight in model.named_parameters()})
    ours, others = gradients
    for name, gradient in ours.items():
        # The softmax does not see a bias of the keys: what they both have there is noise.
        torch.testing.assert_close(gradient, others[name], atol=2e-4, rtol=1e-4, msg=name)
        assert gradient.any() or name.endswith("key.bias"), name


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_dropout_is_drawn_in_training_alone(attention: str) -> None:
    model, given = bert(attention=attention, dropout=0.5), texts([12, 5])
    with torch.no_grad():
        assert torch.equal(first_hidden(model, *given), first_hidden(model, *given))
        model.train()
        assert not torch.equal(first_hidden(model, *given), first_hidden(model, *given))


def test_dropout_of_attention_keeps_the_mean() -> None:
    """In a layer made linear, the mean of many draws is what is computed without dropout."""
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


def test_what_is_no_bert_encoder_is_told() -> None:
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

    assert is_bert(bert())
    small: dict[str, Any] = {**SIZES, "num_hidden_layers": 1}
    assert not is_bert(BertModel(BertConfig(**small, is_decoder=True)))
    assert not is_bert(DistilBertModel(DistilBertConfig(vocab_size=20, dim=8, n_heads=2, n_layers=1)))
