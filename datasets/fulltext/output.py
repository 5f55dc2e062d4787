"""JSON written as a stream: an object of records or a list of them, a record a line; gzipped if so named."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

_LEVEL = 5


class JsonFile:
    """A file that records are added to, as an object (each with its key) or a list; a context manager."""

    def __init__(self, path: Path, keys: bool) -> None:
        self._raw = path.open("wb")
        # Neither name nor time is written: equal content makes equal files.
        self._file: Any = self._raw
        if path.suffix == ".gz":
            self._file = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0)
        self._start, self._end = (b"{\n", b"\n}\n") if keys else (b"[\n", b"\n]\n")
        self.records = 0

    def __enter__(self) -> JsonFile:
        self._file.write(self._start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._file.write(self._end)
                self._file.close()
        finally:
            self._raw.close()

    def add(self, record: dict[str, Any], key: str | None = None) -> None:
        line = orjson.dumps(record)
        if key is not None:
            line = orjson.dumps(key) + b": " + line
        self._file.write(b",\n" + line if self.records else line)
        self.records += 1
