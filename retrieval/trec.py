"""TREC's text formats: lines of white-space-separated fields, in which an id can hold no white space.

White space and `%` in ids are written as `%XX` (as in addresses), and put back when read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.csv

from datasets.bad_records import shown
from datasets.errors import InputError

NAMES = pa.dictionary(pa.int32(), pa.string())
"""The type of a column of ids."""

LONGEST = 1 << 20
"""Characters of a line at most."""

_UNFIT = re.compile(r"[\s%]")


def escaped(ids: Iterable[str]) -> list[str]:
    """The ids as they stand in a file; InputError for an empty one."""
    written = []
    for text in ids:
        if not text:
            raise InputError(
                "an id is empty: TREC files need one of at least one character for each query and paper"
            )
        written.append(_UNFIT.sub(lambda match: quote(match.group(), safe=""), text))
    return written


def unescaped(text: str) -> str:
    """The id of a written one."""
    return unquote(text) if "%" in text else text


def read_fields(path: str | Path, names: tuple[str, ...], wanted: dict[str, pa.DataType]) -> pa.Table:
    """The `wanted` columns of a file of white-space-separated fields that are called `names`.

    Raises InputError that names file, line and field.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(1 << 16)
        if not start.strip():
            raise InputError(f"{path}: the file is empty")
        # One blank between fields is what nearly every tool writes; that is read many times faster.
        if re.search(rb"[\t\r]|  | \n|^ |\n\n", start) is None:
            return pyarrow.csv.read_csv(
                path,
                read_options=pyarrow.csv.ReadOptions(column_names=list(names)),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=" ", quote_char=False, ignore_empty_lines=True
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=list(wanted),
                    column_types=wanted,
                    strings_can_be_null=False,
                    null_values=[],
                ),
            )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except pa.ArrowInvalid:
        pass  # the slow way says in which line
    return _read_slowly(path, names, wanted)


def _read_slowly(path: Path, names: tuple[str, ...], wanted: dict[str, pa.DataType]) -> pa.Table:
    columns: dict[str, list[str | float]] = {name: [] for name in wanted}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST), ""), 1):
            if len(line) == LONGEST:
                raise InputError(f"{path}, line {number}: is longer than {LONGEST:,} characters")
            fields = line.split()
            if not fields:
                continue
            if len(fields) != len(names):
                raise InputError(
                    f"{path}, line {number}: {len(fields)} fields instead of {len(names)} ({' '.join(names)})"
                )
            for name, field in zip(names, fields, strict=True):
                if name in wanted:
                    columns[name].append(
                        _value(field, wanted[name], f"{path}, line {number}, field {name!r}")
                    )
    return pa.table({name: pa.array(column, wanted[name]) for name, column in columns.items()})


def _value(field: str, kind: pa.DataType, where: str) -> str | float:
    try:
        if pa.types.is_floating(kind):
            return float(field)
        if pa.types.is_integer(kind):
            return int(pa.scalar(int(field), kind).as_py())
        return field
    except (ValueError, OverflowError):
        raise InputError(f"{where}: {shown(field)} is not a number, or one too large") from None
