"""The source format: `papers.json`, `contexts.json` and one `SPLIT.json` per split, plain or gzipped.

papers.json     {paper_id: {"title": str, "abstract": str, "year": int}}
contexts.json   {context_id: {"masked_text": str, "citing_id": paper_id, "refid": paper_id}}
SPLIT.json      [{"context_id": context_id, "positive_ids": [paper_id, ...]}]

`year`, `refid` and an empty title or abstract may be absent or null. Another key of papers, as "venue", may
hold the paper's field or fields: a string or a list of strings, absent or null for none. Everything else is
ignored. The format is that of the published HAtten data sets.

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

from datasets.errors import InputError
from datasets.files import open_bytes, plain_or_gzipped, strip_byte_order_mark
from datasets.json_lines import Year, decode, validation_fault
from datasets.progress import OnBytes, read_progress
from datasets.records import (
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
"""Bytes that are parsed at a time."""
LARGEST = 1 << 24
"""Bytes of a record at most; this bounds the memory."""
DEEPEST = 1024
"""Objects and lists inside each other at most."""

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
    """Yield (key, record) for every record of an object of objects, (position, record) of a list of objects.

    fields: those that must not be given twice. on_bytes is told how many bytes of the file were read, on_bad
    of records that are no objects or have one of the fields twice. Raises InputError for malformed JSON.
    """
    for key, value, twice in stream_json(path, top, on_bytes):
        try:
            record = _object(path, key, value, twice, fields)
        except BadRecord as bad:
            on_bad(bad)
        else:
            yield key, record


def stream_json(
    path: Path, top: type[dict[Any, Any]] | type[list[Any]], on_bytes: OnBytes | None = None
) -> Iterator[tuple[Any, Any, list[str]]]:
    """Yield (key, value, fields given twice) for the members of the object, or of the list, in a file.

    The key of a list's member is its position; of a field given twice the last value counts. The file is in
    UTF-8, plain or gzipped whatever its name; halves of surrogate pairs become U+FFFD. Raises InputError with
    the place for malformed JSON, another `top`, and a value that is larger than LARGEST or nested too deeply.
    """
    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, use_float=True)
    outer: list[tuple[Any, Any]] = []  # the objects and lists around `inner`, with its key in them
    inner: Any = None
    key: Any = None
    twice: list[str] = []
    number, last, parsed, pending = 0, None, 0, 0
    with open_bytes(path) as (file, raw):
        for chunk in chain(_chunks(path, file), [None]):
            # A newline ends a token behind the end, which the parser would overlook.
            error = _send(parser, b"\n") if chunk is None and not outer else None
            error = error or _send(parser, chunk)
            pending += len(chunk.strip()) if chunk else 0
            for event, value in events:
                if event == "map_key":
                    if len(outer) == 2 and value in inner:
                        twice.append(value)
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
                    yield last, value, twice
                    number, twice, pending = number + 1, [], 0
                elif isinstance(inner, list):
                    inner.append(value)
                elif inner is not None:
                    inner[key] = value
            events.clear()
            if error:
                where = _fault(path, parsed)
                raise InputError(f"{path}: malformed JSON {where}{_after(last)}: {_reason(error)}") from None
            if pending > LARGEST:
                raise InputError(f"{path}: the record{_after(last)} is larger than {LARGEST:,} bytes")
            if chunk:
                parsed += len(chunk)
                if on_bytes:
                    on_bytes(raw.tell())


def _chunks(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """The file in pieces that cut no escape in two, without halves of surrogate pairs and byte order mark."""
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
    """Feed the parser, None at the end; returns its error, so that the events before it are not lost."""
    try:
        parser.close() if chunk is None else parser.send(chunk)
    except (ijson.JSONError, UnicodeDecodeError) as error:
        return error
    return None


def _after(last: Key | None) -> str:
    return "" if last is None else f" after record {quoted(last)}"


def _reason(error: Exception) -> str:
    """The parser's own, without the excerpt of the file under it."""
    if isinstance(error, UnicodeDecodeError):
        return "invalid UTF-8"
    text = re.split(r"\n|\\n", str(error))[0].removeprefix("b'")
    return text.removeprefix("lexical error: ").removeprefix("parse error: ").rstrip(".")


def _fault(path: Path, parsed: int) -> str:
    """Where a file stops being JSON, as its first `parsed` bytes are: line and column (bytes) from 1."""
    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, use_float=True)
    line, column = 1, 0
    with open_bytes(path) as (file, _):
        for chunk in _chunks(path, file):
            pieces = [chunk] if parsed > 0 else (chunk[place : place + 1] for place in range(len(chunk)))
            parsed -= len(chunk)
            for piece in pieces:
                if _send(parser, piece):
                    return f"at line {line}, column {column + 1}"
                line += piece.count(b"\n")
                column = len(piece) - 1 - piece.rfind(b"\n") + (0 if b"\n" in piece else column)
                events.clear()
    return "at the end of the file"


def read_papers(path: Path, field: str | None = None) -> Iterator[PaperRecord | BadRecord]:
    """Papers in the order of the file, a BadRecord for each that cannot be read. Raises InputError.

    field: the key that holds a paper's fields; None: papers have none.
    """
    return _read(path, "papers", dict, partial(_paper, path, field))


def read_contexts(path: Path) -> Iterator[ContextRecord | BadRecord]:
    """Contexts in the order of the file; the rest as for read_papers."""
    return _read(path, "contexts", dict, partial(_context, path))


def read_queries(path: Path) -> Iterator[QueryRecord | BadRecord]:
    """The queries of a split, in the order of the file; the rest as for read_papers."""
    return _read(path, "queries", list, partial(_query, path))


def strict(records: Iterable[Record | BadRecord]) -> Iterator[Record]:
    """The records; the first bad one is raised."""
    for record in records:
        if isinstance(record, BadRecord):
            raise record
        yield record


def _read(
    path: Path, what: str, top: Any, parse: Callable[[Any, Any, list[str]], Record]
) -> Iterator[Record | BadRecord]:
    with read_progress(path, what) as on_bytes:
        for key, value, twice in stream_json(path, top, on_bytes):
            try:
                record: Record | BadRecord = parse(key, value, twice)
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


def _paper(path: Path, field: str | None, key: str, value: Any, twice: list[str]) -> PaperRecord:
    record = _object(path, key, value, twice, (*_Paper.__struct_fields__, field))
    paper = record_as(_Paper, record, path, key)
    fields = names_of(path, key, record, field) if field else ()
    return PaperRecord(key, paper.title or "", paper.abstract or "", paper.year, fields)


def _context(path: Path, key: str, value: Any, twice: list[str]) -> ContextRecord:
    context = record_as(_Context, _object(path, key, value, twice, _Context.__struct_fields__), path, key)
    if (other := value.get("context_id", key)) != key:
        reason = f"{quoted(other)} differs from the record's key"
        raise BadRecord("unusable id", path, key, reason, "context_id")
    return ContextRecord(key, context.masked_text, context.citing_id, context.refid)


def _query(path: Path, key: int, value: Any, twice: list[str]) -> QueryRecord:
    query = record_as(_Query, _object(path, key, value, twice, _Query.__struct_fields__), path, key)
    return QueryRecord(query.context_id, query.positive_ids)


def _object(path: Path, key: Key, value: Any, twice: list[str], fields: Collection[str | None]) -> Fields:
    """The value, if it is an object with none of these fields given twice."""
    if not isinstance(value, dict):
        raise BadRecord("wrong type", path, key, f"must be an object, not {json_type(value)}")
    for name in twice:
        if name in fields:
            raise BadRecord("field given twice", path, key, "appears twice", name)
    return value


def record_as(layout: type[Layout], record: Fields, path: Path, key: Key) -> Layout:
    """A record as the msgspec type `layout`; BadRecord that names the field which does not fit."""
    try:
        return msgspec.convert(record, layout, dec_hook=decode)
    except msgspec.ValidationError as error:
        kind, reason, field = validation_fault(error)
    raise BadRecord(kind, path, key, reason, field)


def names_of(path: Path, key: Key, record: Fields, field: str) -> tuple[str, ...]:
    """A string or a list of strings, each once; absent, null and empty strings are none."""
    value = record.get(field)
    names = value if isinstance(value, list) else [] if value is None else [value]
    for name in names:
        if not isinstance(name, str):
            must = f"must be a string or a list of strings, as data.field={field} says"
            raise BadRecord("wrong type", path, key, f"{must}, not {json_type(name)}", field)
    return tuple(dict.fromkeys(name for name in names if name))


def find_files(folder: Path, papers: Path | None, splits: Sequence[str]) -> dict[str, Path]:
    """The files of a corpus by part, `papers`, `contexts` and `split NAME`; InputError if one is missing.

    papers: the papers file where it is not in the folder. Of the splits one at least must be there.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; data.dir must be a folder with papers.json and contexts.json"
        )
    check_split_names(splits)
    found = {
        "papers": papers or plain_or_gzipped(folder / "papers.json"),
        "contexts": plain_or_gzipped(folder / "contexts.json"),
        **{f"split {split}": plain_or_gzipped(folder / f"{split}.json") for split in dict.fromkeys(splits)},
    }
    files = {part: path for part, path in found.items() if path}
    if "papers" not in files:
        raise InputError(
            f"{folder}: no papers.json or papers.json.gz; put it there or name it with data.papers=FILE"
        )
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
    """The files of `find_files` as a source; identity: the content hash of each part."""
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
