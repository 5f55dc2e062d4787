"""JSON files as a stream of records: bounded memory, exact positions in errors.

A record is an object; only the fields asked for are kept, the rest is skipped without being built.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import ijson

from datasets.errors import InputError

Fields = dict[str, Any]
Key = str | int
OnBytes = Callable[[int], None]

CHUNK = 1 << 16
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_BACKEND = ijson.get_backend("yajl2_c")
_KINDS = {"start_map": "an object", "start_array": "a list", "null": "null", "string": "a string"}
_KINDS |= {"number": "a number", "boolean": "a boolean"}


class Nested:
    """Stands for a value that is an object, or a list with other things than plain values in it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def kind_of(value: Any) -> str:
    """The JSON type of a field's value, for messages."""
    if isinstance(value, Nested):
        return value.kind
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    names |= {list: "a list", dict: "an object"}
    return names[type(value)]


def read_records(
    path: Path,
    fields: frozenset[str],
    top: type[dict[Any, Any]] | type[list[Any]],
    on_bytes: OnBytes | None = None,
) -> Iterator[tuple[Key, Fields]]:
    """Yield (key, fields) for every record of an object of objects, (position, fields) for a list of objects.

    The file may be plain or gzipped, whatever its name. `on_bytes` is told how many bytes of it were read.
    Raises InputError for anything that is not well-formed JSON of that shape, with the position in the file.
    """
    start, end, shape = ("start_map", "end_map", "an object of objects")
    if top is list:
        start, end, shape = ("start_array", "end_array", "a list of objects")
    events = _events(path, on_bytes)
    event, _ = next(events)
    if event != start:
        raise InputError(f"{path}: the file must hold {shape}, not {_KINDS[event]}")
    for number, (event, value) in enumerate(events):
        if event == end:
            break
        key: Key = number
        if top is dict:
            key = value
            event, _ = next(events)
        if event != "start_map":
            raise InputError(f"{path}, record {key!r}: must be an object, not {_KINDS[event]}")
        yield key, _record(events, fields, path, key)
    for _ in events:  # lets the parser see that nothing follows
        pass


def _record(events: Iterator[tuple[str, Any]], wanted: frozenset[str], path: Path, key: Key) -> Fields:
    fields: Fields = {}
    for event, name in events:
        if event == "end_map":
            return fields
        event, value = next(events)
        if event in ("start_map", "start_array"):
            value = _nested(events, event, name in wanted)
        if name in wanted:
            if name in fields:
                raise InputError(f"{path}, record {key!r}: field {name!r} is there twice")
            fields[name] = value
    return fields


def _nested(events: Iterator[tuple[str, Any]], opened: str, wanted: bool) -> list[Any] | Nested:
    """Read to the end of a nested value; a list of plain values is kept if it is wanted."""
    values: list[Any] = []
    depth, flat = 1, wanted and opened == "start_array"
    for event, value in events:
        if event in ("start_map", "start_array"):
            depth += 1
            flat = False
            values.clear()
        elif event in ("end_map", "end_array"):
            depth -= 1
            if depth == 0:
                break
        elif flat:
            values.append(value)
    return values if flat else Nested(_KINDS[opened])


def _events(path: Path, on_bytes: OnBytes | None) -> Iterator[tuple[str, Any]]:
    """Parser events of a file; well-formed to the end, else InputError."""
    found = ijson.sendable_list()
    # With use_float the parser reports numbers that are too large, without it Python fails inside it.
    parser = _BACKEND.basic_parse_coro(found, use_float=True)
    offset = 0
    with open_bytes(path) as (file, raw):
        while True:
            chunk = file.read(CHUNK)
            if offset == 0 and chunk.startswith(BYTE_ORDER_MARK):
                chunk = chunk[len(BYTE_ORDER_MARK) :]
            error = _send(parser, chunk)
            yield from found
            found.clear()
            if error is not None:
                raise InputError(f"{path}: malformed JSON {_position(path, offset, error)}: {_reason(error)}")
            offset += len(chunk)
            if on_bytes is not None:
                on_bytes(raw.tell())
            if not chunk:
                return


def _send(parser: Any, chunk: bytes) -> Exception | None:
    try:
        parser.send(chunk)
    except StopIteration:
        return None
    except (ijson.JSONError, ValueError, ArithmeticError) as error:
        return error
    return None


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a plain or gzipped file: (its content, the file itself, whose position tells the progress)."""
    try:
        raw = path.open("rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    with raw:
        magic = raw.read(2)
        raw.seek(0)
        if magic != GZIP_MAGIC:
            yield raw, raw
            return
        try:
            with gzip.GzipFile(fileobj=raw) as file:
                yield cast(IO[bytes], file), raw
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path}: damaged gzip file: {error}") from None


def _reason(error: Exception) -> str:
    """The parser's message without its drawing of the place."""
    text = error.args[0] if error.args else ""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    reason = str(text).split("\n", 1)[0].strip()
    return reason.removeprefix("lexical error: ").removeprefix("parse error: ") or type(error).__name__


def _position(path: Path, chunk_offset: int, error: Exception) -> str:
    """Line and column (from 1) where parsing failed: parse again, the last chunk byte by byte."""
    found = ijson.sendable_list()
    parser = _BACKEND.basic_parse_coro(found, use_float=True)
    line, column, left = 1, 0, chunk_offset
    with open_bytes(path) as (file, _):
        if file.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
            file.seek(0)
        while left and (chunk := file.read(min(left, CHUNK))):
            _send(parser, chunk)
            found.clear()
            left -= len(chunk)
            newline = chunk.rfind(b"\n")
            line += chunk.count(b"\n")
            column = len(chunk) - newline - 1 if newline >= 0 else column + len(chunk)
        for byte in file.read(CHUNK):
            line, column = (line + 1, 0) if byte == ord("\n") else (line, column + 1)
            if _send(parser, bytes((byte,))) is not None:
                return f"at line {line}, column {column}"
    return "at the end of the file"
