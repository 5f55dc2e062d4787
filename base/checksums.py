"""Checksums of the files of a folder, which tell damage: a file that is missing, cut or has other content."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from errno import EACCES
from pathlib import Path
from typing import Any

import xxhash

from citerec.base.errors import DamagedFile, error_text
from citerec.base.files import CHUNK, write_text

CHECKSUMS, CHECKED = "checksums.json", ".checked.json"
"""The sizes and checksums of all files of a folder; what these files were when they were last compared."""
GROWING = (".npy",)
"""Suffixes of files that may be longer than is listed: later folders share them, and have rows at their end
(datasets.columns.continue_arrays)."""
Parts = list[tuple[int, str]]
"""Sizes and checksums of the parts of a file: of all of it, or of what it had first and what it got later."""


def write_checksums(folder: Path, keep: bool = False, before: Path | None = None) -> None:
    """Write a checksum of each file in a folder, and below it, to its CHECKSUMS.

    Hidden files and subfolders that have CHECKSUMS of their own are left out. keep: files that are listed
    already keep their checksums, so that damage since then is still noticed. before: a folder with checksums,
    which was compared with them; of the files that are hard links to its files, only what they got later is
    read.
    """
    path, sums = folder / CHECKSUMS, dict[str, Parts]()
    known = _read(folder) if keep and path.exists() else {}
    former = _read(before) if before is not None else {}
    own = {other.parent for other in folder.rglob(CHECKSUMS)} - {folder}
    for file in sorted(folder.rglob("[!.]*")):
        if file.is_file() and file != path and own.isdisjoint(file.parents):
            name = str(file.relative_to(folder))
            if name in known:
                sums[name] = known[name]
            elif before is not None and name in former and file.samefile(before / name):
                sums[name] = _continued(file, former[name])
            else:
                sums[name] = [(size := file.stat().st_size, _checksum(file, 0, size))]
    write_text(path, json.dumps(sums, indent=1) + "\n")
    stamps = {name: _stamp(folder / name, parts) for name, parts in sums.items() if name not in known}
    write_text(folder / CHECKED, json.dumps(_read_stamps(folder) | stamps))


def check_checksums(folder: Path, advice: str = "", trust: bool = True) -> None:
    """Compare the files of a folder with its CHECKSUMS; other files are ignored.

    What follows the parts of a file that have a checksum is ignored, if it may grow. trust: do not read files
    again that nothing has touched since they were last compared (CHECKED), whose times do not tell of a
    failing disk.
    Raises DamagedFile naming the first file that is missing or damaged, with advice such as "build it again",
    and PermissionError for one that may not be read.
    """
    path, touched, stamps = folder / CHECKSUMS, list[str](), dict[str, Any]()
    advice = advice and f"; {advice}"
    try:
        sums, checked = _read(folder), _read_stamps(folder)
        for name, parts in sums.items():
            path = folder / name
            stamps[name] = _stamp(path, parts)
            if not os.access(path, os.R_OK):
                raise PermissionError(EACCES, os.strerror(EACCES), str(path))
            more = stamps[name][1] - sum(size for size, _ in parts)
            if more < 0 or (more and not name.endswith(GROWING)):
                raise ValueError("its size has changed")
            if not trust or stamps[name] != checked.get(name):
                touched.append(name)
        for name in touched:
            path = folder / name
            _compare(path, sums[name])
    except FileNotFoundError:
        raise DamagedFile(f"{path}: missing{advice}") from None
    except PermissionError:
        raise
    except (OSError, TypeError, ValueError) as error:
        raise DamagedFile(f"{path}: damaged ({error_text(error)}){advice}") from None
    if touched:
        with suppress(OSError):  # a folder that cannot be written is compared each time
            write_text(folder / CHECKED, json.dumps(checked | stamps))


def _read(folder: Path) -> dict[str, Parts]:
    """Raises OSError, TypeError or ValueError for damage."""
    sums = dict(json.loads((folder / CHECKSUMS).read_text("utf-8")))
    return {name: [(int(size), str(digest)) for size, digest in parts] for name, parts in sums.items()}


def _read_stamps(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / CHECKED).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _stamp(path: Path, parts: Parts) -> list[Any]:
    """Return a file's parts, size, time, inode and device; its other time changes with every hard link."""
    stat = path.stat()
    return [[list(part) for part in parts], stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev]


def _continued(file: Path, parts: Parts) -> Parts:
    """Return the parts of a file that may have grown."""
    more = file.stat().st_size - sum(size for size, _ in parts)
    if more == 0:
        return parts
    (first, _), *later = parts
    _compare(file, later, first)  # what is damaged must not get a new checksum
    more += sum(size for size, _ in later)
    return [parts[0], (more, _checksum(file, first, more))]


def _compare(path: Path, parts: Parts, start: int = 0) -> None:
    """Raise ValueError if one of the parts that begin at `start` differs from its checksum."""
    for size, wanted in parts:
        if _checksum(path, start, size) != wanted:
            raise ValueError("its content has changed")
        start += size


def _checksum(path: Path, start: int, size: int) -> str:
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        file.seek(start)
        while size > 0 and (content := file.read(min(size, CHUNK))):
            digest.update(content)
            size -= len(content)
    return "" if size else digest.hexdigest()
