"""The reranker's net: a transformer that reads query and candidate together (Gu et al. 2022, section 4.2).

Of BERT only what the first token needs is computed: its hidden state is all that the head looks at.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datasets.errors import InputError, error_text
from rerank.pairs import CIT, EOS, SEP, Subwords
from rerank.settings import PairSettings
from retrieval.encoder import load_pretrained, max_positions
from retrieval.nets import weights_to_numpy, weights_to_torch
from retrieval.settings import ArticleConfig
from training.hub import Pretrained, read_json, read_weights, write_json, write_weights

if TYPE_CHECKING:
    from transformers import BertModel, PreTrainedModel, PreTrainedTokenizerFast

SETTINGS, HEAD = "reranker.json", "head.safetensors"
"""The files that a saved reranker has beside those of Hugging Face."""

SAVED = "reranker"
"""The folder of a reranker in the output folder of its training."""

HEADS = ("sigmoid", "linear")


class CrossEncoder(nn.Module, Pretrained):
    """Pairs to relevance scores.

    head: sigmoid, sigmoid(linear(relu(CLS))), as the reference; or linear, linear(CLS).
    `precision` is that of the matrix products; weights of another precision are converted as they are used.
    """

    settings_file = SETTINGS
    title = "reranker"
    description = """\
A cross-encoder that reads a passage with a missing citation, title and abstract of the citing paper, and a
candidate, and scores how well the candidate fits (Gu, Gao and Hahnloser,
[ECIR 2022](https://arxiv.org/abs/2112.01206)). It reranks what a retriever has found.

```sh
python evaluate.py benchmark=pipeline retriever=bm25 reranker={place} data=custom data.dir=DIR
```"""
    tags = ("text-ranking", "cross-encoder")

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        config: PairSettings,
        head: str = "sigmoid",
    ) -> None:
        """tokenizer: with the added tokens. InputError if model, tokeniser and pairs do not fit."""
        super().__init__()
        if head not in HEADS:
            raise InputError(f"head={head}: choose one of {', '.join(HEADS)}")
        limit = max_positions(model)
        if limit is not None and config.max_tokens > limit:
            raise InputError(f"pairs.max_tokens={config.max_tokens}: the model reads at most {limit}")
        Subwords(tokenizer)
        if len(tokenizer) > len(subword_vectors(model)):
            raise InputError(
                f"a tokeniser of {len(tokenizer)} subwords for {len(subword_vectors(model))} vectors"
            )
        self.model, self.tokenizer, self.config, self.head = model, tokenizer, config, head
        self.score = nn.Linear(model.config.hidden_size, 1)
        self.precision, self.about = torch.float32, dict[str, Any]()
        self._typed = (getattr(model.config, "type_vocab_size", 0) or 0) > 1

    @classmethod
    def pretrained(
        cls,
        encoder: ArticleConfig,
        pairs: PairSettings,
        head: str = "sigmoid",
        seed: int = 0,
        layers: int | None = None,
    ) -> CrossEncoder:
        """A pretrained transformer (retrieval.encoder) with the added tokens and a random head, for training.

        `<cit>` starts as the model's mask token, `<sep>` and `<eos>` as its separator, the nearest that it
        knows. A saved reranker (encoder=local encoder.path=FOLDER) is taken whole, with its head. layers: how
        many are kept (`keep_layers`). InputError if the encoder cannot be had.
        """
        if encoder.path is not None and (Path(encoder.path) / SETTINGS).is_file():
            saved = cls.from_pretrained(encoder.path)
            if saved.head != head:
                raise InputError(f"model.head={head}: the reranker to start from has {saved.head}")
            keep_layers(saved.model, layers)
            found = cls(saved.model, saved.tokenizer, pairs, head)
            found.score = saved.score
            return found
        # How many tokens article encoders read says nothing about pairs.
        model, tokenizer = load_pretrained(replace(encoder, max_tokens=8, markers="drop"))
        alike = {CIT: tokenizer.mask_token_id, SEP: tokenizer.sep_token_id, EOS: tokenizer.sep_token_id}
        add_tokens(tokenizer)
        keep_layers(model, layers)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if len(tokenizer) > len(subword_vectors(model)):
                model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
            found = cls(model, tokenizer, pairs, head)
            nn.init.normal_(found.score.weight, std=0.02)
            nn.init.zeros_(found.score.bias)
        vectors = subword_vectors(model).data
        for token, like in alike.items():
            row = tokenizer.get_vocab()[token]
            vectors[row] = vectors[like] if like is not None else vectors[:row].mean(0)
        return found

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B, L] each -> logits [B] float32, before any sigmoid: what losses take."""
        device = self.score.weight.device
        ids, types, there = (part.to(device) for part in (input_ids, token_type_ids, attention_mask))
        with torch.autocast(device.type, self.precision, enabled=self.precision != self.score.weight.dtype):
            first = self.first_hidden(ids, types, there)
        return self.logits(first)

    def first_hidden(self, ids: Tensor, types: Tensor, there: Tensor) -> Tensor:
        """[B, L] each -> hidden states of the first token [B, D]."""
        checkpointed = self.training and self.model.is_gradient_checkpointing
        if is_bert(self.model) and not checkpointed:
            return first_hidden(self.model, ids, types, there.bool())
        given = {"token_type_ids": types} if self._typed else {}
        hidden: Tensor = self.model(input_ids=ids, attention_mask=there, **given).last_hidden_state
        return hidden[:, 0]

    def logits(self, first: Tensor) -> Tensor:
        """Hidden states of the first token [B, D] -> logits [B] float32."""
        first = first.float()
        if self.head == "sigmoid":
            first = F.relu(first)
        return F.linear(first, self.score.weight.float(), self.score.bias.float())[:, 0]

    def scores(self, logits: Tensor) -> Tensor:
        """Logits [B] -> what candidates are ranked by [B]: in 0..1 with head=sigmoid."""
        return torch.sigmoid(logits) if self.head == "sigmoid" else logits

    def write(self, folder: Path) -> None:
        """Transformer and tokeniser in the format of Hugging Face, the head beside them."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        write_weights(folder / HEAD, weights_to_numpy(self.score))
        write_json(folder / SETTINGS, {"head": self.head, "pairs": self.config.plain()})

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> CrossEncoder:
        """In evaluation mode in float32."""
        settings = read_json(folder / SETTINGS, dict)
        try:
            config, head = PairSettings.read(dict(settings["pairs"])), settings["head"]
        except (ValueError, TypeError, KeyError, InputError) as error:
            raise InputError(f"{folder / SETTINGS}: damaged ({error})") from None
        model, tokenizer = load_pretrained(ArticleConfig("reranker", path=str(folder), max_tokens=8))
        try:
            found = cls(model, tokenizer, config, head)
        except InputError as error:
            raise InputError(f"{folder}: {error}") from None
        weights = weights_to_torch(read_weights(folder / HEAD))
        try:
            found.score.load_state_dict(weights)
        except RuntimeError as error:
            raise InputError(
                f"{folder / HEAD}: not the head of this reranker ({error_text(error)})"
            ) from None
        check_finite(found, folder)
        found.about = about
        return found.eval()


def add_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    """Add the tokens of rerank.pairs behind a model's own."""
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [CIT, SEP, EOS]}, replace_extra_special_tokens=False
    )


def subword_vectors(model: PreTrainedModel) -> Tensor:
    """The vectors of a model's subwords [V, D]."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight


def check_finite(model: nn.Module, where: str | Path) -> None:
    """InputError that names the first weight that is infinite or NaN."""
    for name, value in model.named_parameters():
        if not torch.isfinite(value).all():
            raise InputError(f"{where}: the weights {name} are not all finite numbers; the training failed")


def is_bert(model: nn.Module) -> TypeGuard[BertModel]:
    """Whether `first_hidden` can compute a model."""
    from transformers import BertModel

    return isinstance(model, BertModel) and not model.config.is_decoder


def keep_layers(model: PreTrainedModel, count: int | None) -> None:
    """Cut a BERT down to `count` layers, evenly spaced from the first to the last (Shleifer and Rush 2020).

    None: all stay. InputError if it has not so many.
    """
    if count is None:
        return
    if not is_bert(model):
        raise InputError(f"model.layers={count}: only layers of a BERT can be left out")
    layers = model.encoder.layer
    if count > len(layers):
        raise InputError(f"model.layers={count}: the transformer has {len(layers)}")
    kept = np.linspace(0, len(layers) - 1, count).round().astype(int)
    model.encoder.layer = nn.ModuleList(layers[place] for place in kept.tolist())
    model.config.num_hidden_layers = count


def first_hidden(model: BertModel, ids: Tensor, types: Tensor, there: Tensor | None) -> Tensor:
    """`model(...).last_hidden_state[:, 0]` [B, D], with almost none of the last layer: of six, a sixth less
    work.

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
    """What torch's fused attention computes; on a CPU, its backward pass is faster for short texts."""
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
    key_bias = attention.key.bias.unflatten(0, (heads, 1, size))
    constant = (query * key_bias).sum(-1).T[..., None]  # [B, heads, 1]
    logits = (asked @ hidden.transpose(1, 2) + constant).float() * attention.scaling
    if there is not None:
        logits = logits.masked_fill(~there[:, None, :], float("-inf"))
    weights = attention.dropout(logits.softmax(-1)).to(hidden.dtype)
    mean = (weights @ hidden).transpose(0, 1)  # [heads, B, D]
    biases = attention.value.bias.unflatten(0, (heads, size))[:, None] * weights.sum(-1).T[..., None]
    found: Tensor = mean @ value.transpose(1, 2) + biases
    return found.transpose(0, 1).flatten(1)
