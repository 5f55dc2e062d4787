"""Files: written whole or not at all, locked, hashed, read plain or gzipped, fetched from URLs."""

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

from datasets.errors import InputError, error_text
from datasets.progress import copy_progress

log = logging.getLogger(__name__)

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MEMO = "content-hashes.json"
SETTLED = 5.0
"""Seconds a file must be unchanged until its times are trusted to reveal a further change."""
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
CHUNK = 1 << 22
"""Bytes copied at a time."""


def cache_folder() -> Path:
    """The folder of what is downloaded and prepared once: `.cache`, or what CITATION_CACHE names."""
    return Path(os.environ.get("CITATION_CACHE", ".cache"))


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` to write to, renamed to `path` on success.

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


def write_text(path: Path, text: str) -> None:
    """Write a text file whole; after an error `path` is what it was before."""
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def new_folder(output: str | Path) -> Path:
    """The folder to write to; InputError if it exists and holds anything."""
    folder = Path(output).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"output: {folder} already exists; remove it or name a new folder")
    return folder


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` to write into; on success it replaces `folder`, else it is removed."""
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


@contextmanager
def file_lock(lock: Path, work: str, wait: bool = True) -> Iterator[None]:
    """Held by one process at a time; the others log that they wait. The system frees it when its holder dies.

    work: what the processes do, as "prepares the same corpus". wait: False is an InputError instead.
    """
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise InputError(f"{lock.parent}: another process {work}; run again later") from None
            log.info("waiting for another process that %s", work)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_abandoned(folder: Path, suffix: str) -> None:
    """Remove the folders NAME+suffix of dead processes; living ones hold NAME.lock (file_lock)."""
    for unfinished in folder.glob(f"*{suffix}"):
        with unfinished.with_suffix(".lock").open("w") as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def disk_errors(folder: Path, content: str, option: str) -> Iterator[None]:
    """A full disk, and a folder that cannot be written, become an InputError.

    content: what is written, as "the prepared corpus". option: what sets another folder.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise InputError(f"{folder}: no space left for {content}; free some or set {option}") from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            where = error.filename or folder
            raise InputError(f"{where}: {error.strerror}; set {option} to another folder") from None
        raise


def plain_or_gzipped(path: Path) -> Path | None:
    """The path, or else the one with .gz behind it; None if neither is there."""
    return next((one for one in (path, path.with_name(f"{path.name}.gz")) if one.exists()), None)


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """(the content of a file, gunzipped if need be; the file itself, whose position tells the progress).

    Only read inside: what goes wrong there becomes an InputError about this file.
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


def read_limited(path: Path, largest: int) -> bytes:
    """The content of a file. Raises InputError if it cannot be read or has more than `largest` bytes."""
    with open_bytes(path) as (file, _):
        content = file.read(largest + 1)
    if len(content) > largest:
        raise InputError(f"{path}: is larger than {largest >> 20:,} MB")
    return content


def strip_byte_order_mark(start: bytes, path: Path) -> bytes:
    """The start of a JSON file without byte order mark; InputError if it is in UTF-16 or UTF-32."""
    # JSON begins with two ASCII characters, so a zero byte among the first ones gives these away.
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (b"\0" in start[:2] and start[:4].strip(b"\0")):
        raise InputError(f"{path}: is in UTF-16 or UTF-32 and must be in UTF-8; iconv -t UTF-8 converts it")
    return start.removeprefix(BYTE_ORDER_MARK)


def content_hash(path: Path, memo_folder: Path) -> str:
    """Hash of a file's content, remembered by its size and times so that large files open at once."""
    memo_file = memo_folder / MEMO
    try:
        memo = json.loads(memo_file.read_text("utf-8"))
    except (OSError, ValueError):
        memo = {}
    memo = memo if isinstance(memo, dict) else {}
    stamp, place = file_stamp(path), str(path.resolve())
    match memo.get(place):
        case [known, str(digest)] if known == stamp:
            return digest
    digest = digest_file(path)
    if time.time() - path.stat().st_ctime > SETTLED and stamp == file_stamp(path):
        memo[place] = [stamp, digest]
        write_text(memo_file, json.dumps(memo))
    return digest


def digest_file(path: Path, algorithm: str = "") -> str:
    """Of the content of a file, by default 16 bytes of BLAKE2b."""
    try:
        with path.open("rb") as file:
            kind = algorithm or (lambda: hashlib.blake2b(digest_size=16))
            return hashlib.file_digest(file, kind).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def file_stamp(path: Path) -> list[int]:
    """Size, change times and inode: differs if the file was written in between."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


def is_url(place: object) -> bool:
    """Whether a path is a URL, for fsspec (s3://, gs://, http://, memory:// ...).

    >>> is_url("s3://bucket/folder"), is_url("../shared/data")
    (True, False)
    """
    return isinstance(place, str) and SCHEME.match(place) is not None


def local_file(url: str, cache: Path) -> Path:
    """A copy in `cache` of the file at a URL; the rest as for local_folder."""
    folder, _, name = url.rpartition("/")
    return _copied(folder, [[name]], cache) / name


def local_folder(url: str, stems: Sequence[str], cache: Path) -> Path:
    """A folder in `cache` with copies of STEM.json or else STEM.json.gz from the URL, for each stem it has.

    The copies are used as long as the files at the URL stay the same. Raises InputError if there are none, or
    they cannot be read.
    """
    return _copied(url, [[f"{stem}.json", f"{stem}.json.gz"] for stem in stems], cache)


def _copied(url: str, wanted: list[list[str]], cache: Path) -> Path:
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    try:
        system, root = url_to_fs(url)
        if isinstance(system, LocalFileSystem):
            return Path(root)
        found: dict[str, str] = {}
        for names in wanted:
            places = {name: f"{root.rstrip('/')}/{name}" for name in names}
            found |= dict([item for item in places.items() if _is_file(system, item[1])][:1])
        if not found:
            listed = ", ".join(names[0] for names in wanted)
            raise InputError(f"{url}: none of the files exists: {listed}")
        key = hashlib.blake2b(url.encode(), digest_size=8)
        for name, place in sorted(found.items()):
            key.update(f"{name} {system.ukey(place)}".encode())
        folder = cache / "remote" / key.hexdigest()
        for name, place in found.items():
            _copy(system, place, folder / name, f"{url}/{name}")
    except (InputError, KeyboardInterrupt):
        raise
    except ImportError as error:  # the package of this kind of URL
        raise InputError(f"{url}: {error}") from None
    except Exception as error:  # each file system has exceptions of its own
        if isinstance(error, OSError) and error.filename and str(cache) in str(error.filename):
            raise
        raise InputError(f"{url}: cannot be read: {error_text(error)}") from None
    return folder


def _is_file(system: Any, place: str) -> bool:
    try:
        return bool(system.info(place)["type"] == "file")  # isfile hides what is wrong
    except FileNotFoundError:
        return False


def _copy(system: Any, place: str, path: Path, url: str) -> None:
    size = system.size(place)
    if path.is_file() and path.stat().st_size == size:
        return
    with atomic_write(path) as part, part.open("wb") as target, copy_progress(url) as update:
        with system.open(place, "rb") as source:
            while chunk := source.read(CHUNK):
                target.write(chunk)
                update(target.tell(), size)
        if size is not None and target.tell() != size:
            raise InputError(f"{url}: {target.tell():,} of {size:,} bytes received; run again")
