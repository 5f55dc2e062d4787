"""Values out of JSON records, with the place in the message when one cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datasets.bad_records import SHOWN, shown
from datasets.errors import InputError
from datasets.json_stream import kind_of
from datasets.source import usable_id

Object = dict[str, Any]


def refuse(where: str, field: str, wanted: str, value: Any) -> InputError:
    """The error to raise for a value of the wrong kind."""
    return InputError(f"{where}, field {field!r}: must be {wanted}, not {kind_of(value)}")


def named(part: str, key: str) -> str:
    """The place of a value in an object whose keys are not known: on one line, and not too long."""
    return f"{part}.{key if key.isprintable() and len(key) <= SHOWN else shown(key)}"


def string(record: Object, field: str, where: str) -> str:
    """A string; absent and null are ""."""
    value = record.get(field)
    if value is not None and not isinstance(value, str):
        raise refuse(where, field, "a string", value)
    return value or ""


def identity(record: Object, field: str, where: str) -> str:
    """The id of a paper: a whole number, or a string that is usable_id."""
    value = record.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise refuse(where, field, "an id (a string or a number)", value)
    if not usable_id(value):
        raise InputError(
            f"{where}, field {field!r}: an id must not be empty or hold white space or control characters"
        )
    return value


def optional_identity(record: Object, field: str, where: str) -> str:
    """An id; absent, null and "" are ""."""
    return "" if record.get(field) in (None, "") else identity(record, field, where)


def whole(record: Object, field: str, where: str) -> int:
    """A whole number that must be there; a string of digits will do."""
    value = record.get(field)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(where, field, "a whole number", value)
    return value


def mapping(record: Object, field: str, where: str) -> Object:
    """An object; absent and null are empty."""
    value = record.get(field)
    if value is not None and not isinstance(value, dict):
        raise refuse(where, field, "an object", value)
    return value or {}


def objects(record: Object, field: str, where: str) -> Iterator[tuple[Object, str]]:
    """The objects of a list, each with its place; absent and null are none."""
    value = record.get(field)
    if value is not None and not isinstance(value, list):
        raise refuse(where, field, "a list of objects", value)
    for number, item in enumerate(value or ()):
        if not isinstance(item, dict):
            raise refuse(where, f"{field}[{number}]", "an object", item)
        yield item, f"{where}, {field}[{number}]"


def strings(record: Object, field: str, where: str) -> tuple[str, ...]:
    """The strings of a list; absent and null are none."""
    value = record.get(field)
    if value is not None and not isinstance(value, list):
        raise refuse(where, field, "a list of strings", value)
    for item in value or ():
        if not isinstance(item, str):
            raise refuse(where, field, "a list of strings", item)
    return tuple(value or ())
