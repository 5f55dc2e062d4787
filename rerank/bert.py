"""BERT as far as the hidden state of its first token, which is all that a cross-encoder's head looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from transformers import BertModel


def is_bert(model: nn.Module) -> TypeGuard[BertModel]:
    """Whether `first_hidden` can be had of a model."""
    from transformers import BertModel

    return isinstance(model, BertModel) and not model.config.is_decoder


def first_hidden(model: BertModel, ids: Tensor, types: Tensor, there: Tensor | None) -> Tensor:
    """`model(...).last_hidden_state[:, 0]` [B, D], nearly without the last layer: of six, a sixth less.

    ids, types: [B, L] int64; there: [B, L] bool, None where nothing is padded.
    """
    hidden = model.embeddings(input_ids=ids, token_type_ids=types)
    mask = None if there is None else there[:, None, None, :]
    plain = model.training and model.config._attn_implementation == "eager"
    layers: list[Any] = list(model.encoder.layer)
    for layer in layers[:-1]:
        attention = layer.attention.self
        query, key, value = (
            part(hidden).unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)
            for part in (attention.query, attention.key, attention.value)
        )
        dropout = attention.dropout.p if attention.training else 0.0
        attend = _plain_attention if plain else F.scaled_dot_product_attention
        found = attend(query, key, value, mask, dropout_p=dropout)
        found = layer.attention.output(found.transpose(1, 2).flatten(2), hidden)
        hidden = layer.output(layer.intermediate(found), found)
    last = layers[-1]
    found = last.attention.output(_first_attends(last.attention.self, hidden, there), hidden[:, 0])
    first: Tensor = last.output(last.intermediate(found), found)
    return first


def _plain_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float
) -> Tensor:
    """What torch's fused one computes; on a CPU, its way back is the faster one for short texts."""
    logits = (query @ key.transpose(-1, -2)) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    return F.dropout(logits.softmax(-1), dropout_p).to(value.dtype) @ value


def _first_attends(attention: Any, hidden: Tensor, there: Tensor | None) -> Tensor:
    """What attention gives the first token, before the output map: [B, L, D] -> [B, D].

    With one query q a head, q · (W h + b) = (q W) · h + q · b, and a mean of values W h + b is W (mean of h)
    + b: keys and values of the L tokens need not be computed. Softmax does not see q · b, but training on
    several processes waits for a gradient of each weight.
    """
    heads, size = attention.num_attention_heads, attention.attention_head_size
    query = attention.query(hidden[:, 0]).unflatten(-1, (heads, size)).transpose(0, 1)
    key, value = (part.weight.unflatten(0, (heads, size)) for part in (attention.key, attention.value))
    asked = (query @ key).transpose(0, 1)  # [B, heads, D]
    constant = (
        (query * attention.key.bias.unflatten(0, (heads, 1, size))).sum(-1).T[..., None]
    )  # [B, heads, 1]
    logits = (asked @ hidden.transpose(1, 2) + constant).float() * attention.scaling
    if there is not None:
        logits = logits.masked_fill(~there[:, None, :], float("-inf"))
    weights = attention.dropout(logits.softmax(-1)).to(hidden.dtype)
    mean = (weights @ hidden).transpose(0, 1)  # [heads, B, D]
    biases = attention.value.bias.unflatten(0, (heads, size))[:, None] * weights.sum(-1).T[..., None]
    found: Tensor = mean @ value.transpose(1, 2) + biases
    return found.transpose(0, 1).flatten(1)
