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
    pooling_mode: str | list[str] | None = None
    include_prompt: bool = True


class _Model(msgspec.Struct):
    prompts: dict[str, str | None] = {}
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None

    def prompt(self, *names: str) -> str:
        """The prompt of the first of these names that is known, else the default."""
        named = map(self.prompts.get, (*names, self.default_prompt_name or ""))
        return next(filter(None, named), "")


class _Limits(msgspec.Struct):
    """The token limits in sentence_bert_config.json, tokenizer_config.json and config.json."""

    max_seq_length: int | None = None
    model_max_length: float | None = None
    max_position_embeddings: int | None = None
    do_lower_case: bool | None = False


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
    pooled, include_prompt = _pooling(folder / modules[1].path / "config.json")
    if pooled not in (["mean"], ["cls"]):
        raise InputError(
            f"{folder / modules[1].path}/config.json: pooling is {', '.join(pooled) or 'none'}; supported "
            "are mean and cls"
        )
    model = _read(folder / MODEL, _Model)
    if _read(folder / TRANSFORMER, _Limits).do_lower_case:
        raise InputError(f"{folder / TRANSFORMER}: do_lower_case is not supported; set it in the tokeniser")
    similarity = {None: "cosine", "euclidean": "l2"}.get(model.similarity_fn_name, model.similarity_fn_name)
    if similarity == "dot" and kinds[-1] == "Normalize":
        similarity = "cosine"
    if similarity not in ("cosine", "l2", "dot"):
        raise InputError(f"{folder / MODEL}: similarity_fn_name={similarity} is not supported")
    prompts = read_prompts(folder)
    if any(prompts) and not include_prompt:
        raise InputError(f"{folder / modules[1].path}/config.json: include_prompt=false is not supported")
    return replace(
        config,
        pooling=pooled[0],
        max_tokens=min(config.max_tokens, read_limit(folder)),
        similarity=similarity,
        query_prompt=prompts[0],
        paper_prompt=prompts[1],
    )


def read_prompts(folder: Path) -> tuple[str, str]:
    """The prompts of queries and of papers."""
    model = _read(folder / MODEL, _Model)
    return model.prompt("query"), model.prompt("document", "passage", "corpus")


def _pooling(path: Path) -> tuple[list[str], bool]:
    """How vectors are pooled, and whether prompts are. New versions write pooling_mode, old ones flags."""
    pooling = _read(path, _Pooling)
    if pooling.pooling_mode is not None:
        names = pooling.pooling_mode
        return [names] if isinstance(names, str) else names, pooling.include_prompt
    prefix = "pooling_mode_"
    flags = [
        key.removeprefix(prefix)
        for key, on in _read(path, dict[str, Any]).items()
        if key.startswith(prefix) and on
    ]
    return [flag.removesuffix("_tokens").removesuffix("_token") for flag in flags], pooling.include_prompt


def read_limit(folder: Path) -> int:
    """Maximum tokens of a text, by the first of the files that has a limit."""
    read = [_read(folder / name, _Limits) for name in (TRANSFORMER, TOKENIZER, "config.json")]
    lengths = read[0].max_seq_length, read[1].model_max_length, read[2].max_position_embeddings
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
        if kind in (_Limits, _Model):  # optional
            return kind()
        raise InputError(f"{path}: this model file is missing") from None
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: damaged ({error})") from None
