"""The values of single queries as a file, from which runs are compared."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from datasets.atomic import written_whole
from datasets.errors import InputError
from evaluation.measures import Values

HEAD = ["query_id", "citing_id"]


@dataclass(frozen=True)
class PerQuery:
    """Measures of queries [Q] with the ids of queries and of the papers that they stand in."""

    query_ids: Sequence[str]
    citing_ids: Sequence[str]
    values: Values

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def papers(self) -> npt.NDArray[np.int64]:
        """A number for each citing paper [Q]."""
        codes: dict[str, int] = {}
        return np.array([codes.setdefault(paper, len(codes)) for paper in self.citing_ids], np.int64)

    def write(self, path: str | Path) -> None:
        """Write a table of commas with a row for each query; numbers keep all digits."""
        columns = [array.tolist() for array in self.values.values()]
        with written_whole(Path(path)) as part, part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*HEAD, *self.values])
            writer.writerows(zip(self.query_ids, self.citing_ids, *columns, strict=True))

    @classmethod
    def read(cls, path: str | Path) -> PerQuery:
        """Read what `write` wrote; InputError that names file, line and column."""
        try:
            with Path(path).open(encoding="utf-8", newline="") as file:
                rows = list(csv.reader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{path}: {reason}; a benchmark writes such a file beside its report") from None
        if len(rows) < 2 or rows[0][:2] != HEAD:
            raise InputError(f"{path}: no table of queries, whose head starts with {','.join(HEAD)}")
        names = rows[0][2:]
        for line, row in enumerate(rows, 1):
            if len(row) != len(rows[0]):
                raise InputError(f"{path}, line {line}: {len(row)} columns instead of {len(rows[0])}")
        values = {
            name: _numbers(path, name, [row[2 + i] for row in rows[1:]]) for i, name in enumerate(names)
        }
        return cls([row[0] for row in rows[1:]], [row[1] for row in rows[1:]], values)


def _numbers(path: str | Path, name: str, texts: list[str]) -> npt.NDArray[np.float64]:
    found = np.empty(len(texts))
    for place, text in enumerate(texts):
        try:
            found[place] = float(text)
        except ValueError:
            raise InputError(f"{path}, line {place + 2}, column {name!r}: {text!r} is not a number") from None
    return found
