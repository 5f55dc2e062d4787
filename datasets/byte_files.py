"""Files as bytes, plain or gzipped, whatever their name; what cannot be read is one line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from datasets.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file: (its content, the file itself, whose position tells the progress).

    Do nothing but read inside: what the system refuses there is an InputError that says so of this file.
    """
    try:
        with path.open("rb") as raw:
            magic = raw.read(2)
            raw.seek(0)
            if magic != GZIP_MAGIC:
                yield raw, raw
                return
            with gzip.GzipFile(fileobj=raw) as file:
                yield cast(IO[bytes], file), raw
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def whole_file(path: Path, largest: int) -> bytes:
    """The content of a file. Raises InputError if it cannot be read or is larger than so many bytes."""
    with open_bytes(path) as (file, _):
        content = file.read(largest + 1)
    if len(content) > largest:
        raise InputError(f"{path}: is larger than {largest >> 20:,} MB")
    return content


def without_mark(start: bytes, path: Path) -> bytes:
    """The start of a JSON file without a byte order mark; InputError where its text is not in UTF-8."""
    # JSON begins with two ASCII signs, so a zero byte among the first ones tells UTF-16 and UTF-32.
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (b"\0" in start[:2] and start[:4].strip(b"\0")):
        raise InputError(f"{path}: is in UTF-16 or UTF-32 and must be in UTF-8; iconv -t UTF-8 converts it")
    return start.removeprefix(BYTE_ORDER_MARK)
