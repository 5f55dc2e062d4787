"""Source files at a URL of fsspec (s3://, gs://, http://, memory:// ...): copied once to this machine.

Hashing, reading in pieces and mapping want files, so what is at a URL is brought into the cache folder first.
The copy is used as long as the URL says that its files are the same.

Files and folders that are whole or not there at all.
Folders that processes share: one of them works at a time, and what the disk refuses is one line.
Files as bytes, plain or gzipped, whatever their name; what cannot be read is one line.
Names for content: the hash of a file, and of a store's inputs and settings.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import logging
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from datasets.errors import InputError
from datasets.progress import moving


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Gives a temporary name beside `path` to write to, and renames it to `path` when all went well.

    After an error or a kill `path` is what it was before. An OSError names `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def written_folder(folder: Path) -> Iterator[Path]:
    """Gives a new folder beside `folder` to write into, which takes its place when all went well.

    What is at `folder` is replaced: look before. After an error it is what it was before.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        yield unfinished
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


log = logging.getLogger(__name__)


@contextmanager
def one_at_a_time(lock: Path, work: str) -> Iterator[None]:
    """Held by one process at a time, the others wait and say so; the system frees it when its holder dies.

    work: what the processes do, as "prepares the same corpus".
    """
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process that %s", work)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def clear_abandoned(folder: Path, suffix: str) -> None:
    """Remove the folders NAME+suffix of processes that died; those at work hold NAME.lock (one_at_a_time)."""
    for unfinished in folder.glob(f"*{suffix}"):
        with unfinished.with_suffix(".lock").open("w") as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def one_line_disk_errors(folder: Path, content: str, option: str) -> Iterator[None]:
    """Turn a full disk, and a folder that cannot be written, into an InputError.

    content: what is written, as "the prepared corpus". option: what names another folder.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise InputError(f"{folder}: no space left for {content}; free some or set {option}") from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise InputError(
                f"{error.filename or folder}: {error.strerror}; set {option} to another folder"
            ) from None
        raise


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


MEMO = "content-hashes.json"
SETTLED = 5.0
"""Seconds that a file must be unchanged until its times are trusted to tell a further change."""


def content_hash(path: Path, memo_folder: Path) -> str:
    """Hash of a file's content, remembered by its size and times so that large inputs open at once."""
    memo_file = memo_folder / MEMO
    memo = _read(memo_file)
    stamp = stamp_of(path)
    place = str(path.resolve())
    known = memo.get(place)
    if isinstance(known, list) and len(known) == 2 and known[0] == stamp and isinstance(known[1], str):
        return known[1]
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if time.time() - path.stat().st_ctime > SETTLED and stamp == stamp_of(path):
        memo[place] = [stamp, digest]
        part = memo_file.with_name(f"{MEMO}.{os.getpid()}")
        part.write_text(json.dumps(memo), "utf-8")
        part.replace(memo_file)
    return digest


def stamp_of(path: Path) -> list[int]:
    """Size, change times and place on the disk: differs if the file was written in between."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


def _read(path: Path) -> dict[str, Any]:
    try:
        memo = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return memo if isinstance(memo, dict) else {}


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
