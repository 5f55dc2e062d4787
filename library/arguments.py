"""Options of a command as `key=value`, read and explained by the fields of its settings.

A field of the type str takes its value as it is, whatever characters it has. Lists are `[a,b]`, with quotes
around what has a comma, or one plain value. One argument without a key may stand for the field that the
settings call `positional`.
"""

from __future__ import annotations

import csv
import re
import textwrap
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from datasets.errors import InputError
from datasets.settings import Settings, field_notes, in_words

Made = TypeVar("Made", bound=Settings)

WIDTH, COLUMN = 110, 34
"""Of a line of help, and where the notes begin."""
_KEY = re.compile(r"(?:--)?([a-zA-Z_]\w*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([a-zA-Z_][\w-]*)")
_NULL = ("null", "none", "")


def read_arguments(kind: type[Made], arguments: Sequence[str]) -> Made:
    """The settings that the arguments give. InputError names what is unknown, missing or of another type.

    `--key=value` is `key=value`, and `--key` is `key=true` for a field of true and false.
    """
    hints, given = get_type_hints(kind), dict[str, Any]()
    names = [part.name for part in fields(kind)]
    positional = getattr(kind, "positional", "")
    for argument in arguments:
        if (pair := _KEY.fullmatch(argument)) and (pair[1] in names or not (positional and " " in argument)):
            key, value = pair[1], pair[2]
        elif flag := _FLAG.fullmatch(argument):
            key, value = flag[1].replace("-", "_"), "true"
            if hints.get(key, bool) is not bool:
                raise InputError(f"--{flag[1]}: give a value, as {key}=...")
        elif positional:
            key, value = positional, argument
        else:
            raise InputError(f"{argument!r}: options are given as key=value{_perhaps(argument, names)}")
        if key not in names:
            close = _perhaps(key, names) or f"; choose from {', '.join(names)}"
            raise InputError(f"{key}: there is no such option{close}")
        if key in given:
            raise InputError(f"{key}: is given twice")
        given[key] = _value(key, value, hints[key])
    for part in fields(kind):
        if part.name not in given and _default(part) is MISSING:
            about, _, example = field_notes(kind).get(part.name, "").partition(" (e.g. ")
            example = example.removesuffix(")") or "..."
            raise InputError(f"{part.name} is required, as in {part.name}={example}{about and ': '}{about}")
    return kind(**given)


def _perhaps(word: str, names: Sequence[str]) -> str:
    close = get_close_matches(word, names, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _value(key: str, text: str, hint: Any) -> Any:
    """The text as a value of the type; InputError that says what it must be."""
    if hint is str:
        return text
    if get_origin(hint) is tuple:
        listed = text.strip()
        parts = [text]
        if listed.startswith("[") and listed.endswith("]"):
            parts = next(csv.reader([listed[1:-1]], skipinitialspace=True), [])
        return tuple(_value(key, part.strip(), get_args(hint)[0]) for part in parts if part.strip())
    if NoneType in get_args(hint) and text.lower() in _NULL:
        return None
    try:
        return msgspec.convert(text, hint, strict=False)
    except msgspec.ValidationError:
        raise InputError(f"{key}={text}: must be {in_words(hint)}") from None


def options_help(kind: type[Settings]) -> str:
    """A line on each option: its default and what it is."""
    notes, lines = field_notes(kind), []
    for part in fields(kind):
        default, note = _default(part), notes.get(part.name, "")
        value = "..." if default is MISSING else _shown(default)
        if part.name == getattr(kind, "positional", ""):
            note += "; may stand without `" + part.name + "=`"
        start = f"  {part.name}={value}"
        rest = textwrap.wrap(note, WIDTH - COLUMN, break_long_words=False, break_on_hyphens=False)
        beside = [start] if len(start) >= COLUMN or not rest else [start.ljust(COLUMN) + rest.pop(0)]
        lines += [*beside, *(" " * COLUMN + line for line in rest)]
    return "\n".join(lines)


def _default(part: Field[Any]) -> Any:
    return part.default if part.default_factory is MISSING else part.default_factory()


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
