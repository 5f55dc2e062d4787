"""What the tests that fuzz share: how long they run, and what they do to a file."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TIMES = int(os.environ.get("FUZZ", "1"))
"""How many times as many examples are tried; with more than one they differ from run to run."""
REAL = Path(__file__).parents[3] / "shared" / "data"

PIECES = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\r\n", b"\t", b"\0", b"\xff", b"\xc3"),
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-0", b"01", b"1.", b"9" * 30, b"9" * 400, b"1e400"),
    *(b"\\ud800", b"\\udfff\\ud800", b"\\ud83d\\ude00", b"\\u0000", b"\\u", b"\\q", b"\xed\xa0\x80"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b'"title"', b'"t\\u0069tle": 1,', b"TARGETCIT", b"{}", b"[[]]"),
    *(b'"": ', b"[" * 40, b'}, "x": {', b"}, {", b'"},', b"/**/", b"\x1b[31m"),
]  # fmt: skip


def fuzzed(examples: int) -> Any:
    """The settings of a test that tries so many examples, or TIMES as many."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    options: dict[str, Any] = {"deadline": None, "suppress_health_check": checks}
    return settings(max_examples=examples * TIMES, derandomize=TIMES == 1, database=None, **options)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, most: int = 3) -> bytes:
    """Up to `most` places of a file are replaced, left out, put in or doubled, or its end is cut off."""
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
    """Mostly as it is; else gzipped, whole or cut or with a wrong byte, with a mark or Windows' line ends."""
    how = draw(st.sampled_from(["plain", "plain", "plain", "gzip", "cut", "wrong", "mark", "crlf", "utf-16"]))
    if how in ("gzip", "cut", "wrong"):
        zipped = bytearray(gzip.compress(content, mtime=0))
        place = draw(st.integers(0, len(zipped) - 1))
        if how == "cut":
            del zipped[place:]
        elif how == "wrong":
            zipped[place] ^= draw(st.integers(1, 255))
        return bytes(zipped)
    if how == "utf-16":
        return content.decode("utf-8", "replace").encode("utf-16")
    return {"mark": b"\xef\xbb\xbf" + content, "crlf": content.replace(b"\n", b"\r\n")}.get(how, content)
