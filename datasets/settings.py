"""Typed settings: a default stands in a dataclass alone, YAML files in conf/ list what differs from it.

A room's `settings.py` imports nothing heavy. It declares its settings and registers them as schemas:

    @dataclass(frozen=True)
    class LossSettings(Settings):
        where: ClassVar[str] = "model.loss"
        name: str = setting("infonce", choices=("infonce", "triplet"))
        temperature: float = setting(0.05, above=0)

    register("hatten", HAttenSettings)

The YAML file takes it up by `defaults: [/schema/hatten@_here_, _self_]`, so that a value of a wrong type
already fails while Hydra composes. Entry points import these modules before `hydra.main`. In the code,
`read_settings(LossSettings, config["loss"])` gives the checked dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from datasets.errors import InputError, missing_extra
from datasets.help import groups, notes

T = TypeVar("T")


def setting(
    default: Any,
    *,
    least: float = 0,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """A field with bounds on its number, or the words to choose from; without it, numbers are not below 0."""
    return field(
        default=default,
        metadata={"least": least, "most": most, "above": above, "below": below, "choices": choices},
    )


@dataclass(frozen=True)
class Settings:
    """Base of settings: making an instance raises InputError for what is out of its declared bounds."""

    where: ClassVar[str] = ""
    """the part's name in the configuration, for messages"""

    def __post_init__(self) -> None:
        for part in fields(self):
            if isinstance(part.default, tuple):  # OmegaConf gives a list
                object.__setattr__(self, part.name, tuple(getattr(self, part.name)))
        check(self, self.where)


def check(made: Any, where: str) -> None:
    """InputError for the first field that is out of its declared bounds."""
    for part in fields(made):
        value, named = getattr(made, part.name), f"{where}.{part.name}".lstrip(".")
        choices = part.metadata.get("choices")
        if choices and value not in choices:
            raise InputError(f"{named}={value}: choose {', '.join(choices[:-1])} or {choices[-1]}")
        if type(value) in (int, float) and (wanted := _broken_bounds(value, part.metadata)):
            raise InputError(f"{named}={value}: must {wanted}")


def check_count(option: str, value: object, least: int = 1) -> None:
    """InputError unless the option is a whole number of at least `least`."""
    if type(value) is not int or value < least:
        raise InputError(f"{option}={value}: must be a whole number, at least {least}")


def _broken_bounds(value: float, bounds: Mapping[str, Any]) -> str:
    """What a number must be, empty where it is."""
    least, most, above, below = (bounds.get(name) for name in ("least", "most", "above", "below"))
    low = value > above if above is not None else value >= (least or 0)
    if low and (most is None or value <= most) and (below is None or value < below):
        return ""
    if most is None and below is None and above is None and not least:
        return "not be below 0"
    parts = [f"above {above}" if above is not None else f"at least {least}"]
    parts += [f"at most {most}"] if most is not None else []
    parts += [f"below {below}"] if below is not None else []
    return "be " + " and ".join(parts)


def register(name: str, kind: type, target: str | None = None) -> None:
    """Let YAML files take up a dataclass as `/schema/NAME`; target: its `_target_`, for instantiate()."""
    if target is not None:
        with_target = [("_target_", str, field(default=target))]
        kind = make_dataclass(kind.__name__, with_target, bases=(kind,), frozen=True)
    ConfigStore.instance().store(group="schema", name=name, node=_schema(kind))


def _schema(kind: type) -> DictConfig:
    """A node that can be written to, though the dataclasses are frozen."""
    node = OmegaConf.structured(kind)
    parts = [node]
    while parts:
        part = parts.pop()
        OmegaConf.set_readonly(part, None)
        children = (part._get_node(key) for key in part)
        parts += [child for child in children if isinstance(child, DictConfig) and not child._is_none()]
    return node


def read_settings(kind: type[T], given: Mapping[Any, Any], where: str = "") -> T:
    """The checked dataclass of the `given` values; InputError names what is unknown or of another type.

    where: the part's name in the configuration, by default that of the class.

    >>> Sizes = make_dataclass("Sizes", [("depth", int, 3), ("width", float, 1.0)])
    >>> read_settings(Sizes, {"width": 2})
    Sizes(depth=3, width=2.0)
    """
    where = where or getattr(kind, "where", "")
    try:
        made = OmegaConf.to_object(OmegaConf.merge(_schema(kind), dict(given)))
    except OmegaConfBaseException as error:
        raise InputError(describe(error, where)) from None
    assert isinstance(made, kind)
    if not isinstance(made, Settings):
        check(made, where)
    return made


def read_own_settings(kind: type[T], given: Mapping[Any, Any], where: str = "model") -> T:
    """The same of those of the given values that the dataclass has fields for."""
    assert dataclasses.is_dataclass(kind)
    names = {part.name for part in fields(kind)}
    return read_settings(kind, {name: value for name, value in given.items() if name in names}, where)


KINDS: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("a word", "words"),
}


def describe(error: OmegaConfBaseException, where: str = "") -> str:
    """One line on a value that does not fit its schema: the key, the value and what it must be."""
    key = f"{where}.{error.full_key or ''}".strip(".").partition("[")[0]
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and isinstance(error.parent_node, DictConfig):
        known = [str(name) for name in error.parent_node if not str(name).startswith("_")]
        typed = dataclasses.is_dataclass(OmegaConf.get_type(error.parent_node))
        whole = not (typed or where or error.parent_node._get_parent())  # what a command has composed
        known = sorted({*known, *groups()} - {"hydra"}) if whole else known
        line = f"{key}: there is no such option"
        if close := get_close_matches(str(error.key), known, 1):
            return f"{line}; did you mean {key.rpartition('.')[0]}.{close[0]}?".replace(" .", " ")
        line += f"; there are: {', '.join(known)}" if known else ""
        return line if typed or whole else f"{line}; +{key}=... adds it"
    hint = error.ref_type
    if isinstance(error.key, str) and dataclasses.is_dataclass(error.object_type):
        hint = get_type_hints(error.object_type).get(error.key)
    wanted = in_words(hint)
    if not wanted or not key:
        return f"{key}: {error}".strip(": ")
    return f"{key}={error.value}: must be {wanted}"


def describe_missing(key: str) -> str:
    """One line on an option without a default: what it is, by its comment, and an example."""
    about, _, example = notes().get(key, "").partition(" (e.g. ")
    return f"{key} must be given, as {key}={example.removesuffix(')') or '...'}{about and ': '}{about}"


def refuse_missing(config: DictConfig) -> None:
    """InputError for the first option that must be given and is not; call it before slow imports.

    What other options read by `oc.select` may be missing.
    """
    select = OmegaConf.to_yaml(config)
    parts: list[tuple[str, Any]] = [("", OmegaConf.to_container(config, resolve=False))]
    while parts:
        path, value = parts.pop()
        if isinstance(value, dict):
            parts += [(f"{path}.{key}".strip("."), value[key]) for key in reversed(value)]
        elif value == "???" and f"oc.select:{path}," not in select:
            raise InputError(describe_missing(path))


EXTRAS = {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"}
"""Launchers of Hydra, and the extras that they come with."""


def unknown_choice(file: str, options: Sequence[str]) -> str:
    """One line on a choice of a group that is not there. file: GROUP/NAME."""
    group, _, name = file.partition("@")[0].removesuffix(".yaml").rpartition("/")
    if group == "hydra/launcher" and name in EXTRAS:
        return missing_extra(f"{group}={name}", EXTRAS[name])
    if not options:
        line = f"{group}={name}: there is no such group"
        return (
            f"{line}; did you mean {known[0]}?" if (known := get_close_matches(group, groups(), 1)) else line
        )
    if close := get_close_matches(name, options, 1):
        return f"{group}={name}: there is no such choice; did you mean {group}={close[0]}?"
    return f"{group}={name}: choose {', '.join(options[:-1])} or {options[-1]}"


def in_words(hint: Any) -> str:
    """`int | None` -> a whole number or null; empty for what is not a plain value or list."""
    if get_origin(hint) is UnionType:
        known = [in_words(part) for part in get_args(hint) if part is not NoneType]
        return " or ".join([*known, "null"]) if all(known) else ""
    if get_origin(hint) in (tuple, list):
        return f"a list of {KINDS[get_args(hint)[0]][1]}" if get_args(hint)[0] in KINDS else ""
    return KINDS[hint][0] if hint in KINDS else ""
