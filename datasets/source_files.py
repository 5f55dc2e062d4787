"""The source format: `papers.json`, `contexts.json` and one `SPLIT.json` per split, plain or gzipped.

papers.json     {paper_id: {"title": str, "abstract": str, "year": int}}
contexts.json   {context_id: {"masked_text": str, "citing_id": paper_id, "refid": paper_id}}
SPLIT.json      [{"context_id": context_id, "positive_ids": [paper_id, ...]}]

`year`, `refid` and an empty title or abstract may be absent or null. Another key of papers, e.g. "venue", may
hold the paper's fields: a string or a list of strings, absent or null if none. All other keys are ignored.
This is the format of the published HAtten data sets.

Files are streamed: memory holds a few records at a time, each of at most LARGEST bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

import ijson
import msgspec

from citerec.datasets.errors import InputError
from citerec.datasets.files import existing_file, open_bytes, strip_byte_order_mark
from citerec.datasets.json_lines import Year, decode_hook, validation_fault
from citerec.datasets.progress import OnBytes, read_progress
from citerec.datasets.records import (
    BadRecord,
    ContextRecord,
    OnBad,
    PaperRecord,
    QueryRecord,
    Source,
    check_split_names,
    json_type,
    quoted,
    raise_bad,
)

CHUNK = 1 << 16
"""Bytes parsed at a time."""
LARGEST = 1 << 24
"""Maximum bytes of a record, which bounds memory."""
DEEPEST = 1024
"""Maximum nesting depth of objects and lists."""

Key = str | int
Fields = dict[str, Any]
Record = TypeVar("Record")
Layout = TypeVar("Layout")

_KINDS = {"start_map": "an object", "start_array": "a list", "string": "a string", "null": "null"}
_KINDS |= {"boolean": "a boolean", "number": "a number"}
# A pair of surrogates, one half of a pair (the group), or any other escape.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_LONGEST_ESCAPE = 12


def read_records(
    path: Path,
    fields: frozenset[str],
    top: type[dict[Any, Any]] | type[list[Any]],
    on_bytes: OnBytes | None = None,
    on_bad: OnBad = raise_bad,
) -> Iterator[tuple[Key, Fields]]:
    """Yield (key, record) for an object of objects, or (position, record) for a list of objects.

    fields: fields that must not occur twice. on_bytes: called with the bytes read so far. on_bad: called for
    records that are not objects or repeat one of the fields. Raises InputError for malformed JSON.
    """
    for key, value, repeated in stream_json(path, top, on_bytes):
        try:
            record = _check_object(path, key, value, repeated, fields)
        except BadRecord as bad:
            on_bad(bad)
        else:
            yield key, record


def stream_json(
    path: Path, top: type[dict[Any, Any]] | type[list[Any]], on_bytes: OnBytes | None = None
) -> Iterator[tuple[Any, Any, list[str]]]:
    """Yield (key, value, repeated fields) for each member of the object or list in a file.

    The key of a list member is its position; the last value of a repeated field wins. The file must be in
    UTF-8, plain or gzipped whatever its name; lone surrogates become U+FFFD. Raises InputError with the
    position for malformed JSON, another `top`, and a value larger than LARGEST or nested too deeply.
    """
    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, use_float=True)
    outer: list[tuple[Any, Any]] = []  # objects and lists that enclose `inner`, with its key in each
    inner: Any = None
    key: Any = None
    repeated: list[str] = []
    number, last, parsed, pending = 0, None, 0, 0
    with open_bytes(path) as (file, raw):
        for chunk in chain(_chunks(path, file), [None]):
            # A newline terminates a token after the end, which the parser would otherwise miss.
            error = _send(parser, b"\n") if chunk is None and not outer else None
            error = error or _send(parser, chunk)
            pending += len(chunk.strip()) if chunk else 0
            for event, value in events:
                if event == "map_key":
                    if len(outer) == 2 and value in inner:
                        repeated.append(value)
                    key = value
                    continue
                if inner is None and event != ("start_map" if top is dict else "start_array"):
                    shape = "an object" if top is dict else "a list"
                    raise InputError(f"{path}: the file must hold {shape} of objects, not {_KINDS[event]}")
                if event == "start_map" or event == "start_array":
                    outer.append((inner, key))
                    inner = {} if event == "start_map" else []
                    if len(outer) > DEEPEST:
                        nested = f"more than {DEEPEST} objects and lists are nested"
                        raise InputError(f"{path}:{_after(last)} {nested}")
                    continue
                if event == "end_map" or event == "end_array":
                    value = inner
                    inner, key = outer.pop()
                if len(outer) == 1:
                    last = key if top is dict else number
                    yield last, value, repeated
                    number, repeated, pending = number + 1, [], 0
                elif isinstance(inner, list):
                    inner.append(value)
                elif inner is not None:
                    inner[key] = value
            events.clear()
            if error:
                where = _locate_error(path, parsed)
                raise InputError(f"{path}: malformed JSON {where}{_after(last)}: {_reason(error)}") from None
            if pending > LARGEST:
                raise InputError(f"{path}: the record{_after(last)} is larger than {LARGEST:,} bytes")
            if chunk:
                parsed += len(chunk)
                if on_bytes:
                    on_bytes(raw.tell())


def _chunks(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file in chunks that split no escape, without byte order mark, lone surrogates as U+FFFD."""
    first = True
    while chunk := file.read(CHUNK):
        if b"\\" in chunk[-_LONGEST_ESCAPE:]:
            longer = bytearray(chunk)
            while b"\\" in longer[-_LONGEST_ESCAPE:] and len(longer) < LARGEST and (more := file.read(64)):
                longer += more
            chunk = bytes(longer)
        if first:
            chunk = strip_byte_order_mark(chunk, path)
            first = False
        if _HALF.search(chunk):
            chunk = _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], chunk)
        yield chunk


def _send(parser: Any, chunk: bytes | None) -> Exception | None:
    """Feed the parser, None at the end; return its error, so that the events before it are not lost."""
    try:
        parser.close() if chunk is None else parser.send(chunk)
    except (ijson.JSONError, UnicodeDecodeError) as error:
        return error
    return None


def _after(last: Key | None) -> str:
    return "" if last is None else f" after record {quoted(last)}"


def _reason(error: Exception) -> str:
    """Return the parser's reason without the excerpt of the file."""
    if isinstance(error, UnicodeDecodeError):
        return "invalid UTF-8"
    text = re.split(r"\n|\\n", str(error))[0].removeprefix("b'")
    return text.removeprefix("lexical error: ").removeprefix("parse error: ").rstrip(".")


def _locate_error(path: Path, parsed: int) -> str:
    """Locate the first error in a file whose first `parsed` bytes are valid: line and column, from 1."""
    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, use_float=True)
    line, column = 1, 0
    with open_bytes(path) as (file, _):
        for chunk in _chunks(path, file):
            pieces = [chunk] if parsed > 0 else (chunk[at : at + 1] for at in range(len(chunk)))
            parsed -= len(chunk)
            for piece in pieces:
                if _send(parser, piece):
                    return f"at line {line}, column {column + 1}"
                line += piece.count(b"\n")
                column = len(piece) - 1 - piece.rfind(b"\n") + (0 if b"\n" in piece else column)
                events.clear()
    return "at the end of the file"


def read_papers(path: Path, field: str | None = None) -> Iterator[PaperRecord | BadRecord]:
    """Yield papers in file order, with a BadRecord for each that cannot be read. Raises InputError.

    field: the key that holds a paper's fields; None: papers have no fields.
    """
    return _read(path, "papers", dict, partial(_parse_paper, path, field))


def read_contexts(path: Path) -> Iterator[ContextRecord | BadRecord]:
    """Yield contexts. Otherwise like `read_papers`."""
    return _read(path, "contexts", dict, partial(_parse_context, path))


def read_queries(path: Path) -> Iterator[QueryRecord | BadRecord]:
    """Yield the queries of a split. Otherwise like `read_papers`."""
    return _read(path, "queries", list, partial(_parse_query, path))


def reject_bad(records: Iterable[Record | BadRecord]) -> Iterator[Record]:
    """Yield the records; raise the first bad one."""
    for record in records:
        if isinstance(record, BadRecord):
            raise record
        yield record


def _read(
    path: Path, what: str, top: Any, parse: Callable[[Any, Any, list[str]], Record]
) -> Iterator[Record | BadRecord]:
    with read_progress(path, what) as on_bytes:
        for key, value, repeated in stream_json(path, top, on_bytes):
            try:
                record: Record | BadRecord = parse(key, value, repeated)
            except BadRecord as bad:
                record = bad
            yield record


class _Paper(msgspec.Struct):
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)


class _Context(msgspec.Struct):
    masked_text: str
    citing_id: str
    refid: str | None = None
    context_id: str = ""


class _Query(msgspec.Struct):
    context_id: str
    positive_ids: list[str]


def _parse_paper(path: Path, field: str | None, key: str, value: Any, repeated: list[str]) -> PaperRecord:
    record = _check_object(path, key, value, repeated, (*_Paper.__struct_fields__, field))
    paper = convert_record(_Paper, record, path, key)
    fields = parse_names(path, key, record, field) if field else ()
    return PaperRecord(key, paper.title or "", paper.abstract or "", paper.year, fields)


def _parse_context(path: Path, key: str, value: Any, repeated: list[str]) -> ContextRecord:
    record = _check_object(path, key, value, repeated, _Context.__struct_fields__)
    context = convert_record(_Context, record, path, key)
    if (other := record.get("context_id", key)) != key:
        reason = f"{quoted(other)} differs from the record's key"
        raise BadRecord("unusable id", path, key, reason, "context_id")
    return ContextRecord(key, context.masked_text, context.citing_id, context.refid)


def _parse_query(path: Path, key: int, value: Any, repeated: list[str]) -> QueryRecord:
    record = _check_object(path, key, value, repeated, _Query.__struct_fields__)
    query = convert_record(_Query, record, path, key)
    return QueryRecord(query.context_id, query.positive_ids)


def _check_object(
    path: Path, key: Key, value: Any, repeated: list[str], fields: Collection[str | None]
) -> Fields:
    """Return the value; BadRecord if it is not an object or repeats one of the fields."""
    if not isinstance(value, dict):
        raise BadRecord("wrong type", path, key, f"must be an object, not {json_type(value)}")
    for name in repeated:
        if name in fields:
            raise BadRecord("field given twice", path, key, "appears twice", name)
    return value


def convert_record(layout: type[Layout], record: Fields, path: Path, key: Key) -> Layout:
    """Convert a record to the msgspec type `layout`; a BadRecord names the field that does not fit."""
    try:
        return msgspec.convert(record, layout, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        kind, reason, field = validation_fault(error)
    raise BadRecord(kind, path, key, reason, field)


def parse_names(path: Path, key: Key, record: Fields, field: str) -> tuple[str, ...]:
    """Parse a string or list of strings and drop duplicates; absent, null and empty strings are no names."""
    value = record.get(field)
    names = value if isinstance(value, list) else [] if value is None else [value]
    for name in names:
        if not isinstance(name, str):
            reason = f"must be a string or a list of strings (data.field={field}), not {json_type(name)}"
            raise BadRecord("wrong type", path, key, reason, field)
    return tuple(dict.fromkeys(name for name in names if name))


def find_files(folder: Path, papers: Path | None, splits: Sequence[str]) -> dict[str, Path]:
    """Return the files of a corpus by part: `papers`, `contexts`, `split NAME`; InputError if one is missing.

    papers: the papers file if it is not in the folder. At least one split must exist.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; data.dir must be a folder with papers.json and contexts.json"
        )
    check_split_names(splits)
    found = {
        "papers": papers or existing_file(folder / "papers.json"),
        "contexts": existing_file(folder / "contexts.json"),
        **{f"split {split}": existing_file(folder / f"{split}.json") for split in dict.fromkeys(splits)},
    }
    files = {part: path for part, path in found.items() if path}
    if "papers" not in files:
        raise InputError(f"{folder}: no papers.json or papers.json.gz; put it there or set data.papers=FILE")
    if "contexts" not in files:
        raise InputError(f"{folder}: no contexts.json or contexts.json.gz")
    if len(files) == 2:
        raise InputError(
            f"{folder}: none of the split files {', '.join(f'{split}.json' for split in splits)} (or .gz)"
        )
    for path in files.values():
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    return files


def file_source(name: str, files: dict[str, Path], field: str | None, identity: dict[str, str]) -> Source:
    """Return the Source of the files of `find_files`. identity: the content hash of each part."""
    splits = {part.removeprefix("split "): path for part, path in files.items() if part.startswith("split ")}
    return Source(
        name,
        identity,
        papers=partial(read_papers, files["papers"], field),
        contexts=partial(read_contexts, files["contexts"]),
        splits={split: partial(read_queries, path) for split, path in splits.items()},
        files=files,
        field=field,
    )
