"""The text of a JSON file, in memory only as far as one value reaches: for json_stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import IO

import orjson

from datasets.byte_files import without_mark
from datasets.errors import InputError

OnBytes = Callable[[int], None]

CHUNK = 1 << 18
LARGEST = 1 << 24
"""Bytes of a value at most. It bounds the memory, which is a small multiple of it."""
DEEPEST = 1024
"""Objects and lists in each other at most, as many as the parser takes."""

_WHITE = frozenset((b" ", b"\t", b"\n", b"\r"))
_SPACE = re.compile(rb"[ \t\n\r]*+")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SCALAR = re.compile(rb'[^][{}",: \t\n\r]++')
# A string whose end is not in memory is a token as well, the last one.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[][{}]', re.DOTALL)
_QUOTE, _OPENING = ord('"'), frozenset(b"{[")


class JsonText:
    """`data` is the part of the file that is in memory, `place` where the reader is in it.

    peek, string and value may read on, which moves both.
    """

    def __init__(self, path: Path, file: IO[bytes], raw: IO[bytes], on_bytes: OnBytes | None) -> None:
        self._path, self._file, self._raw, self._on_bytes = path, file, raw, on_bytes
        self._lines = self._column = 0  # line breaks before `data`, and bytes since the last of them
        self.data, self.place = b"", 0
        self._more()
        self.data = without_mark(self.data, path)

    def peek(self) -> bytes:
        """The next byte that is no white space, where `place` is then; b"" at the end."""
        sign = self.data[self.place : self.place + 1]
        if sign and sign not in _WHITE:
            return sign
        while True:
            match = _SPACE.match(self.data, self.place)
            assert match is not None
            self.place = match.end()
            if self.place < len(self.data) or not self._more():
                return self.data[self.place : self.place + 1]

    def string(self) -> bytes:
        """The string that begins at `place`, which moves behind it. Raises InputError if it never ends."""
        while not (match := _STRING.match(self.data, self.place)):
            if not self._more():
                raise self.malformed()
        self.place = match.end()
        return match[0]

    def value(self) -> bytes:
        """The value that begins at `place`, which moves behind it: its brackets match, no more is known.

        Raises InputError if there is none, or it never ends.
        """
        sign = self.peek()
        if sign == b'"':
            return self.string()
        start = self.place
        if sign in (b"{", b"["):
            while not (end := self._closed()):
                if not self._more():
                    raise self.malformed()
        else:
            while (match := _SCALAR.match(self.data, self.place)) and match.end() == len(self.data):
                if not self._more():
                    break
            if not match:
                raise self.malformed("a value is expected")
            end = match.end()
        start, self.place = self.place, end
        return self.data[start:end]

    def malformed(self, reason: str = "", place: int | None = None) -> InputError:
        """The error to raise, for this reason or for what a parser finds from `place` on."""
        place = self.place if place is None else place
        if not reason:
            offset, reason = fault(self.data[place:])
            place += offset
        return InputError(f"{self._path}: malformed JSON {self.position(place)}: {reason}")

    def position(self, place: int) -> str:
        """Line and column of a place in `data`, both from 1; columns are bytes."""
        if place >= len(self.data):
            return "at the end of the file"
        newline = self.data.rfind(b"\n", 0, place)
        line = self._lines + self.data.count(b"\n", 0, place) + 1
        return f"at line {line}, column {place - newline if newline >= 0 else self._column + place + 1}"

    def _more(self) -> bool:
        """Read on, and forget what is before `place`; False at the end. InputError if it is too much."""
        kept = self.data[self.place :]
        if len(kept) >= LARGEST:
            where = self.position(self.place)
            offset, reason = fault(kept)
            if offset < len(kept):
                raise self.malformed(reason, self.place + offset)
            raise InputError(f"{self._path}: what begins {where} is larger than {LARGEST:,} bytes")
        # Twice as much each time: what is long is then looked through a few times only.
        chunk = self._file.read(min(max(CHUNK, len(kept)), LARGEST))
        if self._on_bytes is not None:
            self._on_bytes(self._raw.tell())
        if not chunk:
            return False
        newline = self.data.rfind(b"\n", 0, self.place)
        self._column = self.place - newline - 1 if newline >= 0 else self._column + self.place
        self._lines += self.data.count(b"\n", 0, self.place)
        self.data, self.place = kept + chunk, 0
        return True

    def _closed(self) -> int:
        """The end of the object or list that begins at `place`; 0 if it is not in memory."""
        depth = 0
        for token in _TOKEN.finditer(self.data, self.place):
            sign = self.data[token.start()]
            if sign != _QUOTE:
                depth += 1 if sign in _OPENING else -1
                if depth == 0:
                    return token.end()
                if depth > DEEPEST:
                    where = self.position(token.start())
                    raise InputError(
                        f"{self._path}: {where} more than {DEEPEST} objects and lists are nested"
                    )
        return 0


def fault(value: bytes) -> tuple[int, str]:
    """Where a value is malformed, in bytes, and why; at its end if more is needed."""
    try:
        text, invalid = value.decode(), None
    except UnicodeDecodeError as error:
        text, invalid = value[: error.start].decode(), error
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if invalid is None or error.pos < len(text):
            return len(text[: error.pos].encode()), error.msg
    return (invalid.start, "invalid UTF-8") if invalid else (len(value), "unexpected end")
