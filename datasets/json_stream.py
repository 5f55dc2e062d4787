"""Large JSON files cut between their records, so that several processes can read one.

Commas between records are found by the brackets and quotation marks before them, not by guessing. A file that
is not well-formed may be cut anywhere: then one piece of it at least is not well-formed either.

The text of a JSON file, in memory only as far as one value reaches: for json_stream.
JSON files as a stream of records: bounded memory, exact positions in errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numba
import numpy as np
import orjson
from numpy.typing import NDArray

from datasets.bad_records import BadRecord, OnBad, refuse
from datasets.errors import InputError
from datasets.files import open_bytes, without_mark

OnBytes = Callable[[int], None]

CHUNK = 1 << 18
LARGEST = 1 << 24
"""Bytes of a value at most. It bounds the memory, which is a small multiple of it."""
DEEPEST = 1024
"""Objects and lists in each other at most, as many as the parser takes."""

_WHITE = frozenset((b" ", b"\t", b"\n", b"\r"))
_SPACE = re.compile(rb"[ \t\n\r]*+")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SCALAR = re.compile(rb'[^][{}",: \t\n\r]++')
# A string whose end is not in memory is a token as well, the last one.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[][{}]', re.DOTALL)
_QUOTE, _OPENING = ord('"'), frozenset(b"{[")


class JsonText:
    """`data` is the part of the file that is in memory, `place` where the reader is in it.

    peek, string and value may read on, which moves both.
    """

    def __init__(self, path: Path, file: IO[bytes], raw: IO[bytes], on_bytes: OnBytes | None) -> None:
        self._path, self._file, self._raw, self._on_bytes = path, file, raw, on_bytes
        self._lines = self._column = 0  # line breaks before `data`, and bytes since the last of them
        self.data, self.place = b"", 0
        self._more()
        self.data = without_mark(self.data, path)

    def peek(self) -> bytes:
        """The next byte that is no white space, where `place` is then; b"" at the end."""
        sign = self.data[self.place : self.place + 1]
        if sign and sign not in _WHITE:
            return sign
        while True:
            match = _SPACE.match(self.data, self.place)
            assert match is not None
            self.place = match.end()
            if self.place < len(self.data) or not self._more():
                return self.data[self.place : self.place + 1]

    def string(self) -> bytes:
        """The string that begins at `place`, which moves behind it. Raises InputError if it never ends."""
        while not (match := _STRING.match(self.data, self.place)):
            if not self._more():
                raise self.malformed()
        self.place = match.end()
        return match[0]

    def value(self) -> bytes:
        """The value that begins at `place`, which moves behind it: its brackets match, no more is known.

        Raises InputError if there is none, or it never ends.
        """
        sign = self.peek()
        if sign == b'"':
            return self.string()
        start = self.place
        if sign in (b"{", b"["):
            while not (end := self._closed()):
                if not self._more():
                    raise self.malformed()
        else:
            while (match := _SCALAR.match(self.data, self.place)) and match.end() == len(self.data):
                if not self._more():
                    break
            if not match:
                raise self.malformed("a value is expected")
            end = match.end()
        start, self.place = self.place, end
        return self.data[start:end]

    def malformed(self, reason: str = "", place: int | None = None) -> InputError:
        """The error to raise, for this reason or for what a parser finds from `place` on."""
        place = self.place if place is None else place
        if not reason:
            offset, reason = fault(self.data[place:])
            place += offset
        return InputError(f"{self._path}: malformed JSON {self.position(place)}: {reason}")

    def position(self, place: int) -> str:
        """Line and column of a place in `data`, both from 1; columns are bytes."""
        if place >= len(self.data):
            return "at the end of the file"
        newline = self.data.rfind(b"\n", 0, place)
        line = self._lines + self.data.count(b"\n", 0, place) + 1
        return f"at line {line}, column {place - newline if newline >= 0 else self._column + place + 1}"

    def _more(self) -> bool:
        """Read on, and forget what is before `place`; False at the end. InputError if it is too much."""
        kept = self.data[self.place :]
        if len(kept) >= LARGEST:
            where = self.position(self.place)
            offset, reason = fault(kept)
            if offset < len(kept):
                raise self.malformed(reason, self.place + offset)
            raise InputError(f"{self._path}: what begins {where} is larger than {LARGEST:,} bytes")
        # Twice as much each time: what is long is then looked through a few times only.
        chunk = self._file.read(min(max(CHUNK, len(kept)), LARGEST))
        if self._on_bytes is not None:
            self._on_bytes(self._raw.tell())
        if not chunk:
            return False
        newline = self.data.rfind(b"\n", 0, self.place)
        self._column = self.place - newline - 1 if newline >= 0 else self._column + self.place
        self._lines += self.data.count(b"\n", 0, self.place)
        self.data, self.place = kept + chunk, 0
        return True

    def _closed(self) -> int:
        """The end of the object or list that begins at `place`; 0 if it is not in memory."""
        depth = 0
        for token in _TOKEN.finditer(self.data, self.place):
            sign = self.data[token.start()]
            if sign != _QUOTE:
                depth += 1 if sign in _OPENING else -1
                if depth == 0:
                    return token.end()
                if depth > DEEPEST:
                    where = self.position(token.start())
                    raise InputError(
                        f"{self._path}: {where} more than {DEEPEST} objects and lists are nested"
                    )
        return 0


def fault(value: bytes) -> tuple[int, str]:
    """Where a value is malformed, in bytes, and why; at its end if more is needed."""
    try:
        text, invalid = value.decode(), None
    except UnicodeDecodeError as error:
        text, invalid = value[: error.start].decode(), error
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if invalid is None or error.pos < len(text):
            return len(text[: error.pos].encode()), error.msg
    return (invalid.start, "invalid UTF-8") if invalid else (len(value), "unexpected end")


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


QUOTE, BACKSLASH, COMMA = (ord(sign) for sign in '"\\,')
OPEN_MAP, CLOSE_MAP, OPEN_LIST, CLOSE_LIST = (ord(sign) for sign in "{}[]")
COPIED = 1 << 24
"""Bytes that are copied at a time."""


@dataclass(frozen=True)
class Piece:
    """The bytes from `start` to before `stop` of a file that is not compressed: whole records."""

    path: str
    start: int
    stop: int
    last: bool


def cut(path: Path, size: int) -> list[Piece]:
    """A file that holds an object of objects, in pieces of at least `size` bytes but for the last one."""
    if path.stat().st_size == 0:
        return [Piece(str(path), 0, 0, True)]
    data = np.memmap(path, np.uint8, "r")
    commas = np.empty(len(data) // size + 1, np.int64)
    commas = commas[: _commas(data, size, commas)]
    ends = [*commas.tolist(), len(data)]
    starts = [0, *(comma + 1 for comma in ends[:-1])]
    place = str(path.resolve())
    return [Piece(place, start, end, end == len(data)) for start, end in zip(starts, ends, strict=True)]


@contextmanager
def as_file(piece: Piece) -> Iterator[Path]:
    """The records of a piece as a file of their own."""
    with TemporaryDirectory() as folder:
        part = Path(folder) / "records.json"
        with open(piece.path, "rb") as source, part.open("wb") as target:
            source.seek(piece.start)
            if piece.start:
                target.write(b"{")
            for first, stop in pairwise([*range(piece.start, piece.stop, COPIED), piece.stop]):
                target.write(source.read(stop - first))
            if not piece.last:
                target.write(b"}")
        yield part


@numba.njit(cache=True, nogil=True)
def _commas(data: NDArray[np.uint8], size: int, found: NDArray[np.int64]) -> int:
    """Places of commas between records, at least `size` bytes apart, into `found`; gives their number."""
    count, depth, wanted, place = 0, 0, size, 0
    inside = False
    while place < len(data):
        sign = data[place]
        if inside:
            if sign == BACKSLASH:
                place += 1
            elif sign == QUOTE:
                inside = False
        elif sign == QUOTE:
            inside = True
        elif sign in (OPEN_MAP, OPEN_LIST):
            depth += 1
        elif sign in (CLOSE_MAP, CLOSE_LIST):
            depth -= 1
        elif sign == COMMA and depth == 1 and place >= wanted:
            found[count] = place
            count += 1
            wanted = place + 1 + size
        place += 1
    return count
