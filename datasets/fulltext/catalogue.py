"""The papers of all files: records of one id become one paper, and those with title and abstract are kept.

While files are read, records lie in a SQLite file. Then memory holds the ids of the papers kept, their years,
the surnames of their first authors and a number for each title, but no texts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from datasets.fulltext.names import letters_of, surname, title_key
from datasets.fulltext.schema import Paper
from datasets.spool import Spool

AUTHORS = 4
"""Authors of a paper by whose names references are resolved and contexts checked."""

_SCHEMA = """
CREATE TABLE papers (place INTEGER PRIMARY KEY, id TEXT UNIQUE, title TEXT, abstract TEXT, year INT,
                     authors TEXT, field TEXT, identified INT)
"""
_ADD = """
INSERT INTO papers (id, title, abstract, year, authors, field, identified)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    title = iif(title = '', excluded.title, title),
    abstract = iif(abstract = '', excluded.abstract, abstract),
    year = iif(year = 0, excluded.year, year),
    authors = iif(authors = '[]', excluded.authors, authors),
    field = iif(field IN ('""', '[]'), excluded.field, field),
    identified = max(identified, excluded.identified)
"""
_KEPT = "title != '' AND abstract != '' AND identified"


class Catalogue:
    """Call add for each record, then finish. Rows count the papers kept, in the order of their first records.

    identifier: a kind of identifier that papers must have to be kept; None for any.
    """

    def __init__(self, path: Path, identifier: str | None) -> None:
        self.path = path
        self._identifier = identifier.lower() if identifier else None
        self._spool = Spool(path, _SCHEMA, _ADD)
        self.ids: list[str] = []
        self.rows: dict[str, int] = {}
        self.years = array("i")
        self._surnames: list[str] = []
        # Sorted, and the rows in the same order.
        self._title_keys, self._title_rows = array("Q"), array("i")

    def add(self, paper: Paper) -> None:
        identified = self._identifier is None or self._identifier in paper.identifiers
        self._spool.add(
            (
                paper.id,
                " ".join(paper.title.split()),
                paper.abstract.strip(),
                paper.year,
                orjson.dumps(paper.authors).decode(),
                orjson.dumps(paper.field).decode(),
                identified,
            )
        )

    def finish(self) -> Counter[str]:
        """Fill the rows; returns how many papers there are, and how many are left out for what reason."""
        counts: Counter[str] = Counter()
        for outcome, condition in (
            ("read", "true"),
            (f"without an identifier of the kind {self._identifier}", "NOT identified"),
            ("without a title", "identified AND title = ''"),
            ("without an abstract", "identified AND title != '' AND abstract = ''"),
            ("written", _KEPT),
        ):
            counts[outcome] = self._one(f"SELECT count(*) FROM papers WHERE {condition}")
        keys = array("Q")
        for paper, title, year, authors in self._spool.select(
            f"SELECT id, title, year, authors FROM papers WHERE {_KEPT} ORDER BY place"
        ):
            self.rows[paper] = len(self.rows)
            self.ids.append(paper)
            self.years.append(year)
            self._surnames.append("|".join(surname(name) for name in orjson.loads(authors)[:AUTHORS]))
            keys.append(title_key(letters_of(title)))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._title_rows, self._title_keys = array("i", order), array("Q", (keys[row] for row in order))
        return +counts

    def surnames(self, row: int) -> list[str]:
        """Of the first authors, folded."""
        return [name for name in self._surnames[row].split("|") if name]

    def titled(self, key: int) -> list[int]:
        """Rows of the papers whose title has this key."""
        first, last = bisect_left(self._title_keys, key), bisect_right(self._title_keys, key)
        return list(self._title_rows[first:last])

    def papers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(id, record of papers.json) of the papers kept, in the order of the rows."""
        for paper, title, abstract, year, authors, field in self._spool.select(
            f"SELECT id, title, abstract, year, authors, field FROM papers WHERE {_KEPT} ORDER BY place"
        ):
            record = {"title": title, "abstract": abstract, "year": year or None}
            record["authors"] = orjson.loads(authors)
            if fields := orjson.loads(field):
                record["field"] = fields
            yield paper, record

    def close(self) -> None:
        self._spool.close()

    def _one(self, query: str) -> int:
        return int(next(self._spool.select(query))[0] or 0)
