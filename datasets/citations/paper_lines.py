"""Papers that cite papers, one a line: the format of global citation recommendation's collections.

    {"paper_id": "p1", "title": "...", "abstract": "...", "year": 2019, "fields": ["Physics"],
     "references": ["p2"]}

JSON lines, plain or gzipped. Only `paper_id` must be there; what else is absent or null is empty or unknown.
`fields` may be a string. `references` are the ids of cited papers, in whatever file. Other keys are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from datasets.errors import InputError
from datasets.fulltext.json_lines import read_objects
from datasets.fulltext.values import Object, identity, string, strings
from datasets.json_stream import OnBytes, kind_of
from datasets.source import year_of


class PaperLine(NamedTuple):
    """One paper; year 0 is unknown. where: file and line, for messages."""

    where: str
    id: str
    title: str
    abstract: str
    year: int
    fields: tuple[str, ...]
    references: tuple[str, ...]


def read_paper_lines(path: Path, on_bytes: OnBytes | None = None) -> Iterator[PaperLine]:
    """Papers in the order of the file. Raises InputError that names file, line and field."""
    for where, record in read_objects(path, on_bytes):
        yield paper_line(record, where)


def paper_line(record: Object, where: str) -> PaperLine:
    """The paper in a record; InputError that names the field."""
    return PaperLine(
        where,
        identity(record, "paper_id", where),
        string(record, "title", where).strip(),
        string(record, "abstract", where).strip(),
        year_of(record.get("year"), where),
        tuple(dict.fromkeys(named(record, "fields", where))),
        references(record, "references", where),
    )


def named(record: Object, field: str, where: str) -> tuple[str, ...]:
    """The strings of a list, or one alone; absent, null and empty strings are none."""
    value = record.get(field)
    if value is not None and not isinstance(value, list | str):
        raise InputError(f"{where}, field {field!r}: must be a list of strings, not {kind_of(value)}")
    return tuple(
        name for name in ([value] if isinstance(value, str) else strings(record, field, where)) if name
    )


def references(record: Object, field: str, where: str) -> tuple[str, ...]:
    """The ids of a list, strings or whole numbers, in its order; absent and null are none."""
    value = record.get(field)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputError(f"{where}, field {field!r}: must be a list of ids, not {kind_of(value)}")
    for number, one in enumerate(value):
        if not isinstance(one, str | int) or isinstance(one, bool):
            raise InputError(f"{where}, field '{field}[{number}]': must be an id, not {kind_of(one)}")
    return tuple(map(str, value))
