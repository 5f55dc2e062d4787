"""Unpack wanted files from zip and tar archives of unknown layout, or read them in place."""

from __future__ import annotations

import logging
import lzma
import re
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from citerec.base.errors import InputError, UnusableFile

log = logging.getLogger(__name__)

DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, struct.error,
    RuntimeError, NotImplementedError,
)  # fmt: skip
"""Exceptions that a damaged, encrypted or strangely packed archive raises."""
MAX_LISTED = 8


def check_free_space(folder: Path, size: int) -> None:
    """Raise InputError unless the disk has room for `size` more bytes."""
    if size > (free := shutil.disk_usage(folder).free):
        raise InputError(
            f"{folder}: needs {size / 1e6:,.0f} MB, but only {free / 1e6:,.0f} MB are free; free some space "
            "or choose another folder"
        )


def unpack(archive: Path, wanted: Iterable[str], folder: Path, matches: str = "") -> list[Path]:
    """Extract the `wanted` files that a zip or tar archive contains; return their paths in `folder`.

    They are written to `folder` itself, whatever their paths in the archive.
    Raises UnusableFile with the reason if the file is not an archive, is damaged, has a wanted file more than
    once or has none of them; InputError if the disk is too small.
    """
    with damage_reported():
        if not (zipfile.is_zipfile(archive) or tarfile.is_tarfile(archive)):
            raise UnusableFile("not a zip or tar archive, or truncated")
        sizes = {path: size for path, size, _ in stream_files(archive)}
        chosen = pick_files(list(sizes), wanted, matches).values()
        if not chosen:
            raise UnusableFile(f"contains none of the files, only {format_names(sizes)}")
        check_free_space(folder, sum(sizes[path] for path in chosen))
        log.info("unpacking %s", archive.name)
        for path, _, open_file in stream_files(archive):
            if path in chosen:
                with open_file() as source, (folder / PurePosixPath(path).name).open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
    return [folder / PurePosixPath(path).name for path in chosen]


def stream_files(archive: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    """Yield the path, size and opener of each regular file of a zip or tar archive, in the archive's order.

    Each must be read before the next. Memory does not grow with the number of files of a tar archive. Damage
    raises UnusableFile, here and while they are read.
    """
    with damage_reported():
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                for info in packed.infolist():
                    if not info.is_dir():
                        yield info.filename, info.file_size, partial(packed.open, info)
        else:
            with tarfile.open(archive, "r|*") as tar:
                for member in tar:
                    if member.isreg():
                        yield member.name, member.size, partial(_extract, tar, member)
                    tar.members = []  # type: ignore[attr-defined]  # it keeps all that it has seen


@contextmanager
def damage_reported() -> Iterator[None]:
    """Turn the many exceptions that a damaged archive raises into UnusableFile."""
    try:
        yield
    except DAMAGED as error:
        raise UnusableFile(f"the archive cannot be unpacked ({error or type(error).__name__})") from None
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report damaged data this way
            raise UnusableFile(f"the archive cannot be unpacked ({error})") from None
        raise


def _extract(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(info)
    assert file is not None, info  # a regular file
    return file


def pick_files(paths: Sequence[str], wanted: Iterable[str], matches: str = "") -> dict[str, str]:
    """Find the wanted names among `paths` as {name: path}; plain files are preferred to gzipped ones.

    Of several candidates, paths that match `matches` win, then those nearest to the root; raises UnusableFile
    if this leaves more than one.

    >>> pick_files(["acl/papers.json", "old/acl/papers.json", "arxiv/papers.json"], ["papers.json"], "acl")
    {'papers.json': 'acl/papers.json'}
    """
    chosen: dict[str, str] = {}
    for name in wanted:
        named = [[path for path in paths if PurePosixPath(path).name == like] for like in name_variants(name)]
        matching = next(filter(None, named), [])
        matching = [path for path in matching if re.search(matches, path, re.IGNORECASE)] or matching
        depth = min((path.count("/") for path in matching), default=0)
        matching = [path for path in matching if path.count("/") == depth]
        if len(matching) > 1:
            raise UnusableFile(f"contains {name} more than once: {format_names(matching)}")
        if matching:
            chosen[name] = matching[0]
    return chosen


def name_variants(file: str) -> tuple[str, ...]:
    """The name of a file, and its gzipped name if it may be gzipped."""
    return (file, f"{file}.gz") if file.endswith((".json", ".jsonl", ".txt")) else (file,)


def format_names(names: Iterable[str]) -> str:
    """The first few names without control characters, plus a count of the rest."""
    printable = ["".join(letter if letter.isprintable() else "?" for letter in name)[:100] for name in names]
    more = f" and {len(printable) - MAX_LISTED} more" if len(printable) > MAX_LISTED else ""
    return (", ".join(printable[:MAX_LISTED]) or "nothing") + more
