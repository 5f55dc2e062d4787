"""Folders in the format of sentence-transformers, which lists the modules of a model in modules.json.

    modules.json                       Transformer, Pooling and, for unit vectors, Normalize
    1_Pooling/config.json              how the vector of a text is pooled
    sentence_bert_config.json          max_seq_length
    config_sentence_transformers.json  prompts, the measure of similarity

Saved encoders are such folders, and encoder.pooling=auto reads them. The package itself is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from citerec.base.errors import InputError
from citerec.retrieval.settings import ArticleConfig

MODULES, POOLING = "modules.json", "1_Pooling"
TRANSFORMER, MODEL = "sentence_bert_config.json", "config_sentence_transformers.json"
TOKENIZER = "tokenizer_config.json"
UNLIMITED = 1e6
"""Tokenisers without a limit write a far larger number."""
PACKAGE = "sentence_transformers.models"
"""Where all versions of the package find the classes of modules."""

Modules = Sequence[tuple[str, str]]


class _Module(msgspec.Struct):
    path: str
    type: str


class _Pooling(msgspec.Struct):
    """Newer versions write pooling_mode, older ones a flag for each."""

    pooling_mode: str | list[str] | None = None
    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False
    include_prompt: bool = True

    @property
    def names(self) -> list[str]:
        if self.pooling_mode is not None:
            return [self.pooling_mode] if isinstance(self.pooling_mode, str) else self.pooling_mode
        prefix = "pooling_mode_"
        flags = [name for name in self.__struct_fields__ if name.startswith(prefix) and getattr(self, name)]
        return [name.removeprefix(prefix).removesuffix("_tokens").removesuffix("_token") for name in flags]


class _Transformer(msgspec.Struct):
    max_seq_length: int | None = None
    do_lower_case: bool | None = False


class _Tokenizer(msgspec.Struct):
    model_max_length: float | None = None


class _Config(msgspec.Struct):
    max_position_embeddings: int | None = None


class _Model(msgspec.Struct):
    prompts: dict[str, str | None] = {}
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None

    @property
    def both(self) -> tuple[str, str]:
        """The prompts of queries and of papers."""
        return self._prompt("query"), self._prompt("document", "passage", "corpus")

    def _prompt(self, *names: str) -> str:
        """The prompt of the first of these names that is known, else the default."""
        named = [
            self.prompts[name] for name in (*names, self.default_prompt_name or "") if self.prompts.get(name)
        ]
        return named[0] or "" if named else ""


def write_modules(
    folder: Path, modules: Modules, max_tokens: int, configs: Mapping[str, object], **about: object
) -> None:
    """Write what sentence-transformers needs, beside a transformer and tokeniser in Hugging Face's format.

    modules: (path, class) of each; configs: {path: its configuration}; about: of the model.
    """
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"{PACKAGE}.{kind}"}
        for number, (path, kind) in enumerate(modules)
    ]
    files: dict[str, object] = {
        MODULES: listed,
        TRANSFORMER: {"max_seq_length": max_tokens, "do_lower_case": False},
        MODEL: {"prompts": {}, "default_prompt_name": None, **about},
    }
    files |= {f"{path}/config.json": config for path, config in configs.items()}
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def pooling_config(dim: int, pooling: str) -> dict[str, object]:
    """The configuration of the module Pooling, as all versions of the package read it."""
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    flags = {f"pooling_mode_{name}": name.startswith(f"{pooling}_t") for name in names}
    return {"word_embedding_dimension": dim, **flags}


def write_encoder(folder: Path, config: ArticleConfig, dim: int) -> None:
    """Write the files of an encoder with mean or first-token pooling of the last layer."""
    modules = [("", "Transformer"), (POOLING, "Pooling")]
    configs: dict[str, object] = {POOLING: pooling_config(dim, config.pooling)}
    if config.similarity == "cosine":
        modules.append(("2_Normalize", "Normalize"))
        configs["2_Normalize"] = {}
    write_modules(
        folder,
        modules,
        config.max_tokens,
        configs,
        model_type="SentenceTransformer",
        prompts={"query": config.query_prompt, "document": config.paper_prompt},
        similarity_fn_name={"l2": "euclidean"}.get(config.similarity, config.similarity),
    )


def as_saved(config: ArticleConfig, folder: Path) -> ArticleConfig:
    """Replace pooling=auto by what a model's folder says: pooling, prompts, similarity and, if lower,
    max_tokens; pooling=mean without modules.json.

    InputError for modules and options that are not supported.
    """
    if config.pooling != "auto":
        return config
    if not (folder / MODULES).is_file():
        return replace(config, pooling="mean")
    modules = read_modules(folder)
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]) or modules[0].path:
        raise InputError(
            f"{folder / MODULES}: has the modules {', '.join(kinds)}; supported are Transformer (in the same "
            "folder), Pooling and Normalize"
        )
    pooling = _read(folder / modules[1].path / "config.json", _Pooling)
    if pooling.names not in (["mean"], ["cls"]):
        pooled = ", ".join(pooling.names) or "none"
        raise InputError(
            f"{folder / modules[1].path}/config.json: pooling is {pooled}; supported are mean and cls"
        )
    model = _read(folder / MODEL, _Model)
    if _read(folder / TRANSFORMER, _Transformer).do_lower_case:
        raise InputError(f"{folder / TRANSFORMER}: do_lower_case is not supported; set it in the tokeniser")
    similarity = {None: "cosine", "euclidean": "l2"}.get(model.similarity_fn_name, model.similarity_fn_name)
    if similarity == "dot" and kinds[-1] == "Normalize":
        similarity = "cosine"
    if similarity not in ("cosine", "l2", "dot"):
        raise InputError(f"{folder / MODEL}: similarity_fn_name={similarity} is not supported")
    prompts = model.both
    if any(prompts) and not pooling.include_prompt:
        raise InputError(f"{folder / modules[1].path}/config.json: include_prompt=false is not supported")
    return replace(
        config,
        pooling=pooling.names[0],
        max_tokens=min(config.max_tokens, read_limit(folder)),
        similarity=similarity,
        query_prompt=prompts[0],
        paper_prompt=prompts[1],
    )


def read_prompts(folder: Path) -> tuple[str, str]:
    """The prompts of queries and of papers."""
    prompts: tuple[str, str] = _read(folder / MODEL, _Model).both
    return prompts


def read_limit(folder: Path) -> int:
    """Most tokens of a text, by the first of the files that says so."""
    limits = _read(folder / TRANSFORMER, _Transformer), _read(folder / TOKENIZER, _Tokenizer)
    by_model = _read(folder / "config.json", _Config).max_position_embeddings
    lengths = limits[0].max_seq_length, limits[1].model_max_length, by_model
    return next((int(limit) for limit in lengths if limit is not None and limit < UNLIMITED), int(UNLIMITED))


def read_modules(folder: Path) -> list[_Module]:
    """The modules of a model, in their order."""
    modules: list[_Module] = _read(folder / MODULES, list[_Module])
    if any(Path(module.path).is_absolute() or ".." in Path(module.path).parts for module in modules):
        raise InputError(f"{folder / MODULES}: names a path outside of the folder")
    return modules


def check_modules(folder: Path) -> None:
    """InputError naming the module whose configuration a folder lacks."""
    for module in read_modules(folder):
        path = folder / module.path / "config.json"
        if not path.is_file() and not module.type.endswith(".Normalize"):  # which has none in older versions
            raise InputError(f"{path}: this model file is missing")


def _read(path: Path, kind: Any) -> Any:
    """Read JSON; what is missing has its defaults. InputError if it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        if kind in (_Transformer, _Model, _Tokenizer):  # optional
            return kind()
        raise InputError(f"{path}: this model file is missing") from None
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: damaged ({error})") from None
