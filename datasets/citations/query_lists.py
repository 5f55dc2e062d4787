"""Lists of the papers that ask: {"val": {field: [ids]}, "test": {field: [ids]}}, or ids without fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from datasets.bad_records import shown
from datasets.byte_files import whole_file
from datasets.errors import InputError
from datasets.prepare import check_split_names

if TYPE_CHECKING:
    from datasets.citations.graph import CitationGraph

LARGEST = 1 << 28
"""Bytes of a file at most."""


@dataclass(frozen=True)
class QueryLists:
    """A file's ids by split."""

    path: Path
    splits: dict[str, list[str]]

    def rows(self, split: str, graph: CitationGraph) -> list[int]:
        """Rows of a split's papers; InputError for a split that is not there, and ids that no paper has."""
        if split not in self.splits:
            raise InputError(f"{self.path}: no split {split!r}; there are: {', '.join(self.splits)}")
        return rows_of(self.splits[split], graph, f"{self.path}, {split!r}")


def rows_of(ids: Sequence[str], graph: CitationGraph, where: str) -> list[int]:
    """Rows of papers; InputError that says how many of the ids no paper has, and names the first."""
    missing = [paper for paper in ids if paper not in graph.rows]
    if missing:
        some = ", ".join(missing[:5])
        raise InputError(f"{where}: {len(missing):,} of {len(ids):,} ids are not in {graph.files[0]}: {some}")
    return [graph.rows[paper] for paper in ids]


def read_query_lists(path: str | Path) -> QueryLists:
    """Read a file; InputError that names the part which is not of this form, or an id of two splits."""
    path = Path(path).expanduser()
    try:
        found = orjson.loads(whole_file(path, LARGEST))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: malformed JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise InputError(f"{path}: must be an object of splits, as val and test")
    try:
        check_split_names(list(found))
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix('data.splits: ')}") from None
    splits: dict[str, list[str]] = {}
    place: dict[str, str] = {}
    for split, value in found.items():
        lists = value.values() if isinstance(value, dict) else [value]
        ids: list[str] = []
        for part in lists:
            if not isinstance(part, list) or not all(isinstance(paper, str) for paper in part):
                raise InputError(
                    f"{path}, {split!r}: must be a list of ids, or an object of such lists by field"
                )
            ids += part
        splits[split] = list(dict.fromkeys(ids))
        for paper in splits[split]:
            if (other := place.setdefault(paper, split)) != split:
                raise InputError(
                    f"{path}: {shown(paper)} is in {other!r} and in {split!r}; a paper asks in one split"
                )
    return QueryLists(path, splits)
