"""Read JSON lines, validate records against a layout (a msgspec type), and write JSON files."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar, cast

import msgspec

from citerec.base.errors import InputError, error_text, quoted
from citerec.base.files import BYTE_ORDER_MARK, open_bytes
from citerec.base.progress import OnBytes

# White space separates the columns of run files; control characters would reach terminals.
_NOT_IN_IDS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
ID_RULE = "an id must not be empty or contain white space or control characters"
YEARS = range(-(2**31), 2**31)

LONGEST = 1 << 25
"""Bytes of the longest line accepted."""

Object = dict[str, Any]
OnBadRecord = Callable[[InputError], None]
"""Called with the error of a record that cannot be used; reading continues if it returns."""
T = TypeVar("T")


def raise_bad(error: InputError) -> NoReturn:
    """Raise the error of the first bad record; the default `on_bad` callback."""
    raise error


def read_objects(
    path: Path, on_bytes: OnBytes | None = None, on_bad: OnBadRecord = raise_bad
) -> Iterator[tuple[str, Object]]:
    """Yield each object of a file as ("FILE, line 3", object); empty lines are skipped.

    on_bad: called for lines that are not a JSON object. Raises InputError for a line longer than LONGEST.
    """
    with open_bytes(path) as (file, raw):
        lines = io.BufferedReader(cast(io.RawIOBase, file), 1 << 20)
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST), b""), start=1):
            where = f"{path}, line {number}"
            if len(line) == LONGEST:
                raise InputError(f"{where}: is longer than {LONGEST >> 20} MB; a record is one line")
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if line.strip():
                try:
                    record = parse_object(line, where)
                except InputError as error:
                    on_bad(error)
                else:
                    yield where, record
            if on_bytes is not None:
                on_bytes(raw.tell())


def parse_object(line: bytes, where: str) -> Object:
    """Parse a line that holds a JSON object; InputError for anything else."""
    record = decode_json(line, where)
    if not isinstance(record, dict):
        raise InputError(f"{where}: must be an object, not {json_type(record)}; a record is one line")
    return record


def decode_json(content: bytes | str, where: str) -> Any:
    """Decode JSON; InputError if it is malformed."""
    try:
        return msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: malformed JSON: {error_text(error)}") from None


def encode_json(value: Any) -> bytes:
    """Encode plain values, ids and years as JSON."""
    return _ENCODER.encode(value)


_ENCODER = msgspec.json.Encoder(enc_hook=lambda value: str(value) if isinstance(value, str) else int(value))


class PaperId(str):
    """The id of a paper: a string without white space or control characters, or a whole number."""


class CitedId(str):
    """The id of a cited paper, or "" (also null or absent) if unknown."""


class Year(int):
    """A whole number or a string of one; null and "" become 0."""


class Offset(int):
    """A whole number or a string of digits."""


_KINDS = {"str": "a string", "int": "a number", "float": "a number", "bool": "a boolean", "array": "a list"}
_KINDS |= {"object": "an object"}
_WRONG_TYPE = re.compile(r"Expected `(.+)`, got `(\w+)`")
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def validate(value: Any, layout: type[T], where: str, at: str = "") -> T:
    """Convert `value` to the msgspec type `layout`; an InputError names the field. at: path of `value`."""
    try:
        return msgspec.convert(value, layout, dec_hook=_convert)
    except msgspec.ValidationError as error:
        reason, field = _fault(error, at)
    in_field = f", field {field!r}" if field else ""
    raise InputError(f"{where}{in_field}: {reason}")


def _fault(error: msgspec.ValidationError, at: str) -> tuple[str, str]:
    """Return the reason of a validation error in words, and the path of the field."""
    reason, _, path = str(error).partition(" - at `$")
    path = (at + path.removesuffix("`")).removeprefix(".")
    if match := _WRONG_TYPE.fullmatch(reason):
        wanted = dict.fromkeys(_KINDS[kind] for kind in match[1].split(" | ") if kind != "null")
        return f"must be {' or '.join(wanted)}, not {_KINDS.get(match[2], 'null')}", path
    if match := _MISSING.fullmatch(reason):
        return "is missing", f"{path}.{match[1]}".removeprefix(".")
    return reason, path


def _convert(kind: type, value: Any) -> Any:
    """Convert a value to one of the types above; msgspec adds the path to a ValueError."""
    if kind is Year:
        return Year(parse_year(value))
    if isinstance(value, bool):
        raise ValueError("must be an id or a whole number, not a boolean")
    if kind is Offset:
        if isinstance(value, int) or (isinstance(value, str) and value.isdecimal() and len(value) < 20):
            return Offset(value)
        raise ValueError(f"must be a whole number, not {json_type(value)}")
    if kind is CitedId and value in (None, ""):
        return CitedId()
    if not isinstance(value, str | int):
        raise ValueError(f"must be an id (a string or a number), not {json_type(value)}")
    if not is_valid_id(str(value)):
        raise ValueError(ID_RULE)
    return kind(str(value))


@contextmanager
def gzip_writer(path: Path) -> Iterator[IO[bytes]]:
    """Open a new gzip file that records neither name nor time, so that equal content gives equal files."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 5, raw, mtime=0) as file:
        yield cast(IO[bytes], file)


@contextmanager
def json_writer(path: Path, keys: bool) -> Iterator[Callable[..., None]]:
    """Yield add(record, key) to write a JSON object, or add(record) to write a list; gzipped if named .gz."""
    start, end = (b"{\n", b"\n}\n") if keys else (b"[\n", b"\n]\n")
    with gzip_writer(path) if path.suffix == ".gz" else path.open("wb") as file:
        file.write(start)
        separator = b""

        def add(record: Object, key: str | None = None) -> None:
            nonlocal separator
            prefix = b"" if key is None else encode_json(key) + b": "
            file.write(separator + prefix + encode_json(record))
            separator = b",\n"

        yield add
        file.write(end)


def is_valid_id(value: str) -> bool:
    """True if `value` can be the id of a paper or context (ID_RULE)."""
    return bool(value) and not _NOT_IN_IDS.search(value)


def parse_year(value: Any) -> int:
    """Parse a year: a whole number, or a string of one, as in some published files; None and "" become 0.

    Raises ValueError with the reason.
    """
    if value is None or value == "":
        return 0
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        shown = json_type(value) if isinstance(value, list | dict) else quoted(value)
        raise ValueError(f"must be a whole number, not {shown}")
    if value not in YEARS:
        raise ValueError(f"{quoted(value)} is out of range")
    return value


def json_type(value: Any) -> str:
    """Return the JSON type of a value, for messages."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", type(None): "null"}
    return (names | {list: "a list", dict: "an object"})[type(value)]
