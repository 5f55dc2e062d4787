"""Typed settings: dataclasses define all defaults, YAML files in conf/ list only what differs.

A package's `settings.py` imports nothing heavy. It declares settings and registers them as schemas:

    @dataclass(frozen=True)
    class LossSettings(Settings):
        where: ClassVar[str] = "model.loss"
        name: str = setting("infonce", choices=("infonce", "triplet"))
        temperature: float = setting(0.05, above=0)

    register("hatten", HAttenSettings)

A YAML file includes a schema by `defaults: [/schema/hatten@_here_, _self_]`, so that Hydra rejects values of
a wrong type. Entry points import these modules before `hydra.main`. In code, `read_settings(LossSettings,
config["loss"])` (base.configuration) returns the validated dataclass.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, make_dataclass
from difflib import get_close_matches
from itertools import pairwise
from os import PathLike, fspath
from types import NoneType, UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from citerec.base.errors import InputError, is_utf8
from citerec.base.files import cache_folder


def setting(
    default: Any,
    *,
    least: float = 0,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    filled: bool = False,
) -> Any:
    """Declare a dataclass field with numeric bounds or choices, which also hold for the items of a list; by
    default, numbers must not be below 0. filled: a list must have an item."""
    bounds = {"least": least, "most": most, "above": above, "below": below}
    return field(default=default, metadata={**bounds, "choices": choices, "filled": filled})


@dataclass(frozen=True)
class Settings:
    """Base class of settings: creating an instance raises InputError for a value out of its bounds."""

    where: ClassVar[str] = ""
    """key of these settings in the configuration, for messages"""

    def __post_init__(self) -> None:
        for part in fields(self):
            value, key = getattr(self, part.name), f"{self.where}.{part.name}".lstrip(".")
            kind = str(part.type)
            if kind.startswith("tuple[") and (value is not None or not kind.endswith("None")):
                value = listed(value, key)
                object.__setattr__(self, part.name, value)
            choices = part.metadata.get("choices")
            if part.metadata.get("filled") and value == ():
                raise InputError(f"{key}: list at least one value")
            for item in value if isinstance(value, tuple) else (value,):
                if choices and item not in choices:
                    raise InputError(f"{key}={item}: choose {', '.join(choices[:-1])} or {choices[-1]}")
                if type(item) in (int, float) and (requirement := _violated_bounds(item, part.metadata)):
                    raise InputError(f"{key}={item}: must {requirement}")


def listed(value: Any, option: str) -> tuple[Any, ...]:
    """Return the items of a list, or a single text or path as its only item. Raises InputError otherwise.

    >>> listed("a.bib", "source"), listed(["a.bib", "b.bib"], "source")
    (('a.bib',), ('a.bib', 'b.bib'))
    """
    if isinstance(value, str | PathLike):
        value = [value] if value else []
    if not isinstance(value, Iterable):
        raise InputError(f"{option}={value}: must be a list")
    return tuple(fspath(item) if isinstance(item, PathLike) else item for item in value)


def check_count(option: str, value: object, least: int = 1) -> None:
    """Raise InputError unless the option is a whole number of at least `least`."""
    if type(value) is not int or value < least:
        raise InputError(f"{option}={value}: must be a whole number, at least {least}")


def check_texts(**options: object) -> None:
    """Raise InputError unless all options are texts."""
    for option, value in options.items():
        if not isinstance(value, str):
            raise InputError(f"{option}={value!r}: must be a text")
        if not is_utf8(value):
            raise InputError(f"{option}={value!r}: has half of a pair of surrogates; decode it as UTF-8")


def suggestion(word: str, names: Sequence[str], before: str = "", after: str = "") -> str:
    """Return "; did you mean NAME?" with the name closest to the word, between `before` and `after`; "" if
    none is close."""
    close = get_close_matches(word, names, 1)
    return f"; did you mean {before}{close[0]}{after}?" if close else ""


def required(option: str, note: str) -> str:
    """Return the line for a missing required option, made from its note, which may end in an example.

    >>> required("source", "files of papers (e.g. papers.bib)")
    'source is required, as in source=papers.bib: files of papers'
    """
    text, _, example = note.partition(" (e.g. ")
    return f"{option} is required, as in {option}={example.removesuffix(')') or '...'}{text and ': '}{text}"


def _violated_bounds(value: float, bounds: Mapping[str, Any]) -> str:
    """Describe the bounds that a number must satisfy; empty if it does."""
    least, most, above, below = (bounds.get(name) for name in ("least", "most", "above", "below"))
    large_enough = value > above if above is not None else value >= (least or 0)
    if large_enough and (most is None or value <= most) and (below is None or value < below):
        return ""
    if most is None and below is None and above is None and not least:
        return "not be below 0"
    parts = [f"above {above}" if above is not None else f"at least {least}"]
    parts += [f"at most {most}"] if most is not None else []
    parts += [f"below {below}"] if below is not None else []
    return "be " + " and ".join(parts)


def cache_setting(part: str = "") -> Any:
    """A setting whose default is the folder for prepared data, or a part of it."""
    return field(default_factory=lambda: str(cache_folder() / part))


SCHEMAS: dict[str, type] = {}
"""The registered schemas by name, for base.configuration."""
RESOLVERS: dict[str, Callable[..., Any]] = {}
"""Functions that the files in conf/ use as `${NAME:ARGUMENT,...}`; each call is made once."""


def register(name: str, kind: type, target: str | None = None) -> None:
    """Register a dataclass as `/schema/NAME` for YAML files. target: its `_target_`, for instantiate()."""
    if target is not None:
        with_target = [("_target_", str, field(default=target))]
        kind = make_dataclass(kind.__name__, with_target, bases=(kind,), frozen=True)
    SCHEMAS[name] = kind


KINDS: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("a word", "words"),
}


def describe_type(hint: Any) -> str:
    """Describe a type in words (`int | None`: a whole number or null); empty if not a plain value or list."""
    if get_origin(hint) is UnionType:
        kinds = [describe_type(part) for part in get_args(hint) if part is not NoneType]
        return " or ".join([*kinds, "null"]) if all(kinds) else ""
    if get_origin(hint) is dict:
        return f"{KINDS.get(get_args(hint)[1], ('', 'values'))[1]} by name"
    if get_origin(hint) in (tuple, list):
        return f"a list of {KINDS[get_args(hint)[0]][1]}" if get_args(hint)[0] in KINDS else ""
    return KINDS[hint][0] if hint in KINDS else ""


def field_notes(kind: type) -> dict[str, str]:
    """Return {dotted key: docstring, or else choices} for the fields of a dataclass, nested ones included."""
    own: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        with suppress(OSError, TypeError, StopIteration):  # no source code, as for make_dataclass
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
            for field, text in pairwise(body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                        value=ast.Constant(value=str(note))
                    ):
                        own[name] = " ".join(note.split())
    notes, hints = {}, get_type_hints(kind)
    for part in dataclasses.fields(kind):
        choices = " | ".join(part.metadata.get("choices") or ())
        notes[part.name] = own.get(part.name, choices)
        # X, or the X of X | None, or the options of a _target_.
        for inner in (hint := hints[part.name], *get_args(hint), part.metadata.get("options")):
            if dataclasses.is_dataclass(inner) and isinstance(inner, type):
                notes[part.name] = own.get(part.name) or (inner.__doc__ or "").partition("\n")[0].rstrip(".")
                notes |= {f"{part.name}.{key}": note for key, note in field_notes(inner).items()}
    return {key: note for key, note in notes.items() if note}
