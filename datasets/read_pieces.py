"""What a process makes of some records of papers or contexts: columns, and their words as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.json_cuts import Piece, as_file
from datasets.source import Context, Paper, read_contexts, read_papers
from datasets.tokenization import TOKENIZERS
from datasets.word_table import WordTable
from datasets.writing import CHUNK

STRINGS = pa.large_string()
TEXTS = {Paper: ("title", "abstract"), Context: ("text",)}
"""The columns that are cut into words."""


@dataclass(frozen=True)
class Work:
    """What is to be read: papers (with the key of their fields, if they have any) or contexts."""

    kind: type[Paper] | type[Context]
    tokenizer: str
    field: str | None = None

    def of(self, piece: Piece) -> pa.Table:
        """A piece's records as one row: a list for each column, and the reason if they cannot be used."""
        try:
            with as_file(piece) as path:
                reader = read_papers(path, None, self.field) if self.kind is Paper else read_contexts(path)
                records = list(reader)
            if not records and not (piece.start == 0 and piece.last):  # as between two commas
                raise InputError(f"{piece.path}: no record between bytes {piece.start} and {piece.stop}")
            columns = self._columns(records)
        except InputError as error:
            columns, reason = self._columns([]), str(error) or "unusable"
        else:
            reason = ""
        lists = {
            name: pa.LargeListArray.from_arrays([0, len(values)], values) for name, values in columns.items()
        }
        return pa.table(lists | {"stop": [piece.stop], "reason": [reason]})

    def _columns(self, records: list[Any]) -> dict[str, pa.Array]:
        types = {"year": pa.int32(), "fields": pa.list_(STRINGS)}
        columns = {
            name: pa.array((getattr(record, name) for record in records), types.get(name, STRINGS))
            for name in self.kind._fields
        }
        table = WordTable(TOKENIZERS[self.tokenizer])
        for name in TEXTS[self.kind]:
            found = [table.ids(texts) for texts in _some_at_a_time(getattr(r, name) for r in records)]
            for part in ("values", "lengths"):
                arrays = [getattr(words, part).astype(np.int32) for words in found]
                columns[f"{name} {part}"] = pa.array(np.concatenate([np.empty(0, np.int32), *arrays]))
        return columns | {"words": table.words()}


class Read:
    """The columns of a piece again. Raises InputError with the reason if it cannot be used."""

    def __init__(self, kind: type[Paper] | type[Context], row: dict[str, Any]) -> None:
        """row: the scalars of a row that `Work.of` gave."""
        self._kind, self._row = kind, row
        self.stop: int = row["stop"].as_py()
        if reason := row["reason"].as_py():
            raise InputError(reason)
        self.words: pa.LargeStringArray = row["words"].values

    def records(self) -> Iterator[Any]:
        """Papers or contexts."""
        columns = [self._row[name].values.to_pylist() for name in self._kind._fields]
        if self._kind is Paper:
            columns[-1] = map(tuple, columns[-1])
        return map(self._kind._make, zip(*columns, strict=True))

    def tokens(self, column: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Rows of `words` of all texts of a column, one text behind the other, and how many each has."""
        values, lengths = (self._row[f"{column} {part}"].values.to_numpy() for part in ("values", "lengths"))
        return values, lengths


def _some_at_a_time(texts: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    characters = 0
    for text in texts:
        some.append(text)
        characters += len(text)
        if characters >= CHUNK:
            yield some
            some, characters = [], 0
    yield some
