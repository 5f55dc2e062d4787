"""JSON files as a stream of records: bounded memory, exact positions in errors.

A record is an object. Its end is found by its brackets, and what lies between is parsed at once. So a
malformed record can be told from the others, unless it may have swallowed some of them, as when a quotation
mark is missing: then the file cannot be used.

Where RFC 8259 leaves a choice: the text is in UTF-8, with or without a byte order mark. Of a field that is
given twice the last value counts, but one that is asked for makes a bad record. One half of a surrogate pair
(an escape as \\ud800 alone) becomes U+FFFD. Whole numbers of more than 64 bits become floats, and numbers
that are too large for these are malformed, as are NaN and Infinity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from datasets.bad_records import BadRecord, OnBad, refuse
from datasets.byte_files import open_bytes
from datasets.errors import InputError
from datasets.json_text import JsonText, fault
from datasets.json_text import OnBytes as OnBytes

Fields = dict[str, Any]
Key = str | int

_KINDS = {
    b"{": "an object",
    b"[": "a list",
    b'"': "a string",
    b"n": "null",
    b"t": "a boolean",
    b"f": "a boolean",
}
_KINDS |= dict.fromkeys((b"%c" % sign for sign in b"-0123456789"), "a number")
# What a record begins with after another, whose own end may be lost. A malformed record that has it inside
# may have swallowed one.
_BETWEEN = {
    dict: re.compile(rb',[ \t\n\r]*+"(?:[^"\\]++|\\.)*+"[ \t\n\r]*+:[ \t\n\r]*+\{', re.DOTALL),
    list: re.compile(rb",[ \t\n\r]*+\{"),
}
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""A pair of surrogates, one half of a pair (the group), or any other escape."""


def kind_of(value: Any) -> str:
    """The JSON type of a value, for messages."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", type(None): "null"}
    names |= {list: "a list", dict: "an object"}
    return names[type(value)]


def read_records(
    path: Path,
    fields: frozenset[str],
    top: type[dict[Any, Any]] | type[list[Any]],
    on_bytes: OnBytes | None = None,
    on_bad: OnBad = refuse,
) -> Iterator[tuple[Key, Fields]]:
    """Yield (key, record) for every record of an object of objects, (position, record) for a list of objects.

    The file may be plain or gzipped, whatever its name. fields: those that must not be given twice.
    `on_bytes` is told how many bytes of the file were read, `on_bad` of records that are malformed or no
    objects. Raises InputError with the position for anything else that is not JSON of that shape.
    """
    opening, closing, shape = (b"{", b"}", "an object of objects")
    if top is list:
        opening, closing, shape = (b"[", b"]", "a list of objects")
    once = _Once(fields)
    with open_bytes(path) as (file, raw):
        text = JsonText(path, file, raw, on_bytes)
        sign = text.peek()
        if sign != opening:
            if sign in _KINDS:
                raise InputError(f"{path}: the file must hold {shape}, not {_KINDS[sign]}")
            raise text.malformed()
        text.place += 1
        number = 0
        if text.peek() == closing:
            text.place += 1
            sign = closing
        while sign != closing:
            key: Key = number if top is list else _key(text)
            try:
                record = _record(text, path, key, once, _BETWEEN[top])
            except BadRecord as error:
                on_bad(error)
            else:
                yield key, record
            number += 1
            sign = text.peek()
            if sign not in (b",", closing):
                raise text.malformed("a comma or the end is expected")
            text.place += 1
        if text.peek():
            raise text.malformed("nothing may follow")


def _key(text: JsonText) -> str:
    """The key of a record and the colon; both are of the file's structure."""
    if text.peek() != b'"':
        raise text.malformed("the key of a record is expected")
    raw = text.string()
    try:
        key = _loads(raw)
    except orjson.JSONDecodeError:
        offset, reason = fault(_without_halves(raw))
        raise text.malformed(reason, text.place - len(raw) + offset) from None
    if text.peek() != b":":
        raise text.malformed("a colon is expected")
    text.place += 1
    return str(key)


def _record(text: JsonText, path: Path, key: Key, once: _Once, between: re.Pattern[bytes]) -> Fields:
    """The value that comes next. Raises BadRecord if it is malformed or no object, and moves behind it."""
    raw, record = b"", None
    if text.peek() == b"{":
        # Few records have a brace inside, so the first one to close is mostly that of the record.
        raw = text.data[text.place : text.data.find(b"}", text.place) + 1]
        try:
            record = orjson.loads(raw)
            text.place += len(raw)
        except orjson.JSONDecodeError:
            pass
    if record is None:
        raw = text.value()
        try:
            record = _loads(raw)
        except orjson.JSONDecodeError:
            offset, reason = fault(_without_halves(raw))
            place = text.place - len(raw) + offset
            if between.search(raw):
                raise text.malformed(reason, place) from None
            where = text.position(place)
            raise BadRecord("malformed JSON", path, key, f"malformed JSON {where}: {reason}") from None
    if not isinstance(record, dict):
        raise BadRecord("wrong type", path, key, f"must be an object, not {kind_of(record)}")
    once.check(raw, path, key)
    return record


def _loads(value: bytes) -> Any:
    """Raises orjson.JSONDecodeError."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        repaired = _without_halves(value)
        if repaired == value:
            raise
        return orjson.loads(repaired)


def _without_halves(value: bytes) -> bytes:
    """With U+FFFD for halves of surrogate pairs; as long as before."""
    return _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], value)


class _Once:
    """Looks for fields that are given twice, which the parser does not tell."""

    def __init__(self, fields: frozenset[str]) -> None:
        self._fields = fields
        names = [orjson.dumps(name) for name in sorted(fields)]
        self._names = re.compile(b"|".join(map(re.escape, names)) or rb"(?!)")
        # A key may be written with escapes: of letters by nobody, of other signs often.
        plain = all(name.isascii() for name in fields)
        self._escape = re.compile(rb"\\u00[4-7]" if plain else rb"\\u")

    def check(self, value: bytes, path: Path, key: Key) -> None:
        """Raises BadRecord. value: a record, well-formed."""
        found = self._names.findall(value)
        if len(found) == len(set(found)) and not (b"\\" in value and self._escape.search(value)):
            return
        try:
            pairs: Sequence[tuple[str, Any]] = json.loads(value, object_pairs_hook=list)
        except RecursionError:
            raise BadRecord("malformed JSON", path, key, "is nested too deeply") from None
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen and name in self._fields:
                raise BadRecord("field given twice", path, key, "is there twice", name)
            seen.add(name)
