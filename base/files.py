"""Files: atomic writes, locks, hashes, plain or gzipped reading."""

from __future__ import annotations

import ctypes
import errno
import gzip
import hashlib
import io
import json
import logging
import os
import shutil
import sqlite3
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from platformdirs import user_cache_path

from citerec.base.errors import InputError, StorageError, is_full

log = logging.getLogger(__name__)

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MEMO = "content-hashes.json"
SETTLED = 5.0
"""Seconds a file must be unchanged before its timestamps are trusted to reveal later changes."""
CHUNK = 1 << 22
"""Bytes copied at a time."""
PATIENCE = 2.0
"""Seconds to wait until another process has read a file; Windows does not let us replace it before that."""


def user_cache() -> Path:
    """Return the user's folder for what can be made again, such as `~/.cache/citerec`."""
    return user_cache_path("citerec")


def cache_folder(chosen: str | Path | None = None) -> Path:
    """Return the folder for downloads and prepared data: `chosen`, $CITATION_CACHE or that of the user."""
    return expand_user(chosen or os.environ.get("CITATION_CACHE") or user_cache())


def expand_user(name: str | Path) -> Path:
    """Return a path with ~ expanded; the ~ of an unknown user is kept, whereas Path.expanduser raises."""
    return Path(os.path.expanduser(name))


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary file next to `path`, renamed to `path` on success.

    After an error or a kill, `path` is unchanged. An OSError names `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        _rename(unfinished, path)
    except OSError as error:
        if error.errno is None and is_full(error):
            error.errno = errno.ENOSPC  # a name would replace the message that says so
        error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # a disk that is read-only
            unfinished.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, the same on all systems."""
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(text.encode())


def _rename(new: Path, to: Path) -> None:
    """Rename a folder or a file; a file may replace another. StorageError if another process keeps it open
    for longer than PATIENCE; only Windows forbids renaming open files."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            new.replace(to)
            return
        except PermissionError:
            if not os.access(to.parent, os.W_OK):
                raise
            if time.monotonic() > until:
                what = "is open in another program; close it, and run again"
                raise StorageError(f"{to if to.exists() else new}: {what}") from None
            time.sleep(0.02)


def new_folder(output: str | Path) -> Path:
    """Return the folder to write to; InputError if it exists and is not empty."""
    folder = expand_user(output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"output: {folder} already exists; remove it or name a new folder")
    return folder


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder next to `folder`; it replaces `folder` on success and is removed otherwise.

    An OSError names `folder`.
    """
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        yield unfinished
        if not _exchange(unfinished, folder):
            _rename(unfinished, folder)
    except OSError as error:
        if Path(error.filename or "").is_relative_to(unfinished):
            error.filename = str(folder / Path(error.filename).relative_to(unfinished))
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _exchange(new: Path, old: Path) -> bool:
    """Swap two folders, atomically if the system supports it; False if `old` does not exist."""
    if not old.exists():
        return False
    here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None or rename(here, os.fsencode(new), here, os.fsencode(old), both):
        aside = old.with_name(f".{old.name}.{os.getpid()}.aside")
        _rename(old, aside)
        try:
            _rename(new, old)
        except (OSError, StorageError):
            aside.rename(old)
            raise
        aside.rename(new)
    return True


@contextmanager
def file_lock(lock: Path, work: str, wait: bool = True) -> Iterator[None]:
    """Hold a lock that one process holds at a time; the others log that they wait, or fail unless `wait`.

    The system frees it when its holder dies.
    work: what the holder does, for messages, e.g. "prepares the same corpus".
    """
    from filelock import FileLock, Timeout

    held = FileLock(os.path.realpath(lock), thread_local=False)  # as the hub's cache links files
    try:
        held.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise InputError(f"{lock.parent}: another process {work}; run again later") from None
        log.info("waiting for another process that %s", work)
        held.acquire()
    try:
        yield
    finally:
        held.release()


def remove_abandoned(folder: Path, suffix: str) -> None:
    """Remove folders NAME+suffix left by dead processes; live ones hold NAME.lock (file_lock)."""
    for unfinished in folder.glob(f"*{suffix}"):
        with suppress(InputError), file_lock(unfinished.with_suffix(".lock"), "is at work", wait=False):
            shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def disk_errors(folder: Path, content: str, option: str) -> Iterator[None]:
    """Turn a full disk or a folder that cannot be written into a StorageError.

    content: what is written, e.g. "the prepared corpus". option: the option that sets the folder.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise StorageError(f"{folder}: no space left for {content}; free some or set {option}") from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            where = error.filename or folder
            raise StorageError(f"{where}: {error.strerror}; set {option} to another folder") from None
        raise


def database_disk_error(error: sqlite3.Error, path: Path) -> OSError | None:
    """Return the OSError for what SQLite raises when the disk is full, or fails; None for anything else."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    number = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}.get(code)
    return None if number is None else OSError(number, os.strerror(number), str(path))


def relative_path(file: Path, folder: Path) -> str:
    """Return the path of a file from a folder, with slashes; the whole path if it is on another drive."""
    try:
        return Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:
        return file.as_posix()


def real_path(path: str | Path) -> Path:
    """Return a path without links; unlike Path.resolve, this works for a link that leads to itself, too."""
    return Path(os.path.realpath(path))


def files_below(folder: Path) -> list[Path]:
    """Return the files in a folder and below it, sorted.

    A folder that disappears meanwhile, for which Path.rglob raises, is left out.
    """
    return sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)


def existing_file(path: Path) -> Path | None:
    """Return `path`, or else `path`.gz; None if neither exists."""
    return next((file for file in (path, path.with_name(f"{path.name}.gz")) if file.exists()), None)


@contextmanager
def open_bytes(path: str | Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield a file's content, gunzipped if need be, and the raw file, whose position is the progress.

    Do nothing but read inside: errors there become an InputError about this file.
    """
    try:
        with open_file(path) as raw:
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


def open_file(path: str | Path) -> io.BufferedReader:
    """Open a file to read. Raises OSError also for a pipe or device, which might never end."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if stat.S_ISDIR(mode := os.fstat(number).st_mode) or not stat.S_ISREG(mode):
        os.close(number)
        kind = "is a folder" if stat.S_ISDIR(mode) else "is a pipe or device"
        raise OSError(errno.EINVAL, f"{kind}, not a file", str(path))
    return os.fdopen(number, "rb")


def read_limited(path: Path, largest: int) -> bytes:
    """Read a file, plain or gzipped. Raises InputError if it cannot be read or exceeds `largest` bytes."""
    with open_bytes(path) as (file, _):
        content = file.read(largest + 1)
    if len(content) > largest:
        raise InputError(f"{path}: is larger than {largest >> 20:,} MB")
    return content


def strip_byte_order_mark(start: bytes, path: str | Path) -> bytes:
    """Strip the byte order mark from the start of a JSON file; InputError if it is in UTF-16 or UTF-32."""
    # JSON begins with two ASCII characters, so a zero byte among the first two means UTF-16 or UTF-32.
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (b"\0" in start[:2] and start[:4].strip(b"\0")):
        raise InputError(f"{path}: is in UTF-16 or UTF-32 and must be in UTF-8; convert it: iconv -t UTF-8")
    return start.removeprefix(BYTE_ORDER_MARK)


def content_hash(path: Path, memo_folder: Path) -> str:
    """Return the hash of a file's content, cached by its size and times so that large files open fast."""
    memo_file = memo_folder / MEMO
    try:
        memo = json.loads(memo_file.read_text("utf-8"))
    except (OSError, ValueError):
        memo = {}
    memo = memo if isinstance(memo, dict) else {}
    stamp, key = file_stamp(path), str(path.resolve())
    match memo.get(key):
        case [known, str(digest)] if known == stamp:
            return digest
    digest = digest_file(path)
    if time.time() - path.stat().st_ctime > SETTLED and stamp == file_stamp(path):
        memo[key] = [stamp, digest]
        write_text(memo_file, json.dumps(memo))
    return digest


def digest_json(value: object, size: int = 8) -> str:
    """Return the hex digest, `size` bytes of BLAKE2b, of a value as JSON with sorted keys."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=size).hexdigest()


def digest_file(path: Path, algorithm: str = "") -> str:
    """Return the hex digest of a file's content, by default 16 bytes of BLAKE2b."""
    try:
        with open_file(path) as file:
            kind = algorithm or (lambda: hashlib.blake2b(digest_size=16))
            return hashlib.file_digest(file, kind).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def link_or_copy(source: str | Path, to: str | Path) -> None:
    """Copy a file or folder, using hard links if possible."""
    if Path(source).is_dir():  # not shutil.copytree, whose error does not say that a disk is full
        Path(to).mkdir()
        for part in Path(source).iterdir():
            link_or_copy(part, Path(to) / part.name)
        return
    try:
        os.link(Path(source).resolve(), to)
    except OSError:
        shutil.copyfile(source, to)


def file_stamp(path: Path) -> list[int]:
    """Return a file's size, times, inode and device, which change when the file is written."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]
