"""Helpers of the fuzz tests: the number of examples, and strategies that damage a file."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TIMES = int(os.environ.get("FUZZ", "1"))
"""Factor for the number of examples; above 1, examples differ from run to run."""

PIECES = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\r\n", b"\t", b"\0", b"\xff", b"\xc3"),
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-0", b"01", b"1.", b"9" * 30, b"9" * 400, b"1e400"),
    *(b"\\ud800", b"\\udfff\\ud800", b"\\ud83d\\ude00", b"\\u0000", b"\\u", b"\\q", b"\xed\xa0\x80"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b'"title"', b'"t\\u0069tle": 1,', b"TARGETCIT", b"{}", b"[[]]"),
    *(b'"": ', b"[" * 40, b'}, "x": {', b"}, {", b'"},', b"/**/", b"\x1b[31m"),
]  # fmt: skip


def lines(records: Iterable[Any]) -> bytes:
    """Return records as JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def fuzzed(examples: int) -> Any:
    """Return settings for a test with `examples` * TIMES examples."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    options: dict[str, Any] = {"deadline": None, "suppress_health_check": checks}
    return settings(max_examples=examples * TIMES, derandomize=TIMES == 1, database=None, **options)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, most: int = 3) -> bytes:
    """Replace, delete, insert or double up to `most` pieces of a file, or truncate it."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, most))):
        start = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from([0, 0, 1, 1, 2, 10, 100, len(content)]))
        piece = draw(
            st.sampled_from(PIECES) | st.binary(max_size=3) | st.just(bytes(content[start : start + length]))
        )
        content[start : start + draw(st.sampled_from([0, length]))] = piece
    return bytes(content)


@st.composite
def packed(draw: st.DrawFn, content: bytes) -> bytes:
    """Mostly unchanged; else gzipped (intact, truncated or corrupted), with a BOM, in UTF-16 or with CRLF."""
    how = draw(st.sampled_from(["plain", "plain", "plain", "gzip", "cut", "wrong", "mark", "crlf", "utf-16"]))
    if how in ("gzip", "cut", "wrong"):
        zipped = bytearray(gzip.compress(content, mtime=0))
        position = draw(st.integers(0, len(zipped) - 1))
        if how == "cut":
            del zipped[position:]
        elif how == "wrong":
            zipped[position] ^= draw(st.integers(1, 255))
        return bytes(zipped)
    if how == "utf-16":
        return content.decode("utf-8", "replace").encode("utf-16")
    return {"mark": b"\xef\xbb\xbf" + content, "crlf": content.replace(b"\n", b"\r\n")}.get(how, content)
