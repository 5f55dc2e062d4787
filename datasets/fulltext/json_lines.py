"""JSON lines, plain or gzipped, one record at a time; the layout is told from the record's keys."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import orjson

from datasets.bad_records import refuse
from datasets.byte_files import BYTE_ORDER_MARK, open_bytes
from datasets.errors import InputError
from datasets.fulltext.own import read_own
from datasets.fulltext.s2orc import read_s2orc, read_s2orc_2020
from datasets.fulltext.schema import Record
from datasets.fulltext.values import Object
from datasets.json_stream import OnBytes, kind_of

LONGEST = 1 << 25
"""Bytes of a line that are read at most."""


OnRefused = Callable[[InputError], None]
"""Is told of a record that cannot be used; when it returns, reading goes on with the next one."""


def read_json_lines(path: Path, on_bytes: OnBytes, on_bad: OnRefused = refuse) -> Iterator[Record]:
    """Records in the order of the file; empty lines are passed over.

    on_bad: is told, with file and line, of what is no JSON object of a known layout.
    """
    for where, found in read_objects(path, on_bytes, on_bad):
        try:
            record = _read(found, where)
        except InputError as error:
            on_bad(error)
        else:
            yield record


def read_objects(
    path: Path, on_bytes: OnBytes | None = None, on_bad: OnRefused = refuse
) -> Iterator[tuple[str, Object]]:
    """The objects of a file of JSON lines, plain or gzipped, each with its place; no empty lines.

    on_bad: is told, with file and line, of what is no JSON object. Raises InputError for a line without end.
    """
    with open_bytes(path) as (file, raw):
        lines = io.BufferedReader(cast(io.RawIOBase, file), 1 << 20)
        number = 0
        while line := lines.readline(LONGEST):
            number += 1
            where = f"{path}, line {number}"
            if len(line) == LONGEST:
                raise InputError(f"{where}: is longer than {LONGEST >> 20} MB; a record is one line")
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if line.strip():
                try:
                    found = _object(line, where)
                except InputError as error:
                    on_bad(error)
                else:
                    yield where, found
            if on_bytes is not None:
                on_bytes(raw.tell())


def _object(line: bytes, where: str) -> Object:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: malformed JSON: {error}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where}: must be an object, not {kind_of(record)}; a record is one line")
    return record


def _read(record: Object, where: str) -> Record:
    if "corpusid" in record:
        return read_s2orc(record, where)
    if "paper_id" in record:
        return read_s2orc_2020(record, where)
    if "id" in record:
        return read_own(record, where)
    raise InputError(f"{where}: has neither 'id' (our layout) nor 'corpusid' or 'paper_id' (S2ORC)")
