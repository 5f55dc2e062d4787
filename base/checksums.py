"""Checksums of the files of a folder, to detect missing, truncated and changed files."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from errno import EACCES
from pathlib import Path
from typing import Any

import xxhash

from citerec.base.errors import DamagedFile, error_text
from citerec.base.files import write_text

CHECKSUMS, CHECKED = "checksums.json", ".checked.json"
"""Two files of a folder: sizes and checksums of all its files, and their state when last compared."""
Sum = tuple[int, str]
"""Size and checksum of a file."""


def write_checksums(folder: Path, keep: bool = False) -> None:
    """Write a checksum of each file in a folder, and below it, to its CHECKSUMS.

    Hidden files and subfolders that have CHECKSUMS of their own are left out. keep: files that are listed
    already keep their checksums, so that damage since then is still noticed.
    """
    path, sums = folder / CHECKSUMS, dict[str, Sum]()
    listed = _read(folder) if keep and path.exists() else {}
    own = {other.parent for other in folder.rglob(CHECKSUMS)} - {folder}
    for file in sorted(folder.rglob("[!.]*")):
        if file.is_file() and file != path and own.isdisjoint(file.parents):
            name = file.relative_to(folder).as_posix()
            sums[name] = listed.get(name) or (file.stat().st_size, _checksum(file))
    write_text(path, json.dumps(sums, indent=1) + "\n")
    stamps = {name: _stamp(folder / name, checksum) for name, checksum in sums.items() if name not in listed}
    write_text(folder / CHECKED, json.dumps(_read_stamps(folder) | stamps))


def check_checksums(folder: Path, advice: str = "", trust: bool = True) -> None:
    """Compare the files of a folder with its CHECKSUMS; other files are ignored.

    trust: do not read files again that nothing has touched since they were last compared (CHECKED); their
    times do not reveal a failing disk.
    Raises DamagedFile naming the first file that is missing or damaged, with advice such as "build it again",
    and PermissionError for one that may not be read.
    """
    path, touched, stamps = folder / CHECKSUMS, list[str](), dict[str, Any]()
    advice = advice and f"; {advice}"
    try:
        sums, checked = _read(folder), _read_stamps(folder)
        for name, checksum in sums.items():
            path = folder / name
            stamps[name] = _stamp(path, checksum)
            if not os.access(path, os.R_OK):
                raise PermissionError(EACCES, os.strerror(EACCES), str(path))
            if stamps[name][2] != checksum[0]:
                raise ValueError("its size has changed")
            if not trust or stamps[name] != checked.get(name):
                touched.append(name)
        for name in touched:
            path = folder / name
            if _checksum(path) != sums[name][1]:
                raise ValueError("its content has changed")
    except FileNotFoundError:
        raise DamagedFile(f"{path}: missing{advice}") from None
    except PermissionError:
        raise
    except (OSError, TypeError, ValueError) as error:
        raise DamagedFile(f"{path}: damaged ({error_text(error)}){advice}") from None
    if touched:
        with suppress(OSError):  # a folder that cannot be written is compared each time
            write_text(folder / CHECKED, json.dumps(checked | stamps))


def _read(folder: Path) -> dict[str, Sum]:
    """Raises OSError, TypeError or ValueError for damage."""
    sums = dict(json.loads((folder / CHECKSUMS).read_text("utf-8")))
    return {name: (int(size), str(digest)) for name, (size, digest) in sums.items()}


def _read_stamps(folder: Path) -> dict[str, Any]:
    try:
        stamps = json.loads((folder / CHECKED).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def _stamp(path: Path, checksum: Sum) -> list[Any]:
    """Return checksum, size, mtime, inode and device of a file; not ctime, which every hard link changes."""
    stat = path.stat()
    return [*checksum, stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev]


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_64).hexdigest()
