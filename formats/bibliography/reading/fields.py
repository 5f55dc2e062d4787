"""Typed access to the fields of JSON records, which come from other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from citerec.base.errors import InputError, quoted
from citerec.formats.bibliography.paper import LibraryPaper, usable_paper
from citerec.formats.identifiers import find_year
from citerec.formats.json_lines import Object, OnBadRecord, json_type, parse_year


class Fields:
    """Typed access to the fields of a record. Raises InputError for a field of the wrong type."""

    def __init__(self, record: Object, where: str) -> None:
        self.record, self.where = record, where

    def text(self, *names: str) -> str:
        """Return the first non-empty one of these fields; integers become strings."""
        for name in names:
            value = self.record.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            if not isinstance(value, str | None):
                raise self.error(name, f"must be a string, not {json_type(value)}")
            if value:
                return value
        return ""

    def texts(self, *names: str) -> list[str]:
        """Return all strings of these fields, each a list of strings or a single string."""
        texts: list[str] = []
        for name in names:
            value = self.record.get(name)
            for part in value if isinstance(value, list) else [] if value is None else [value]:
                if not isinstance(part, str | None):
                    raise self.error(name, f"must be a list of strings, not of {json_type(part)}")
                texts += [part] if part else []
        return texts

    def year(self, name: str = "year") -> int:
        """Return the year in a field that has a year or a date."""
        value = self.record.get(name)
        try:
            return parse_year(value)
        except ValueError as error:
            if isinstance(value, str) and (year := find_year(value)):
                return year
            raise self.error(name, str(error)) from None

    def child(self, name: str) -> Fields:
        """Return the fields of a nested object; empty if the field is not an object."""
        value = self.record.get(name)
        return Fields(value if isinstance(value, dict) else {}, self.where)

    def children(self, name: str) -> list[Fields]:
        """Return the fields of each object in a list; empty if the field is not a list."""
        value = self.record.get(name)
        parts = value if isinstance(value, list) else []
        return [Fields(part, self.where) for part in parts if isinstance(part, dict)]

    def error(self, name: str, reason: str) -> InputError:
        return InputError(f"{self.where}, field {name!r}: {reason}")


def parse_records(
    path: Path,
    records: Iterable[tuple[Any, Any]],
    parse: Callable[[Fields, str], LibraryPaper],
    on_bad: OnBadRecord,
) -> Iterator[LibraryPaper]:
    """Yield the papers of a file's records, each with its key; `parse` gets the fields and the key."""
    for key, record in records:
        fields = Fields(record, f"{path}, record {quoted(key)}")
        if isinstance(record, dict):
            yield from usable_paper(partial(parse, fields, str(key)), fields.where, on_bad)
        else:
            on_bad(InputError(f"{fields.where}: must be an object, not {json_type(record)}"))
