"""Configurations as Hydra composes them."""

from __future__ import annotations

import copy
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import citerec.evaluation.settings
import citerec.library.benchmark.settings
import citerec.train  # noqa: F401  (schemas and resolvers of the configuration)
from citerec.base.settings import field_notes

CONF = Path(__file__).parents[1] / "conf"


def compose_faster(patch: pytest.MonkeyPatch) -> None:
    """Parse equal files once, and leave the stored schemas uncopied: Hydra copies each that it reads."""
    read = OmegaConf.load
    parse = cache(lambda text: read(StringIO(text)))

    def load(file: Any) -> Any:
        return read(file) if isinstance(file, str | Path) else copy.deepcopy(parse(file.read()))

    patch.setattr(OmegaConf, "load", staticmethod(load))
    patch.setattr(ConfigStore, "__deepcopy__", lambda store, _: store, raising=False)
    patch.setattr("citerec.base.help.field_notes", cache(field_notes))


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
