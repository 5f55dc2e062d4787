"""The source format: `papers.json`, `contexts.json` and one `SPLIT.json` per split, plain or gzipped.

papers.json     {paper_id: {"title": str, "abstract": str, "year": int}}
contexts.json   {context_id: {"masked_text": str, "citing_id": paper_id, "refid": paper_id}}
SPLIT.json      [{"context_id": context_id, "positive_ids": [paper_id, ...]}]

A paper has a title or an abstract, a masked text has the target marker exactly once. `year`, `refid` and an
empty title or abstract may be absent or null. A further key of papers, as "venue", may be named as the one
that holds the paper's field or fields: a string or a list of strings, absent or null for none. The rest is
ignored. The format is that of the published HAtten data sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from datasets.errors import InputError
from datasets.json_stream import Fields, Key, OnBytes, kind_of, read_records
from datasets.schema import TARGET_MARKER

YEARS = range(-(2**31), 2**31)


class Paper(NamedTuple):
    """One record of papers.json; year 0 is unknown."""

    id: str
    title: str
    abstract: str
    year: int
    fields: tuple[str, ...]


class Context(NamedTuple):
    """One record of contexts.json; `cited_id` is its `refid`, None where absent."""

    id: str
    text: str
    citing_id: str
    cited_id: str | None


class Query(NamedTuple):
    """One record of a split file."""

    record: int
    context_id: str
    positive_ids: list[str]


@dataclass(frozen=True)
class Source:
    """The files of a corpus; `splits` by name, in the order in which they are to be checked."""

    folder: Path
    papers: Path
    contexts: Path
    splits: dict[str, Path]

    def files(self) -> dict[str, Path]:
        """All files by their part in the corpus."""
        return {"papers": self.papers, "contexts": self.contexts} | {
            f"split {k}": v for k, v in self.splits.items()
        }


def source_file(folder: Path, stem: str) -> Path | None:
    """`stem`.json or `stem`.json.gz in the folder, the plain one if both are there; None if neither is."""
    for suffix in (".json", ".json.gz"):
        path = folder / (stem + suffix)
        if path.exists():
            return path
    return None


def read_papers(path: Path, on_bytes: OnBytes | None = None, field: str | None = None) -> Iterator[Paper]:
    """Papers in the order of the file. Raises InputError that names file, record and field.

    field: the key that holds a paper's fields; None: papers have none.
    """
    keys = frozenset(("title", "abstract", "year", *([field] if field else [])))
    for key, record in read_records(path, keys, dict, on_bytes):
        _check_id(path, key)
        title = _text(path, key, record, "title")
        abstract = _text(path, key, record, "abstract")
        if not title.strip() and not abstract.strip():
            raise InputError(
                f"{path}, record {key!r}: title and abstract are both empty; a paper needs one of them"
            )
        names = _names(path, key, record, field) if field else ()
        yield Paper(str(key), title, abstract, year_of(record.get("year"), f"{path}, record {key!r}"), names)


def read_contexts(path: Path, on_bytes: OnBytes | None = None) -> Iterator[Context]:
    """Contexts in the order of the file. Raises InputError that names file, record and field."""
    fields = frozenset(("masked_text", "context_id", "citing_id", "refid"))
    for key, record in read_records(path, fields, dict, on_bytes):
        _check_id(path, key)
        text = _string(path, key, record, "masked_text")
        markers = text.count(TARGET_MARKER)
        if not text.replace(TARGET_MARKER, "").strip():
            raise InputError(f"{path}, record {key!r}, field 'masked_text': the context is empty")
        if markers != 1:
            where = f"{path}, record {key!r}, field 'masked_text'"
            raise InputError(
                f"{where}: {TARGET_MARKER} must be there exactly once, it is there {markers} times"
            )
        if "context_id" in record and _string(path, key, record, "context_id") != key:
            where = f"{path}, record {key!r}, field 'context_id'"
            raise InputError(f"{where}: {record['context_id']!r} differs from the record's key")
        cited = _string(path, key, record, "refid") if record.get("refid") is not None else None
        yield Context(str(key), text, _string(path, key, record, "citing_id"), cited)


def read_split(path: Path, on_bytes: OnBytes | None = None) -> Iterator[Query]:
    """Queries in the order of the file. Raises InputError that names file, record (from 0) and field."""
    for key, record in read_records(path, frozenset(("context_id", "positive_ids")), list, on_bytes):
        context = _string(path, key, record, "context_id")
        if "positive_ids" not in record:
            raise InputError(f"{path}, record {key!r}: field 'positive_ids' is missing")
        positives = record["positive_ids"]
        where = f"{path}, record {key!r}, field 'positive_ids'"
        if not isinstance(positives, list):
            raise InputError(f"{where}: must be a list of paper ids, not {kind_of(positives)}")
        if not positives:
            raise InputError(f"{where}: is empty; a query needs at least one cited paper")
        for positive in positives:
            if not isinstance(positive, str):
                raise InputError(f"{where}: must hold paper ids (strings), not {kind_of(positive)}")
        if len(set(positives)) != len(positives):
            raise InputError(f"{where}: a paper is there twice")
        yield Query(int(key), context, positives)


def _check_id(path: Path, key: Key) -> None:
    # White space parts the columns of run files.
    if str(key).split() != [key]:
        raise InputError(f"{path}, record {key!r}: an id must not be empty or hold white space")


def _string(path: Path, key: Key, record: Fields, field: str) -> str:
    if field not in record:
        raise InputError(f"{path}, record {key!r}: field {field!r} is missing")
    value = record[field]
    if not isinstance(value, str):
        raise InputError(f"{path}, record {key!r}, field {field!r}: must be a string, not {kind_of(value)}")
    return value


def _text(path: Path, key: Key, record: Fields, field: str) -> str:
    """A string that may be absent or null: then it is empty."""
    return "" if record.get(field) is None else _string(path, key, record, field)


def _names(path: Path, key: Key, record: Fields, field: str) -> tuple[str, ...]:
    """A string or a list of strings, each once; absent, null and empty strings are none."""
    value = record.get(field)
    names = value if isinstance(value, list) else [] if value is None else [value]
    for name in names:
        if not isinstance(name, str):
            raise InputError(
                f"{path}, record {key!r}, field {field!r}: must be a string or a list of strings, as "
                f"data.field={field} says, not {kind_of(name)}"
            )
    return tuple(dict.fromkeys(name for name in names if name))


def year_of(value: Any, where: str) -> int:
    """A whole number, or one as a string (some published files have that); None and "" are 0.

    where: the file and record. Raises InputError.
    """
    if value is None or value == "":
        return 0
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{where}, field 'year': must be a whole number, not {value!r:.40}")
    if value not in YEARS:
        raise InputError(f"{where}, field 'year': {value} is out of range")
    return value
