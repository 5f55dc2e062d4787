"""Configurations as Hydra composes them."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import citerec.evaluation.settings
import citerec.library.benchmark.settings
import citerec.train  # noqa: F401  (schemas and resolvers of the configuration)

CONF = Path(__file__).parents[1] / "conf"


def compose_config(entry: str, overrides: list[str]) -> DictConfig:
    """Compose the configuration of an entry point. Choices of groups are composed once, values set after."""
    chosen, values = list[str](), list[str]()
    for override in overrides:
        name = override.partition("=")[0]
        plain = name.replace(".", "").replace("_", "").isalnum() and not (CONF / name).is_dir()
        (values if plain else chosen).append(override)
    config = copy.deepcopy(_compose(entry, *chosen))
    try:
        for value in OverridesParser.create().parse_overrides(values):
            OmegaConf.update(config, value.key_or_group, value.value())
    except OmegaConfBaseException:
        return _compose(entry, *overrides)  # raises Hydra's own error
    return config


@cache
def _compose(entry: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(entry, list(overrides))
