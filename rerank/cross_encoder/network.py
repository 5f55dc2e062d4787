"""The cross-encoder: a transformer that reads query and candidate together (Gu et al. 2022, section 4.2).

For BERT, only what the first token needs is computed, because its hidden state is the head's only input.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeGuard, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from citerec.base.errors import InputError
from citerec.rerank.cross_encoder.pairs import CIT, EOS, SEP, Subwords
from citerec.rerank.settings import PairSettings
from citerec.retrieval.encoders.adapters import is_adapted
from citerec.retrieval.encoders.encoder import load_pretrained, max_positions
from citerec.retrieval.encoders.nets import computing_in, weights_to_numpy, weights_to_torch
from citerec.retrieval.encoders.sentence_transformers import POOLING, TOKENIZER, pooling_config, write_modules
from citerec.retrieval.settings import ArticleConfig
from citerec.training import hub

if TYPE_CHECKING:
    from transformers import BertModel, PreTrainedModel, PreTrainedTokenizerFast

SETTINGS, HEAD = "reranker.json", "head.safetensors"
"""Files of a saved reranker in addition to those of Hugging Face."""


class CrossEncoder(nn.Module, hub.Pretrained):
    """Maps token pairs to relevance scores.

    head: `sigmoid` is sigmoid(linear(relu(CLS))), as in the reference; `linear` is linear(CLS).
    `precision` is that of the matrix products; weights of another precision are converted on the fly.
    """

    settings_file = SETTINGS
    folder = "reranker"
    title = "reranker"
    description = """\
A cross-encoder that reads a passage with a missing citation, title and abstract of the citing paper, and a
candidate, and scores how well the candidate fits (Gu, Gao and Hahnloser,
[ECIR 2022](https://arxiv.org/abs/2112.01206)). It reranks what a retriever has found."""
    usage = "benchmark=pipeline retriever=bm25 reranker={place}"
    tags = ("text-ranking", "cross-encoder")

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        config: PairSettings,
        head: str = "sigmoid",
    ) -> None:
        """tokenizer: with the added tokens. Raises InputError unless the model supports the pairs."""
        super().__init__()
        limit = max_positions(model)
        if limit is not None and config.max_tokens > limit:
            raise InputError(f"pairs.max_tokens={config.max_tokens}: the model reads at most {limit}")
        Subwords(tokenizer)  # raises InputError if it does not support pairs
        self.model, self.tokenizer, self.config, self.head = model, tokenizer, config, head
        self.score = nn.Linear(model.config.hidden_size, 1)
        self.precision, self.about = torch.float32, dict[str, Any]()
        self._has_token_types = (getattr(model.config, "type_vocab_size", 0) or 0) > 1

    @classmethod
    def pretrained(
        cls,
        encoder: ArticleConfig,
        pairs: PairSettings,
        head: str = "sigmoid",
        seed: int = 0,
        new_tokens: str = "copied",
    ) -> Self:
        """Load a pretrained transformer (retrieval.encoders.encoder) with the added tokens and a random head.

        new_tokens: `copied` initialises `<cit>` from the model's mask token, `<sep>` and `<eos>` from its
        separator; `random` as all weights of the model. A saved reranker (encoder=local encoder.path=FOLDER)
        keeps its head and tokens. Raises InputError if the encoder is unavailable.
        """
        if encoder.path is not None and (Path(encoder.path) / SETTINGS).is_file():
            saved = cls.open(encoder.path)
            if saved.head != head:
                raise InputError(f"model.head={head}: the reranker in {encoder.path} has head {saved.head}")
            made = cls(saved.model, saved.tokenizer, pairs, head)
            made.score = saved.score
            return made
        # The token limit of article encoders does not apply to pairs.
        model, tokenizer = load_pretrained(replace(encoder, max_tokens=8, markers="drop"))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            extend_vocabulary(model, tokenizer, new_tokens)
            made = cls(model, tokenizer, pairs, head)
            nn.init.normal_(made.score.weight, std=0.02)
            nn.init.zeros_(made.score.bias)
        return made

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B, L] each -> logits [B] float32, before any sigmoid, as the losses expect."""
        device = self.score.weight.device
        ids, types, mask = (part.to(device) for part in (input_ids, token_type_ids, attention_mask))
        with computing_in(self.precision, self.score.weight):
            first = self.first_hidden(ids, types, mask)
        return self.logits(first)

    def first_hidden(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        """[B, L] each -> hidden states of the first token [B, D]."""
        if is_bert(self.model):
            return first_hidden(self.model, ids, types, mask.bool())
        token_types = {"token_type_ids": types} if self._has_token_types else {}
        hidden: Tensor = self.model(input_ids=ids, attention_mask=mask, **token_types).last_hidden_state
        return hidden[:, 0]

    def logits(self, first: Tensor) -> Tensor:
        """Hidden states of the first token [B, D] -> logits [B] float32."""
        first = first.float()
        if self.head == "sigmoid":
            first = F.relu(first)
        return F.linear(first, self.score.weight.float(), self.score.bias.float())[:, 0]

    def scores(self, logits: Tensor) -> Tensor:
        """Logits [B] -> ranking scores [B], in 0..1 with head=sigmoid."""
        return torch.sigmoid(logits) if self.head == "sigmoid" else logits

    def with_encoder(self, encoder: Any, about: dict[str, Any]) -> Self:
        encoder.about = about
        return cast(Self, encoder)

    def write(self, folder: Path) -> None:
        """Save transformer and tokeniser in Hugging Face's format, and the head next to them; also as modules
        of sentence-transformers, unless the transformer has an adapter."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        hub.write_weights(folder / HEAD, weights_to_numpy(self.score))
        hub.write_json(folder / SETTINGS, {"head": self.head, "pairs": asdict(self.config)})
        if not is_adapted(self.model):
            self._write_modules(folder)

    def _write_modules(self, folder: Path) -> None:
        """Write the head as Dense layers on the first token: linear, after a relu if it has one."""
        if self._has_token_types:  # tokenisers of no particular class leave them out
            saved = folder / TOKENIZER
            names = ["input_ids", "token_type_ids", "attention_mask"]
            hub.write_json(saved, {**hub.read_json(saved, dict), "model_input_names": names})
        dim, activations = self.score.in_features, "torch.nn.modules"
        weights, bias = (part.detach().cpu().numpy() for part in (self.score.weight, self.score.bias))
        layers = [("linear.Identity", weights, bias)]
        if self.head == "sigmoid":
            layers.insert(
                0, ("activation.ReLU", np.eye(dim, dtype=weights.dtype), np.zeros(dim, weights.dtype))
            )
        modules, configs = [("", "Transformer"), (POOLING, "Pooling")], {POOLING: pooling_config(dim, "cls")}
        for number, (activation, weight, offset) in enumerate(layers, 2):
            path = f"{number}_Dense"
            modules.append((path, "Dense"))
            configs[path] = {
                "in_features": weight.shape[1],
                "out_features": weight.shape[0],
                "bias": True,
                "activation_function": f"{activations}.{activation}",
                "module_input_name": "sentence_embedding",
                "module_output_name": "scores" if number == len(layers) + 1 else "sentence_embedding",
            }
            (folder / path).mkdir()
            hub.write_weights(folder / path / hub.WEIGHTS, {"linear.weight": weight, "linear.bias": offset})
        final = "activation.Sigmoid" if self.head == "sigmoid" else "linear.Identity"
        model = {"model_type": "CrossEncoder", "activation_fn": f"{activations}.{final}"}
        write_modules(folder, modules, self.config.max_tokens, configs, **model)

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Self:
        """Load a saved reranker, in evaluation mode and float32."""
        settings = hub.read_json(folder / SETTINGS, dict)
        model, tokenizer = load_pretrained(ArticleConfig("reranker", path=str(folder), max_tokens=8))
        weights = weights_to_torch(hub.read_weights(folder / HEAD))
        with hub.check_consistent(folder):
            config = PairSettings.from_dict(dict(settings["pairs"]))
            made = cls(model, tokenizer, config, settings["head"])
            made.score.load_state_dict(weights)
        made.about = about
        return made.eval()


def extend_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, new_tokens: str = "copied"
) -> None:
    """Add the tokens of pairs to a model and its tokeniser; new_tokens: see CrossEncoder.pretrained."""
    initial = {CIT: tokenizer.mask_token_id, SEP: tokenizer.sep_token_id, EOS: tokenizer.sep_token_id}
    add_tokens(tokenizer)
    if len(tokenizer) > len(subword_vectors(model)):
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    vectors = subword_vectors(model).data
    for token, source in initial.items() if new_tokens == "copied" else ():
        row = tokenizer.get_vocab()[token]
        vectors[row] = vectors[source] if source is not None else vectors[:row].mean(0)


def add_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    """Append the tokens of rerank.cross_encoder.pairs to the vocabulary."""
    # False keeps the other special tokens; the argument has another name in transformers 4.
    tokenizer.add_special_tokens({"additional_special_tokens": [CIT, SEP, EOS]}, False)


def subword_vectors(model: PreTrainedModel) -> Tensor:
    """Return the subword embeddings of a model, [V, D]."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight


def is_bert(model: nn.Module) -> TypeGuard[BertModel]:
    """True if `first_hidden` supports the model."""
    from transformers import BertModel

    return isinstance(model, BertModel) and not model.config.is_decoder


def first_hidden(model: BertModel, ids: Tensor, types: Tensor, mask: Tensor | None) -> Tensor:
    """Compute `model(...).last_hidden_state[:, 0]` [B, D] without most of the last layer.

    With six layers this saves a sixth. ids, types: [B, L] int64; mask: [B, L] bool, None without padding.
    """
    hidden = model.embeddings(input_ids=ids, token_type_ids=types)
    pair_mask = None if mask is None else mask[:, None, None, :]
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
        attended = attend(query, key, value, pair_mask, dropout_p=dropout)
        attended = layer.attention.output(attended.transpose(1, 2).flatten(2), hidden)
        hidden = layer.output(layer.intermediate(attended), attended)
    last = layers[-1]
    attended = last.attention.output(_first_token_attention(last.attention.self, hidden, mask), hidden[:, 0])
    first: Tensor = last.output(last.intermediate(attended), attended)
    return first


def _plain_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float
) -> Tensor:
    """Same as torch's fused attention; on a CPU, its backward pass is faster for short texts."""
    logits = (query @ key.transpose(-1, -2)) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    return F.dropout(logits.softmax(-1), dropout_p).to(value.dtype) @ value


def _first_token_attention(attention: Any, hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Attention output of the first token, before the output projection: [B, L, D] -> [B, D].

    With one query q per head, q · (W h + b) = (q W) · h + q · b, and a mean of values W h + b is W (mean of
    h) + b, so the keys and values of the L tokens need not be computed. Softmax is invariant to q · b, but
    distributed training expects a gradient for every weight.
    """
    heads, size = attention.num_attention_heads, attention.attention_head_size
    query = attention.query(hidden[:, 0]).unflatten(-1, (heads, size)).transpose(0, 1)
    key, value = (part.weight.unflatten(0, (heads, size)) for part in (attention.key, attention.value))
    projected = (query @ key).transpose(0, 1)  # [B, heads, D]
    key_bias = attention.key.bias.unflatten(0, (heads, 1, size))
    constant = (query * key_bias).sum(-1).T[..., None]  # [B, heads, 1]
    logits = (projected @ hidden.transpose(1, 2) + constant).float() * attention.attention_head_size**-0.5
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None, :], float("-inf"))
    weights = attention.dropout(logits.softmax(-1)).to(hidden.dtype)
    mean = (weights @ hidden).transpose(0, 1)  # [heads, B, D]
    biases = attention.value.bias.unflatten(0, (heads, size))[:, None] * weights.sum(-1).T[..., None]
    output: Tensor = mean @ value.transpose(1, 2) + biases
    return output.transpose(0, 1).flatten(1)
