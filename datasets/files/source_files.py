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
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import ijson
import msgspec

from citerec.base.errors import InputError, quoted
from citerec.base.files import existing_file, open_bytes, strip_byte_order_mark
from citerec.base.progress import OnBytes, read_progress
from citerec.datasets.records import (
    BadRecord,
    ContextRecord,
    PaperRecord,
    QueryRecord,
    Source,
    check_split_names,
    record_name,
)
from citerec.formats.json_lines import OnBadRecord, Year, json_type, raise_bad, read_objects, validate

CHUNK = 1 << 16
"""Bytes parsed at a time."""
LARGEST, DEEPEST, MOST = 1 << 24, 5000, 25_000
"""Maximum bytes of a record; maximum lists and objects that are open after a chunk, and that a chunk opens.
They bound memory: the parser keeps the path of each."""

Key = str | int
Fields = dict[str, Any]
Record = TypeVar("Record")

# A pair of surrogates, one half of a pair (the group), or any other escape.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_LONGEST_ESCAPE = 12


def read_records(
    path: Path,
    top: type[dict[Any, Any]] | type[list[Any]],
    on_bytes: OnBytes | None = None,
    on_bad: OnBadRecord = raise_bad,
) -> Iterator[tuple[Key, Fields]]:
    """Yield (key, record) for an object of objects, or (position, record) for a list of objects.

    on_bytes: called with the bytes read so far. on_bad: called for records that are not objects. Raises
    InputError for malformed JSON.
    """
    for key, value in stream_json(path, top, on_bytes):
        if isinstance(value, dict):
            yield key, value
        else:
            on_bad(BadRecord(path, key, f"must be an object, not {json_type(value)}"))


def read_paper_objects(path: Path, on_bytes: OnBytes | None = None) -> Iterator[tuple[str, Fields]]:
    """Yield (file and record, record) of lines of papers, or of a papers.json, whose keys become `paper_id`.

    A papers.json is a file named *.json or *.json.gz. Raises InputError for malformed JSON.
    """
    if not path.name.removesuffix(".gz").endswith(".json"):
        yield from read_objects(path, on_bytes)
        return
    for key, record in read_records(path, dict, on_bytes):
        yield record_name(path, key), record | {"paper_id": key}


def stream_json(
    path: Path, top: type[dict[Any, Any]] | type[list[Any]], on_bytes: OnBytes | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield (key, value) for each member of the object or list in a file.

    The key of a list member is its position; the last value of a repeated field wins. The file must be in
    UTF-8, plain or gzipped whatever its name; lone surrogates become U+FFFD. Raises InputError for malformed
    JSON, another `top`, and a value larger than LARGEST.
    """
    last: Key | None = None
    pending = depth = 0

    def checked_chunks() -> Iterator[bytes]:
        nonlocal pending, depth
        for chunk in _chunks(path, file, b"{" if top is dict else b"["):
            pending += len(chunk.strip())
            if pending > LARGEST:
                raise InputError(f"{path}: the record{_after(last)} is larger than {LARGEST:,} bytes")
            opened = chunk.count(b"[") + chunk.count(b"{")
            depth += opened - chunk.count(b"]") - chunk.count(b"}")
            if depth > DEEPEST or opened > MOST:
                raise InputError(f"{path}: the record{_after(last)} has more than {DEEPEST:,} levels")
            yield chunk
            if on_bytes:
                on_bytes(raw.tell())

    with open_bytes(path) as (file, raw):
        source = ijson.from_iter(checked_chunks())
        options = {"use_float": True, "buf_size": CHUNK}
        members = (
            ijson.kvitems(source, "", **options)
            if top is dict
            else enumerate(ijson.items(source, "item", **options))
        )
        try:
            for last, value in members:
                yield last, value
                pending = depth = 0
        except (ijson.JSONError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: malformed JSON{_after(last)}: {_reason(error)}") from None


def _chunks(path: Path, file: IO[bytes], start: bytes) -> Iterator[bytes]:
    """Yield a file in chunks that split no escape, without byte order mark, lone surrogates as U+FFFD.

    Raises InputError unless the file begins with `start`.
    """
    first = started = True
    while chunk := file.read(CHUNK):
        if b"\\" in chunk[-_LONGEST_ESCAPE:]:
            longer = bytearray(chunk)
            while b"\\" in longer[-_LONGEST_ESCAPE:] and len(longer) < LARGEST and (more := file.read(64)):
                longer += more
            chunk = bytes(longer)
        if first:
            chunk = strip_byte_order_mark(chunk, path)
            first = started = False
        if not started and (begin := chunk.lstrip()[:1]):
            if begin != start:
                kind = "an object" if start == b"{" else "a list"
                raise InputError(f"{path}: must hold {kind} of objects, which begins with {start.decode()}")
            started = True
        if _HALF.search(chunk):
            chunk = _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], chunk)
        yield chunk


def _after(last: Key | None) -> str:
    return "" if last is None else f" after record {quoted(last)}"


def _reason(error: Exception) -> str:
    """Return the parser's reason with its excerpt of the file, on one line."""
    if isinstance(error, UnicodeDecodeError):
        return "invalid UTF-8"
    reason, excerpt = [*re.split(r"\n|\\n|\(right here", str(error)), ""][:2]
    reason = reason.removeprefix("b'").removeprefix("lexical error: ").removeprefix("parse error: ")
    near = f" near {quoted(excerpt.strip())}" if excerpt.strip() else ""
    return f"{reason.rstrip('.')}{near}"


def _read(path: Path, what: str, top: Any, parse: Callable[[Any, Any], Record]) -> Iterator[Record]:
    with read_progress(path, what) as on_bytes:
        for key, record in read_records(path, top, on_bytes):
            yield parse(key, record)


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


def _parse_paper(path: Path, field: str | None, key: str, record: Fields) -> PaperRecord:
    paper = validate(record, _Paper, record_name(path, key))
    fields = parse_names(path, key, record, field) if field else ()
    return PaperRecord(key, paper.title or "", paper.abstract or "", paper.year, fields)


def _parse_context(path: Path, key: str, record: Fields) -> ContextRecord:
    context = validate(record, _Context, record_name(path, key))
    if (other := record.get("context_id", key)) != key:
        reason = f"{quoted(other)} differs from the record's key"
        raise BadRecord(path, key, reason, "context_id")
    return ContextRecord(key, context.masked_text, context.citing_id, context.refid)


def _parse_query(path: Path, key: int, record: Fields) -> QueryRecord:
    query = validate(record, _Query, record_name(path, key))
    return QueryRecord(query.context_id, query.positive_ids)


def parse_names(path: Path, key: Key, record: Fields, field: str) -> tuple[str, ...]:
    """Parse a string or list of strings and drop duplicates; absent, null and empty strings are no names."""
    value = record.get(field)
    names = value if isinstance(value, list) else [] if value is None else [value]
    for name in names:
        if not isinstance(name, str):
            reason = f"must be a string or a list of strings (data.field={field}), not {json_type(name)}"
            raise BadRecord(path, key, reason, field)
    return tuple(dict.fromkeys(name for name in names if name))


def file_source(
    name: str, folder: Path, papers: Path | None, splits: Sequence[str], field: str | None
) -> Source:
    """Open a folder as a source, whose identity lacks the hashes of its files.

    papers: the papers file if it is not in the folder. field: the key that holds a paper's fields; None:
    papers have no fields. Raises InputError if a file is missing; at least one split must exist.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; data.dir must be a folder with papers.json and contexts.json"
        )
    check_split_names(splits)
    papers = papers or existing_file(folder / "papers.json")
    contexts = existing_file(folder / "contexts.json")
    paths = {split: existing_file(folder / f"{split}.json") for split in dict.fromkeys(splits)}
    queries = {split: path for split, path in paths.items() if path}
    if papers is None:
        raise InputError(f"{folder}: no papers.json or papers.json.gz; put it there or set data.papers=FILE")
    if contexts is None:
        raise InputError(f"{folder}: no contexts.json or contexts.json.gz")
    if not queries:
        raise InputError(
            f"{folder}: none of the split files {', '.join(f'{split}.json' for split in splits)} (or .gz)"
        )
    files = {"papers": papers, "contexts": contexts}
    files |= {f"split {split}": path for split, path in queries.items()}
    for path in files.values():
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    return Source(
        name,
        {},
        papers=partial(_read, papers, "papers", dict, partial(_parse_paper, papers, field)),
        contexts=partial(_read, contexts, "contexts", dict, partial(_parse_context, contexts)),
        splits={
            split: partial(_read, path, "queries", list, partial(_parse_query, path))
            for split, path in queries.items()
        },
        files=files,
        field=field,
    )
