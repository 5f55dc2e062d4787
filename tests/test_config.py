"""Every option of every group composes, resolves, and names what exists and takes its keys."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict

CONF = Path(__file__).parents[1] / "conf"
ENTRIES = ("train", "evaluate", "build", "generate", "inspect", "embed")
OPTIONS = sorted(
    (str(path.parent.relative_to(CONF)), path.stem)
    for path in CONF.rglob("*.yaml")
    if path.parent != CONF and not path.is_relative_to(CONF / "hydra") and path.parent.name != "base"
)
SPECIAL = {"_target_", "_partial_", "_recursive_", "_convert_", "_args_"}


@cache
def composed(entry: str, *overrides: str) -> DictConfig:
    """What `python ENTRY.py OVERRIDES` would run with; unresolved."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(entry, list(overrides), return_hydra_config=True)
    with open_dict(config):  # set by Hydra only when it runs a job
        config.hydra.runtime.cwd = config.hydra.runtime.output_dir = "."
        config.hydra.job.num, config.hydra.job.id = 0, "0"
    return config


def chosen(entry: str, group: str, option: str) -> DictConfig | None:
    """What an entry point would run with when the option is chosen, None when it does not know the group."""
    if group == "tuned":  # named MODEL-DATA, and follows both
        return composed("train", f"model={option.partition('-')[0]}", "data=demo")
    if group == "recipe":  # named EXPERIMENT-MODEL, and follows both
        experiment, _, model = option.partition("-")
        return composed("train", f"experiment={experiment}", f"model={model}")
    known = {key.partition("@")[0] for key in composed(entry).hydra.runtime.choices}
    if group not in known:
        return None
    try:
        return composed(entry, f"{group}={option}")
    except ConfigCompositionException as error:
        if placed := re.search(r"Did you mean to override (\S+)\?", str(error)):  # group@package
            return composed(entry, f"{placed[1]}={option}")
        raise


def resolved(config: DictConfig) -> dict[str, Any]:
    """The configuration without Hydra's own part and with every interpolation replaced; ??? stays."""
    HydraConfig.instance().set_config(config)
    own = {key: value for key, value in config.items_ex(resolve=False) if key != "hydra"}
    plain = OmegaConf.to_container(OmegaConf.create(own), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def nodes(config: Any) -> Iterator[dict[str, Any]]:
    """Every mapping with a `_target_`."""
    if isinstance(config, dict):
        if "_target_" in config:
            yield config
        for value in config.values():
            yield from nodes(value)
    elif isinstance(config, list):
        for value in config:
            yield from nodes(value)


def unknown_keys(node: dict[str, Any]) -> set[str]:
    """Keys that the target does not take; ImportError when there is no such target."""
    try:
        target = get_object(node["_target_"])
    except Exception as error:
        raise ImportError(f"{node['_target_']}: {error}") from error
    parameters = inspect.signature(target).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return set()
    return set(node) - SPECIAL - {parameter.name for parameter in parameters}


def check(config: DictConfig) -> None:
    for node in nodes(resolved(config)):
        assert unknown_keys(node) == set(), node["_target_"]


@pytest.mark.parametrize("entry", [*ENTRIES, "convert", "count", "export", "build_mdcr", "compress"])
def test_the_defaults_compose(entry: str) -> None:
    config = composed(entry)
    check(config)
    assert config.hydra.runtime.choices.get("data", "demo") == "demo"


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=[f"{group}={option}" for group, option in OPTIONS])
def test_every_option_composes(group: str, option: str) -> None:
    # An entry point need not have every group, but one of them must.
    configs = [config for entry in ENTRIES if (config := chosen(entry, group, option)) is not None]
    assert configs, f"no entry point knows the group {group}"
    for config in configs:
        check(config)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (("+retriever@retriever.parts.minilm=article",), ["BM25", "HAttenRetriever", "article_retriever"]),
        (("~retriever@retriever.parts.hatten",), ["BM25"]),
        (
            ("retriever@retriever.parts.hatten=run", "retriever.parts.hatten.files=[a.trec,b.trec]"),
            ["BM25", "CachedRun"],
        ),
    ],
)
def test_parts_of_a_fusion_are_added_left_out_and_replaced(
    overrides: tuple[str, ...], parts: list[str]
) -> None:
    config = composed("evaluate", "retriever=fusion", *overrides)
    check(config)
    found = resolved(config)["retriever"]["parts"].values()
    assert [part["_target_"].rpartition(".")[2] for part in found] == parts


@pytest.mark.parametrize("data", ["demo", "custom"])
def test_own_corpora_train_their_own_word_vectors(data: str) -> None:
    assert composed("train", f"data={data}").hydra.runtime.choices["embeddings"] == "word2vec"


def test_a_target_that_is_not_there_and_keys_it_lacks_are_found() -> None:
    with pytest.raises(ImportError, match=r"hatten\.nowhere"):
        unknown_keys({"_target_": "hatten.nowhere.Class"})
    node = {"_target_": "pathlib.PurePath.joinpath", "_partial_": True, "self": 1, "seperator": "/"}
    assert unknown_keys(node) == {"seperator"}
    assert unknown_keys({"_target_": "subprocess.run", "any": 1}) == set()
    assert list(nodes({"a": [{"_target_": "x"}], "b": {"_target_": "y", "c": {"_target_": "z"}}})) == [
        {"_target_": "x"},
        {"_target_": "y", "c": {"_target_": "z"}},
        {"_target_": "z"},
    ]


@pytest.mark.parametrize("entry", ["embed", "generate", "inspect"])
def test_defaults_of_a_command_stand_in_its_file_alone(entry: str) -> None:
    config = composed(entry)
    parameters = inspect.signature(get_object(config["_target_"])).parameters
    assert [
        name
        for name in parameters
        if name in config and parameters[name].default is not inspect.Parameter.empty
    ] == []
