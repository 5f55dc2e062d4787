"""Rows that lie in a SQLite file until all are read, those of one id joined."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BATCH = 10_000


class Spool:
    """One table, for the time of one process: nothing of it outlives an interrupt."""

    def __init__(self, path: Path, schema: str, insert: str) -> None:
        """schema: makes the table. insert: puts one row into it, or joins it with the row of its id."""
        self.path = path
        self._insert = insert
        self._batch: list[tuple[Any, ...]] = []
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA cache_size = -65536")  # 64 MiB
        self._database.execute(schema)

    def add(self, row: tuple[Any, ...]) -> None:
        """Raises OSError where the disk is full."""
        self._batch.append(row)
        if len(self._batch) == _BATCH:
            self._write()

    def select(self, query: str) -> Iterator[tuple[Any, ...]]:
        """What a query gives, over all rows that were added."""
        if self._batch:
            self._write()
        return self._database.execute(query)

    def close(self) -> None:
        self._database.close()

    def _write(self) -> None:
        try:
            self._database.execute("BEGIN")
            self._database.executemany(self._insert, self._batch)
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise OSError(errno.ENOSPC, "No space left on device", str(self.path)) from None
            raise
        self._batch.clear()
