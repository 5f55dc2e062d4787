"""Settings composed by Hydra: schemas of the YAML files, validated dataclasses, one-line errors."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args, get_type_hints

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from citerec.base.errors import BEFORE_MAIN, EXPLAIN, InputError, error_line, missing_extra
from citerec.base.files import cache_folder
from citerec.base.help import config_groups, flat_options, option_notes
from citerec.base.settings import (
    KINDS,
    RESOLVERS,
    SCHEMAS,
    Settings,
    describe_type,
    required,
    suggestion,
)

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)

RESOLVERS.update(cache_folder=lambda: str(cache_folder()))


def prepare_hydra() -> None:
    """Give Hydra all registered schemas and functions that it lacks."""
    for name, function in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, function, use_cache=True, replace=True)
    stored = ConfigStore.instance().repo.get("schema", {})
    for name, kind in SCHEMAS.items():
        if f"{name}.yaml" not in stored:
            ConfigStore.instance().store(group="schema", name=name, node=_schema(kind))


def _schema(kind: type) -> DictConfig:
    """Return a writable node, although the dataclasses are frozen."""
    node = OmegaConf.structured(kind)
    parts = [node]
    while parts:
        part = parts.pop()
        OmegaConf.set_readonly(part, None)
        is_object = part._metadata.object_type is dict and "_target_" in part
        if part._metadata.element_type in KINDS or is_object:  # takes any key
            OmegaConf.set_struct(part, False)
        children = (part._get_node(key) for key in part)
        parts += [child for child in children if isinstance(child, DictConfig) and not child._is_none()]
    return node


def read_settings(kind: type[S], values: Mapping[Any, Any]) -> S:
    """Return the validated dataclass for the `given` values; InputError for unknown keys and wrong types.

    >>> sizes = [("depth", int, 3), ("width", float, 1.0)]
    >>> Sizes = dataclasses.make_dataclass("Sizes", sizes, bases=(Settings,), frozen=True)
    >>> read_settings(Sizes, {"width": 2})
    Sizes(depth=3, width=2.0)
    """
    try:
        settings = OmegaConf.to_object(OmegaConf.merge(_schema(kind), dict(values)))
    except OmegaConfBaseException as error:
        raise InputError(describe(error, kind.where)) from None
    assert isinstance(settings, kind)
    return settings


def describe(error: OmegaConfBaseException, where: str = "") -> str:
    """Describe a value that does not fit its schema in one line: the key, the value and what it must be."""
    key = f"{where}.{error.full_key or ''}".strip(".").partition("[")[0]
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and isinstance(error.parent_node, DictConfig):
        names = [str(name) for name in error.parent_node if not str(name).startswith("_")]
        typed = dataclasses.is_dataclass(OmegaConf.get_type(error.parent_node))
        is_root = not (typed or where or error.parent_node._get_parent())  # the command's whole configuration
        line = f"{key}: there is no such option"
        if is_root:
            names = sorted({*names, *config_groups()} - {"hydra"})
            nested = [path for path, _ in flat_options(error.parent_node) if path.endswith(f".{key}")]
            if own := [path for path in nested if not path.startswith("hydra.")]:
                return f"{line}; did you mean {min(own, key=len)}?"
        if close := suggestion(str(error.key), names, key[: key.rfind(".") + 1]):
            return line + close
        line += f"; choose from {', '.join(names)}" if names else ""
        return line if typed or is_root else f"{line}; +{key}=... adds it"
    hint = error.ref_type
    if isinstance(error.key, str) and dataclasses.is_dataclass(error.object_type):
        hint = get_type_hints(error.object_type).get(error.key)
    if error.object_type is dict:  # a value of the dictionary
        hint = get_args(hint)[1]
    wanted = describe_type(hint)
    if not wanted or not key:
        return f"{key}: {error}".strip(": ")
    return f"{key}={error.value}: must be {wanted}"


def describe_missing(key: str) -> str:
    """Describe a required option in one line, with the note and the example of its comment."""
    return required(key, option_notes().get(key, ""))


def refuse_missing(config: DictConfig) -> None:
    """Raise InputError for the first required option that is missing, and for one value in place of several
    options (index=ivf); call it before slow imports."""
    for name, kind in SCHEMAS.items():
        # Some options of a command have the name of a schema that lies elsewhere (ranker, drafts).
        if isinstance(value := config.get(name), str) and name not in option_notes():
            first = next(part.name for part in dataclasses.fields(kind) if not part.name.startswith("_"))
            raise InputError(f"{name}={value}: {name} has several options, such as {name}.{first}=...")
    for path, value in flat_options(config):
        if value == "???":
            raise InputError(describe_missing(path))


def refuse_unused(config: DictConfig, readers: Mapping[str, Sequence[str]], overrides: Sequence[str]) -> None:
    """Raise InputError for an option or group that is set by an override, but that no other option reads.

    readers: {group whose choice decides: options that it may read}. In a sweep, other choices may read the
    option, so that it is only logged.
    """
    owners = {option: reader for reader, options in readers.items() for option in options}
    for override in overrides:
        option = override.lstrip("+~").partition("=")[0].partition(".")[0]
        others = OmegaConf.masked_copy(config, [str(key) for key in config if key != option])
        if option in owners and f"${{{option}" not in OmegaConf.to_yaml(others):
            job, owner = HydraConfig.get(), owners[option]
            unused = f"{override}: {owner}={job.runtime.choices[owner]} has no {option}"
            if job.mode != RunMode.MULTIRUN:
                raise InputError(f"{unused}; leave it out")
            log.info(f"{unused}, so this is not used")


EXTRAS = {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"}
"""Hydra's launchers, and the extras that install them."""


def unknown_choice(file: str, options: Sequence[str]) -> str:
    """Describe an unknown choice of a configuration group in one line. file: GROUP/NAME."""
    group, _, name = file.partition("@")[0].removesuffix(".yaml").rpartition("/")
    if group == "hydra/launcher" and name in EXTRAS:
        return missing_extra(f"{group}={name}", EXTRAS[name])
    if not options:
        return f"{group}={name}: there is no such group{suggestion(group, config_groups())}"
    if close := suggestion(name, options, f"{group}="):
        return f"{group}={name}: there is no such choice{close}"
    return f"{group}={name}: choose {', '.join(options[:-1])} or {options[-1]}"


def configuration_line(error: BaseException) -> str | None:
    """Return the line for an error that Hydra or OmegaConf raised; None for others."""
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        return error_line(error.__cause__)  # raised by a constructor, or a bug in it
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return None
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
            return unknown_choice(cause.missing_cfg_file, cause.options or ())
        if isinstance(cause, MissingMandatoryValue):
            return describe_missing(cause.full_key or str(cause.key))
        if isinstance(cause, ConfigAttributeError | ConfigKeyError | ValidationError):
            return describe(cause)
        cause = cause.__cause__ or cause.__context__
    return f"configuration: {error}"


BEFORE_MAIN.append(prepare_hydra)
EXPLAIN.append(configuration_line)
