"""Records of full texts that cannot be used: the first one is an error, or they are left out and counted.

Values out of JSON records, with the place in the message when one cannot be used.
What is read from a full text, whatever its format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from datasets.bad_records import SHOWN, refuse, shown
from datasets.errors import InputError
from datasets.json_stream import kind_of
from datasets.records import usable_id

Object = dict[str, Any]


def refuse_of_values(where: str, field: str, wanted: str, value: Any) -> InputError:
    """The error to raise for a value of the wrong kind."""
    return InputError(f"{where}, field {field!r}: must be {wanted}, not {kind_of(value)}")


def named(part: str, key: str) -> str:
    """The place of a value in an object whose keys are not known: on one line, and not too long."""
    return f"{part}.{key if key.isprintable() and len(key) <= SHOWN else shown(key)}"


def string(record: Object, field: str, where: str) -> str:
    """A string; absent and null are ""."""
    value = record.get(field)
    if value is not None and not isinstance(value, str):
        raise refuse_of_values(where, field, "a string", value)
    return value or ""


def identity(record: Object, field: str, where: str) -> str:
    """The id of a paper: a whole number, or a string that is usable_id."""
    value = record.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise refuse_of_values(where, field, "an id (a string or a number)", value)
    if not usable_id(value):
        raise InputError(
            f"{where}, field {field!r}: an id must not be empty or hold white space or control characters"
        )
    return value


def optional_identity(record: Object, field: str, where: str) -> str:
    """An id; absent, null and "" are ""."""
    return "" if record.get(field) in (None, "") else identity(record, field, where)


def whole(record: Object, field: str, where: str) -> int:
    """A whole number that must be there; a string of digits will do."""
    value = record.get(field)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse_of_values(where, field, "a whole number", value)
    return value


def mapping(record: Object, field: str, where: str) -> Object:
    """An object; absent and null are empty."""
    value = record.get(field)
    if value is not None and not isinstance(value, dict):
        raise refuse_of_values(where, field, "an object", value)
    return value or {}


def objects(record: Object, field: str, where: str) -> Iterator[tuple[Object, str]]:
    """The objects of a list, each with its place; absent and null are none."""
    value = record.get(field)
    if value is not None and not isinstance(value, list):
        raise refuse_of_values(where, field, "a list of objects", value)
    for number, item in enumerate(value or ()):
        if not isinstance(item, dict):
            raise refuse_of_values(where, f"{field}[{number}]", "an object", item)
        yield item, f"{where}, {field}[{number}]"


def strings(record: Object, field: str, where: str) -> tuple[str, ...]:
    """The strings of a list; absent and null are none."""
    value = record.get(field)
    if value is not None and not isinstance(value, list):
        raise refuse_of_values(where, field, "a list of strings", value)
    for item in value or ():
        if not isinstance(item, str):
            raise refuse_of_values(where, field, "a list of strings", item)
    return tuple(value or ())


class Paper(NamedTuple):
    """What one record tells of a paper; empty and 0 are unknown."""

    id: str
    title: str = ""
    abstract: str = ""
    year: int = 0
    authors: tuple[str, ...] = ()
    field: str | tuple[str, ...] = ()
    identifiers: frozenset[str] = frozenset()
    """Kinds of identifier that it has, in lower case, as `arxiv`."""


class Cite(NamedTuple):
    """A span of a paragraph's text that cites; `ref` is None where it is not known what."""

    start: int
    end: int
    ref: str | None


class Paragraph(NamedTuple):
    """Running text. Neighbouring paragraphs of one section are read as one text."""

    text: str
    cites: list[Cite]
    section: str = ""


class Reference(NamedTuple):
    """An entry of a bibliography; empty and 0 are unknown."""

    paper: str = ""
    title: str = ""
    authors: tuple[str, ...] = ()
    year: int = 0
    text: str = ""


class FullText(NamedTuple):
    """A paper's body and bibliography."""

    paragraphs: list[Paragraph]
    references: dict[str, Reference]


class Record(NamedTuple):
    """A record of a file: a paper, and how to read its full text if it has one."""

    where: str
    """The file and the place in it, for messages."""
    paper: Paper
    full_text: Callable[[], FullText] | None = None


EXAMPLES = 20
"""Records left out that the report names, the first ones."""


@dataclass
class Refused:
    """max_share: of the records that may be left out; None: the first one is an error."""

    max_share: float | None
    read: int = 0
    """Records that can be used."""
    left_out: int = 0
    examples: list[str] = field(default_factory=list)

    def __call__(self, error: InputError) -> None:
        if self.max_share is None:
            refuse(error)
        self.left_out += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(str(error))

    def again(self, error: InputError) -> None:
        """For a record that was read before, and refused."""
        if self.max_share is None:
            refuse(error)

    def late(self, error: InputError) -> None:
        """For a record that was read before, of which the full text cannot be used."""
        self.read -= 1
        self(error)

    def check(self) -> None:
        """Raises InputError if too large a share was left out."""
        records = self.read + self.left_out
        if self.max_share is not None and self.left_out > self.max_share * records:
            raise InputError(
                f"source: {self.left_out:,} of {records:,} records ({self.left_out / records:.2%}) cannot be "
                f"used, more than max_bad_share={self.max_share:g} allows; the first: {self.examples[0]}"
            )
