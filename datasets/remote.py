"""Source files at a URL of fsspec (s3://, gs://, http://, memory:// ...): copied once to this machine.

Hashing, reading in pieces and mapping want files, so what is at a URL is brought into the cache folder first.
The copy is used as long as the URL says that its files are the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets.atomic import written_whole
from datasets.errors import InputError
from datasets.progress import moving

SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
CHUNK = 1 << 22
"""Bytes that are copied at a time."""


def is_url(place: object) -> bool:
    """Whether a path names a place of fsspec.

    >>> is_url("s3://bucket/folder"), is_url("../shared/data")
    (True, False)
    """
    return isinstance(place, str) and SCHEME.match(place) is not None


def local_folder(url: str, stems: Sequence[str], cache: Path) -> Path:
    """A folder with the files STEM.json or STEM.json.gz that are at the URL, of the first of them each.

    Raises InputError if nothing of it is there or it cannot be reached.
    """
    return _copied(url, [[f"{stem}.json", f"{stem}.json.gz"] for stem in stems], cache)


def local_file(url: str, cache: Path) -> Path:
    """The file that is at the URL; the rest as for local_folder."""
    folder, _, name = url.rpartition("/")
    return _copied(folder, [[name]], cache) / name


def _copied(url: str, wanted: list[list[str]], cache: Path) -> Path:
    from fsspec.implementations.local import LocalFileSystem

    try:
        system, root = _system(url)
        if isinstance(system, LocalFileSystem):
            return Path(root)
        found: dict[str, str] = {}
        for names in wanted:
            there = [name for name in names if _is_there(system, f"{root.rstrip('/')}/{name}")]
            found |= {name: f"{root.rstrip('/')}/{name}" for name in there[:1]}
        if not found:
            listed = ", ".join(names[0] for names in wanted)
            raise InputError(f"{url}: none of the files is there: {listed}")
        key = hashlib.blake2b(url.encode(), digest_size=8)
        for name, place in sorted(found.items()):
            key.update(f"{name} {system.ukey(place)}".encode())
        folder = cache / "remote" / key.hexdigest()
        for name, place in found.items():
            _copy(system, place, folder / name, f"{url}/{name}")
    except (InputError, KeyboardInterrupt):
        raise
    except Exception as error:  # each file system has exceptions of its own
        if isinstance(error, OSError) and error.filename and str(cache) in str(error.filename):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{url}: cannot be read: {reason}") from None
    return folder


def _system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it; InputError if its package is not installed."""
    from fsspec.core import url_to_fs

    try:
        system, root = url_to_fs(url)
    except ImportError as error:
        raise InputError(f"{url}: {error}") from None
    return system, str(root)


def _is_there(system: Any, place: str) -> bool:
    try:
        return bool(system.info(place)["type"] == "file")  # isfile hides what is wrong
    except FileNotFoundError:
        return False


def _copy(system: Any, place: str, path: Path, url: str) -> None:
    size = system.size(place)
    if path.is_file() and path.stat().st_size == size:
        return
    with written_whole(path) as part, part.open("wb") as target, moving(url) as update:
        with system.open(place, "rb") as source:
            while chunk := source.read(CHUNK):
                target.write(chunk)
                update(target.tell(), size)
        if size is not None and target.tell() != size:
            raise InputError(f"{url}: {target.tell():,} bytes came of {size:,}; run again")
