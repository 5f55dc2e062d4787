"""What the tests that fuzz share: how long they run, and what they do to a file."""

from __future__ import annotations

import gzip
import json
import os
import re
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


def strictly(content: bytes) -> Any:
    """What RFC 8259 says the bytes are, by Python's parser; objects are lists of pairs. Raises ValueError.

    As our reader: halves of surrogate pairs become U+FFFD, whole numbers of more than 64 bits floats.
    """
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    try:
        value = json.loads(
            text, object_pairs_hook=_Pairs, parse_constant=_refuse, parse_float=_finite, parse_int=_whole
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _mended(value)


class _Pairs(list):
    """The pairs of an object."""


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _finite(text: str) -> float:
    if (value := float(text)) in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


def _whole(text: str) -> int | float:
    value = int(text) if len(text) < 25 else 2**64
    return value if -(2**63) <= value < 2**64 else _finite(text)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, _Pairs):
        return _Pairs((_mended(name), _mended(inner)) for name, inner in value)
    return [_mended(inner) for inner in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """What `strictly` gave with dictionaries for pairs: of equal names the last counts."""
    if isinstance(value, _Pairs):
        return {name: plain(inner) for name, inner in value}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def is_object(value: Any) -> bool:
    return isinstance(value, _Pairs)
