"""Commands with options `key=value`, parsed and explained from the fields of a settings class.

    main = command("data build", BuildSettings, build)

A str field takes its value verbatim. Lists are `[a,b]`, with double quotes around items that contain a comma,
or a single plain value. One argument may omit its key if the settings name a `positional` field; several may
if that field is a list.
"""

from __future__ import annotations

import csv
import inspect
import io
import logging
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from itertools import zip_longest
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from citerec.base.errors import InputError, one_line_errors, without_control_codes
from citerec.base.files import cache_folder
from citerec.base.settings import Settings, describe_type, field_notes, required, suggestion

S = TypeVar("S", bound=Settings)

WIDTH, COLUMN = 110, 34
"""Width of the help, and the column where the notes begin."""
_KEY = re.compile(r"-{0,2}([a-zA-Z_]\w*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([a-zA-Z_][\w-]*)")
_SHORT = re.compile(r"-([a-zA-Z]\w*)")
_NULL = ("null", "none", "")
HELP = ("--help", "-h")


def command(
    name: str, kind: type[S], call: Callable[[S], object], more: Callable[[], str] = str
) -> Callable[[], None]:
    """Return the `main` of `citerec NAME`; arguments as for `run_command`."""
    return one_line_errors(lambda: run_command(name, kind, call, sys.argv[1:], more=more))


def run_command(
    name: str,
    kind: type[S],
    call: Callable[[S], object],
    arguments: Sequence[str],
    level: int = logging.INFO,
    more: Callable[[], str] = str,
) -> None:
    """Call a function with the settings read from the arguments and print what it returns, if anything; or
    print the help of `citerec NAME`.

    level: level of the log, which goes to stderr. more: returns text to print below the options in the help.
    """
    if any(argument in HELP for argument in arguments):
        description = inspect.cleandoc(kind.__doc__ or "")
        lines = [f"citerec {name}: {description}", "", "Options:", options_help(kind)]
        print("\n".join([*lines, *more().splitlines()]))
        return
    settings = read_arguments(kind, arguments)
    logging.basicConfig(level=level, format="%(message)s", stream=_Stderr())
    if (result := call(settings)) is not None:
        print(result)


class _Stderr(io.TextIOBase):
    """Writes to the current sys.stderr, which a progress bar replaces so that text appears above the bar."""

    def write(self, text: str) -> int:
        return sys.stderr.write(without_control_codes(text))

    def flush(self) -> None:
        sys.stderr.flush()


def read_arguments(kind: type[S], arguments: Sequence[str]) -> S:
    """Parse arguments into settings. Raises InputError for an unknown, missing or invalid option.

    `--key=value` means `key=value`, and `--key` means `key=true` for a bool field.
    """
    hints, values = get_type_hints(kind), dict[str, Any]()
    names = [part.name for part in fields(kind)]
    shown = [name.removesuffix("_") for name in names]
    positional = getattr(kind, "positional", "")
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue="..."):
        pair = _KEY.fullmatch(argument)
        if pair and not (positional and _is_sentence(pair, hints)):
            key, value = pair[1], pair[2].replace("${cache_folder:}", str(cache_folder()))  # as in conf/
        elif flag := _FLAG.fullmatch(argument):
            key, value = flag[1].replace("-", "_"), "true"
            if hints.get(key, bool) is not bool:
                raise InputError(f"--{flag[1]}: write {key}={following}")
        elif flag := _SHORT.fullmatch(argument):
            [near] = get_close_matches(flag[1], shown, 1) or ["key"]
            raise InputError(f"{argument}: write {near}={following}")
        elif positional:
            key, value = positional, argument
        else:
            raise InputError(
                f"{argument!r}: write options as key=value{suggestion(argument, shown, after='=...')}"
            )
        if f"{key}_" in names:  # a word of Python, such as from
            key += "_"
        if key not in names:
            close = suggestion(key, shown) or f"; choose from {', '.join(shown)}"
            raise InputError(f"{key}: there is no such option{close}")
        converted = _convert(key, value, hints[key])
        if key in values:
            if value is not argument:
                raise InputError(f"{key}: given twice")
            if not isinstance(converted, tuple):
                raise InputError(f"{argument!r}: put a text of several words in quotes")
            converted = values[key] + converted
        values[key] = converted
    for part in fields(kind):
        if values.get(part.name, "") in ("", ()) and _default(part) is MISSING:  # not given, or empty
            raise InputError(required(part.name, field_notes(kind).get(part.name, "")))
    return kind(**values)


def _is_sentence(pair: re.Match[str], hints: dict[str, Any]) -> bool:
    """True for text with an equals sign, such as "k=1 neighbours suffice"."""
    if pair[1] not in hints:
        return " " in pair[0]
    with suppress(InputError):
        _convert(pair[1], pair[2], hints[pair[1]])
        return False
    return " " in pair[2].strip()


def _convert(key: str, text: str, hint: Any) -> Any:
    """Convert a value to the type of its field. Raises InputError if that is impossible."""
    if hint is str:
        return text
    if get_origin(hint) is tuple:
        stripped = text.strip()
        parts = [text]
        if stripped.startswith("[") and stripped.endswith("]"):
            try:
                parts = next(csv.reader([stripped[1:-1]], skipinitialspace=True), [])
            except csv.Error:
                raise InputError(f'{key}={text}: put what has a line break in quotes: ["..."]') from None
        return tuple(_convert(key, part.strip(), get_args(hint)[0]) for part in parts if part.strip())
    if NoneType in get_args(hint) and text.lower() in _NULL:
        return None
    try:
        return msgspec.convert(text, hint, strict=False)
    except msgspec.ValidationError:
        raise InputError(f"{key}={text}: must be {describe_type(hint)}") from None


def options_help(kind: type[Settings]) -> str:
    """Return the help of all options, with defaults and notes, required ones first."""
    notes, options = field_notes(kind), []
    for part in sorted(fields(kind), key=lambda part: _default(part) is not MISSING):
        note = notes.get(part.name, "")
        if part.name == getattr(kind, "positional", ""):
            note += f"; `{part.name}=` may be omitted"
        options.append((part.name.rstrip("_"), _default(part), note))
    return "\n".join(option_lines(options))


def option_lines(options: Iterable[tuple[str, Any, str]]) -> list[str]:
    """Return the lines of the help for options: key, default (MISSING: required), note."""
    lines = []
    for key, default, note in options:
        value = "..." if default is MISSING else _format_value(default)
        text, rest = f"  {key}={value}", textwrap.wrap(note, WIDTH - COLUMN, break_on_hyphens=False)
        first = rest.pop(0) if rest and len(text) < COLUMN else ""
        lines += [f"{text:{COLUMN}}{first}".rstrip(), *(" " * COLUMN + line for line in rest)]
    return lines


def _default(part: Field[Any]) -> Any:
    return part.default if part.default_factory is MISSING else part.default_factory()


def _format_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{','.join(map(_format_value, value))}]" if isinstance(value, tuple | list) else str(value)
