"""The source format: `papers.json`, `contexts.json` and one `SPLIT.json` per split, plain or gzipped.

papers.json     {paper_id: {"title": str, "abstract": str, "year": int}}
contexts.json   {context_id: {"masked_text": str, "citing_id": paper_id, "refid": paper_id}}
SPLIT.json      [{"context_id": context_id, "positive_ids": [paper_id, ...]}]

A paper has a title or an abstract, a masked text has the target marker exactly once. `year`, `refid` and an
empty title or abstract may be absent or null. A further key of papers, as "venue", may be named as the one
that holds the paper's field or fields: a string or a list of strings, absent or null for none. The rest is
ignored. The format is that of the published HAtten data sets.

Names that the source files, the tokenisers and the models agree on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from datasets.bad_records import BadRecord, Kind, OnBad, refuse, shown
from datasets.json_stream import Fields, Key, OnBytes, kind_of, read_records

TARGET_MARKER = "TARGETCIT"
"""Stands in a context where the paper to be recommended is cited."""

OTHER_MARKER = "OTHERCIT"
"""Stands in a context where some other paper is cited."""

TARGET_WORD = TARGET_MARKER.lower()
OTHER_WORD = OTHER_MARKER.lower()
MARKER_WORDS = (TARGET_WORD, OTHER_WORD)
"""What the markers are after lower-casing, in both tokenisers."""

SPLITS = ("train", "val", "test")
"""Splits that are looked for when none are named."""

TRAIN = "train"
"""The split that models are trained on and popularity is counted in."""


def split_group(split: str) -> str:
    """The part of a split's name up to the first underscore: `val` for `val_sentences`.

    Splits of one group may share citing papers, splits of two groups may not.
    """
    return split.split("_", 1)[0]


YEARS = range(-(2**31), 2**31)

# White space parts the columns of run files; control characters are for terminals.
_NOT_IN_IDS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")

Part = TypeVar("Part")


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


def read_papers(
    path: Path, on_bytes: OnBytes | None = None, field: str | None = None, on_bad: OnBad = refuse
) -> Iterator[Paper]:
    """Papers in the order of the file. Raises InputError if it cannot be read.

    field: the key that holds a paper's fields; None: papers have none. `on_bytes` is told how many bytes of
    the file were read, `on_bad` of the bad records, which are left out if it returns.
    """
    keys = frozenset(("title", "abstract", "year", *([field] if field else [])))
    records = read_records(path, keys, dict, on_bytes, on_bad)
    return _usable(records, partial(_paper, path, field), on_bad)


def read_contexts(path: Path, on_bytes: OnBytes | None = None, on_bad: OnBad = refuse) -> Iterator[Context]:
    """Contexts in the order of the file; the rest as for read_papers."""
    keys = frozenset(("masked_text", "context_id", "citing_id", "refid"))
    return _usable(read_records(path, keys, dict, on_bytes, on_bad), partial(_context, path), on_bad)


def read_split(path: Path, on_bytes: OnBytes | None = None, on_bad: OnBad = refuse) -> Iterator[Query]:
    """Queries in the order of the file, with their place in it (from 0); the rest as for read_papers."""
    keys = frozenset(("context_id", "positive_ids"))
    return _usable(read_records(path, keys, list, on_bytes, on_bad), partial(_query, path), on_bad)


def usable_id(value: str) -> bool:
    """Whether it can be the id of a paper or context: not empty, no white space, no control characters."""
    return bool(value) and not _NOT_IN_IDS.search(value)


def parse_year(value: Any) -> int:
    """A whole number, or one as a string (some published files have that); None and "" are 0.

    Raises ValueError with the reason.
    """
    if value is None or value == "":
        return 0
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        found = kind_of(value) if isinstance(value, list | dict) else shown(value)
        raise ValueError(f"must be a whole number, not {found}")
    if value not in YEARS:
        raise ValueError(f"{shown(value)} is out of range")
    return value


def _usable(
    records: Iterator[tuple[Key, Fields]], read: Callable[[Key, Fields], Part], on_bad: OnBad
) -> Iterator[Part]:
    for key, record in records:
        try:
            part = read(key, record)
        except BadRecord as error:
            on_bad(error)
        else:
            yield part


def _paper(path: Path, field: str | None, key: Key, record: Fields) -> Paper:
    paper = _id(path, key)
    title = _text(path, key, record, "title")
    abstract = _text(path, key, record, "abstract")
    if not title.strip() and not abstract.strip():
        raise BadRecord("empty", path, key, "title and abstract are both empty; a paper needs one of them")
    try:
        year = parse_year(record.get("year"))
    except ValueError as error:
        raise BadRecord("wrong value", path, key, str(error), "year") from None
    return Paper(paper, title, abstract, year, _names(path, key, record, field) if field else ())


def _context(path: Path, key: Key, record: Fields) -> Context:
    context = _id(path, key)
    text = _string(path, key, record, "masked_text")
    markers = text.count(TARGET_MARKER)
    if not text.replace(TARGET_MARKER, "").strip():
        raise BadRecord("empty", path, key, "the context is empty", "masked_text")
    if markers != 1:
        reason = f"{TARGET_MARKER} must be there exactly once, it is there {markers} times"
        raise BadRecord("wrong number of markers", path, key, reason, "masked_text")
    if "context_id" in record and (other := _string(path, key, record, "context_id")) != key:
        raise BadRecord(
            "unusable id", path, key, f"{shown(other)} differs from the record's key", "context_id"
        )
    cited = _string(path, key, record, "refid") if record.get("refid") is not None else None
    return Context(context, text, _string(path, key, record, "citing_id"), cited)


def _query(path: Path, key: Key, record: Fields) -> Query:
    context = _string(path, key, record, "context_id")
    positives = _value(path, key, record, "positive_ids")

    def bad(kind: Kind, reason: str) -> BadRecord:
        return BadRecord(kind, path, key, reason, "positive_ids")

    if not isinstance(positives, list):
        raise bad("wrong type", f"must be a list of paper ids, not {kind_of(positives)}")
    if not positives:
        raise bad("empty", "is empty; a query needs at least one cited paper")
    for positive in positives:
        if not isinstance(positive, str):
            raise bad("wrong type", f"must hold paper ids (strings), not {kind_of(positive)}")
    if len(set(positives)) != len(positives):
        raise bad("wrong value", "a paper is there twice")
    return Query(int(key), context, positives)


def _id(path: Path, key: Key) -> str:
    if not usable_id(str(key)):
        reason = "an id must not be empty or hold white space or control characters"
        raise BadRecord("unusable id", path, key, reason)
    return str(key)


def _value(path: Path, key: Key, record: Fields, field: str) -> Any:
    if field not in record:
        raise BadRecord("missing field", path, key, "is missing", field)
    return record[field]


def _string(path: Path, key: Key, record: Fields, field: str) -> str:
    value = _value(path, key, record, field)
    if not isinstance(value, str):
        raise BadRecord("wrong type", path, key, f"must be a string, not {kind_of(value)}", field)
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
            must = f"must be a string or a list of strings, as data.field={field} says"
            raise BadRecord("wrong type", path, key, f"{must}, not {kind_of(name)}", field)
    return tuple(dict.fromkeys(name for name in names if name))
