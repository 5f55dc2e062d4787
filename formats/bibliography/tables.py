"""The types and variables of CSL, and what other formats call them: types.csv and variables.csv.

Their cells have the names that are read, of which the first is written; one in brackets is only written.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path


@lru_cache
def read_table(table: str) -> list[dict[str, str]]:
    """Return the rows of a .csv file of this folder, by the names of its columns."""
    with (Path(__file__).parent / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


Tags = Mapping[str, Sequence[str]]
"""The texts of a record by what a format calls them."""


def first_text(tags: Tags, *names: str) -> str:
    """Return the first text with any of these names that is not empty."""
    return next((text for name in names for text in tags.get(name, ()) if text), "")


class Names:
    """What a format calls the types, or the variables, of CSL.

    read: the format's names by CSL's, first those that take precedence; csl: the reverse; written: one name.
    """

    def __init__(self, table: str, format: str) -> None:
        """table: types or variables. format: a column of it."""
        cells = {row["csl"]: row[format].split("; ") for row in read_table(table) if row[format]}
        self.written = {csl: names[0].strip("()") for csl, names in cells.items()}
        self.read = {csl: names for csl, names in cells.items() if not names[0].startswith("(")}
        self.csl = {name: csl for csl, names in self.read.items() for name in names}

    def first(self, tags: Tags) -> dict[str, str]:
        """Return the first text of each variable."""
        return {csl: text for csl, names in self.read.items() if (text := first_text(tags, *names))}


VARIABLES = frozenset(row["csl"] for row in read_table("variables"))
