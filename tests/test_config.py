"""Every option of every config group composes and resolves; its targets exist and accept its keys."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict

from citerec.base.help import option_notes
from citerec.datasets.published.releases import RELEASES
from citerec.training.settings import vectors_for

CONF = Path(__file__).parents[1] / "conf"
ENTRIES = ("train", "evaluate", "inspect")
OPTIONS = sorted(
    (str(path.parent.relative_to(CONF)), path.stem)
    for path in CONF.rglob("*.yaml")
    if path.parent != CONF and not path.is_relative_to(CONF / "hydra") and path.parent.name != "base"
)
SPECIAL = {"_target_", "_partial_", "_recursive_", "_convert_", "_args_"}


@cache
def compose_entry(entry: str, *overrides: str) -> DictConfig:
    """Compose the configuration of `python ENTRY.py OVERRIDES`, unresolved."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(entry, list(overrides), return_hydra_config=True)
    with open_dict(config):  # set by Hydra only when it runs a job
        config.hydra.runtime.cwd = config.hydra.runtime.output_dir = "."
        config.hydra.job.num, config.hydra.job.id = 0, "0"
    return config


def compose_option(entry: str, group: str, option: str) -> DictConfig | None:
    """Compose an entry point's configuration with an option; None if it does not have the group."""
    if group == "tuned":  # named MODEL-DATA and selected by both
        return compose_entry("train", f"model={option.partition('-')[0]}", "data=demo")
    if group == "recipe":  # named EXPERIMENT-MODEL and selected by both
        experiment, _, model = option.partition("-")
        return compose_entry("train", f"experiment={experiment}", f"model={model}")
    if group == "splitting":
        return compose_entry("train", "data=papers", f"splitting@data.splitting={option}")
    groups = {key.partition("@")[0] for key in compose_entry(entry).hydra.runtime.choices}
    if group not in groups:
        return None
    try:
        return compose_entry(entry, f"{group}={option}")
    except ConfigCompositionException as error:
        if placed := re.search(r"Did you mean to override (\S+)\?", str(error)):  # group@package
            return compose_entry(entry, f"{placed[1]}={option}")
        raise


def resolve(config: DictConfig) -> dict[str, Any]:
    """Return the configuration without Hydra's part and with interpolations resolved; ??? stays."""
    HydraConfig.instance().set_config(config)
    own = {key: value for key, value in config.items_ex(resolve=False) if key != "hydra"}
    plain = OmegaConf.to_container(OmegaConf.create(own), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def target_nodes(config: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping with a `_target_`."""
    if isinstance(config, dict):
        if "_target_" in config:
            yield config
        for value in config.values():
            yield from target_nodes(value)
    elif isinstance(config, list):
        for value in config:
            yield from target_nodes(value)


def unknown_keys(node: dict[str, Any]) -> set[str]:
    """Return keys that the target does not accept; raise ImportError if the target does not exist."""
    try:
        target = get_object(node["_target_"])
    except Exception as error:
        raise ImportError(f"{node['_target_']}: {error}") from error
    parameters = inspect.signature(target).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return set()
    return set(node) - SPECIAL - {parameter.name for parameter in parameters}


def configs_with(group: str, option: str) -> Iterator[DictConfig]:
    """Compose an option with an entry point that knows its group; the group's first with each of them."""
    result = (config for entry in ENTRIES if (config := compose_option(entry, group, option)) is not None)
    return (
        result
        if option == min(name for its_group, name in OPTIONS if its_group == group)
        else islice(result, 1)
    )


def flat_items(config: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a configuration and their values."""
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from flat_items(value, f"{path}{key}.")
        elif not str(key).startswith("_"):
            yield f"{path}{key}", value


def undescribed(config: DictConfig) -> set[str]:
    """Return the options that the help does not describe."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        HydraConfig.instance().set_config(config)
        notes = option_notes()
    plain: Any = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict) and plain.pop("hydra")
    return {key for key, value in flat_items(plain) if not notes.get(key) and "${" not in str(value)}


def check(config: DictConfig) -> None:
    for node in target_nodes(resolve(config)):
        assert unknown_keys(node) == set(), node["_target_"]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_defaults_compose(entry: str) -> None:
    config = compose_entry(entry)
    check(config)
    assert config.hydra.runtime.choices.get("data", "demo") == "demo"


@pytest.mark.slow
@pytest.mark.parametrize("group", sorted({group for group, _ in OPTIONS}))
def test_every_option_composes_and_is_in_the_help(group: str) -> None:
    for option in (option for its_group, option in OPTIONS if its_group == group):
        configs = [*configs_with(group, option)]
        assert configs, f"{group}={option}: no entry point knows the group"
        for config in configs:
            check(config)
        assert undescribed(configs[0]) == set(), option


def test_help_describes_every_option_of_a_data_command() -> None:
    assert undescribed(compose_entry("inspect")) == set()


@pytest.mark.slow
def test_encoders_rank_by_the_distance_of_their_publications() -> None:
    by_distance = ("scincl", "specter", "specter2")  # Aspire: retrieval.encoders.sentences
    for path in sorted((CONF / "encoder").glob("*.yaml")):
        config = next(configs_with("encoder", path.stem))
        assert (config.encoder.similarity == "l2") == (path.stem in by_distance), path.stem


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (("+retriever@retriever.parts.minilm=article",), ["BM25", "trained_retriever", "article_retriever"]),
        (("~retriever@retriever.parts.dense",), ["BM25"]),
        (
            ("retriever@retriever.parts.dense=run", "retriever.parts.dense.files=[a.trec,b.trec]"),
            ["BM25", "CachedRun"],
        ),
    ],
)
def test_parts_of_a_fusion_can_be_added_removed_and_replaced(
    overrides: tuple[str, ...], parts: list[str]
) -> None:
    config = compose_entry("evaluate", "retriever=fusion", *overrides)
    check(config)
    result = resolve(config)["retriever"]["parts"].values()
    assert [part["_target_"].rpartition(".")[2] for part in result] == parts


def test_hatten_and_published_data_use_published_word_vectors() -> None:
    for path in sorted((CONF / "data").glob("*.yaml")):
        of_the_paper = "base/published" in path.read_text("utf-8") and not RELEASES[path.stem].repositories
        assert vectors_for(path.stem) == ("glove" if of_the_paper else "word2vec")
        assert vectors_for(path.stem, "hatten") == ("glove50" if path.stem == "demo" else "glove")
    for entry in ("train", "evaluate"):
        assert compose_entry(entry, "data=acl200").hydra.runtime.choices["embeddings"] == "glove"
    choices = compose_entry("train", "data=custom", "data.dir=x", "model=hatten").hydra.runtime.choices
    assert choices["embeddings"] == "glove"
