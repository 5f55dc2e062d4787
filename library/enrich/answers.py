"""What services have answered, kept on disk, so that a repeated run asks nothing again."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from citerec.base.errors import InputError, error_text
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.enrich.services import Answers, Lookup

FILE = "enrichment.sqlite"
"""In the library's folder."""
VERSION = 3
_DAY = 86_400
_WORKS = msgspec.msgpack.Decoder(list[LibraryPaper])


class AnswerCache:
    """Works by service and lookup; an empty list: asked and not found. Each `put` is kept at once.

    max_age: days after which an answer is forgotten. Raises InputError for a damaged file.
    """

    def __init__(self, path: Path, max_age: int) -> None:
        self.path, self._oldest = path, max(int(time.time()) // _DAY - max_age, 0)
        with self._errors():
            self._database = sqlite3.connect(path, isolation_level=None)
            [(version,)] = self._database.execute("PRAGMA user_version")
            if version != VERSION:
                self._database.execute("DROP TABLE IF EXISTS answers")
                self._database.execute(f"PRAGMA user_version = {VERSION}")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS answers (service TEXT, lookup TEXT, day INTEGER, works BLOB, "
                "PRIMARY KEY (service, lookup)) WITHOUT ROWID"
            )

    def close(self) -> None:
        self._database.close()

    def get(self, service: str, lookup: Lookup) -> list[LibraryPaper] | None:
        """Return the works that a service has answered; None if it was not asked, or too long ago."""
        with self._errors():
            found = self._database.execute(
                "SELECT works FROM answers WHERE service = ? AND lookup = ? AND day >= ?",
                (service, _name(lookup), self._oldest),
            ).fetchone()
            return _WORKS.decode(found[0]) if found else None

    def put(self, service: str, answers: Answers) -> None:
        day = int(time.time()) // _DAY
        rows = [
            (service, _name(lookup), day, msgspec.msgpack.encode(works)) for lookup, works in answers.items()
        ]
        with self._errors():
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)
            self._database.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise InputError(
                f"{self.path}: cannot be used ({error_text(error)}); remove it to ask the services anew"
            ) from None


def _name(lookup: Lookup) -> str:
    return msgspec.json.encode(lookup).decode()
